"""What a compiled function takes and gives."""

import logging
import threading

import numpy as np
import pytest

import neoflow as nf
from neoflow import RuntimeFault
from neoflow.runtime import exchange
from neoflow.runtime.device.cpu import empty
from neoflow.runtime.executor import Executor
from neoflow.runtime.parameters import get_value

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def double():
    x = nf.placeholder((64, 96), name="x")
    return nf.compile(x * 2.0, [x])


def test_any_layout_of_array_works(double):
    rng = np.random.default_rng(0)
    base = rng.random((96, 64), np.float32)
    unaligned = np.frombuffer(b"\0" * 4 + base.tobytes(), np.float32, offset=4).reshape(64, 96)
    read_only = empty((64, 96), "float32")
    read_only[...] = base.reshape(64, 96)
    read_only.flags.writeable = False
    strided = rng.random((128, 192), np.float32)[::2, ::2]
    for array in (base.T, base.reshape(64, 96), unaligned, read_only, strided, base[:, ::-1].T, base.T.tolist()):
        np.testing.assert_array_equal(double(array)[0], np.asarray(array, np.float32) * 2)


def test_an_input_is_never_written(double):
    array = np.ones((64, 96), np.float32)
    (result,) = double(array)
    assert not np.shares_memory(result, array) and (array == 1).all()


def test_copying_is_said_once(caplog):
    x = nf.placeholder((64, 96), name="x")
    f = nf.compile(x + 1.0, [x])
    array = np.ones((96, 64), np.float32).T
    with caplog.at_level(logging.INFO, "neoflow"):
        f(array)
        f(array)
    assert [r.message for r in caplog.records if "is copied" in r.message] == [
        "input x is copied at every call: kernels take contiguous, writable arrays aligned to 64 bytes"
    ]


def test_results_are_fresh(double):
    first = double(np.ones((64, 96), np.float32))[0]
    double(np.zeros((64, 96), np.float32))
    assert (first == 2).all()


@pytest.mark.parametrize(
    "arrays, message",
    [
        ([], r"the program takes 1 arrays \(x\), got 0"),
        ([np.zeros((64, 95), np.float32)], r"input x has shape \(64, 96\), the array \(64, 95\)"),
        ([np.zeros((64, 96))], r"input x is float32, the array float64; convert it: array.astype\('float32'\)"),
        ([np.zeros((64, 96), np.int32)], "input x is float32, the array int32"),
    ],
)
def test_wrong_arrays_are_refused(double, arrays, message):
    with pytest.raises(RuntimeFault, match=message):
        double(*arrays)


@pytest.mark.torch
def test_torch_tensors_by_dlpack(double):
    torch = pytest.importorskip("torch")
    for tensor in (torch.rand(64, 96), torch.rand(96, 64).T, torch.rand(128, 96)[::2]):
        np.testing.assert_array_equal(double(tensor)[0], tensor.numpy() * 2)


def test_functions_from_several_threads(double):
    x = nf.placeholder((200, 300), name="x")
    k = nf.axis(300, "k")
    gram = nf.compile(nf.compute((200, 200), lambda i, j: nf.sum(x[i, k] * x[j, k], axis=[k])), [x])
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(10):
            a, b = rng.random((64, 96), np.float32), rng.random((200, 300), np.float32)
            try:
                np.testing.assert_array_equal(double(a)[0], a * 2)
                np.testing.assert_allclose(gram(b)[0], b @ b.T, rtol=1e-4)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_updates_are_written_and_shared():
    w = nf.parameter((5,), name="w", init=np.arange(5, dtype=np.float32))
    x = nf.placeholder((5,), name="x")
    step, read = nf.compile([w * 1.0], [x], {w: w + x}), nf.compile(w * 10.0)
    (before,) = step(np.ones(5, np.float32))
    np.testing.assert_array_equal(before, np.arange(5))
    np.testing.assert_array_equal(get_value(w), np.arange(5) + 1)
    np.testing.assert_array_equal(read()[0], 10 * (np.arange(5) + 1))


@pytest.mark.parametrize("read", [lambda w: w, lambda w: nf.reshape(w, (2, 3)), lambda w: w[1:4]])
def test_outputs_have_the_values_before_the_updates(read):
    w = nf.parameter((6,), name="w", init=np.arange(6, dtype=np.float32))
    (before,) = nf.compile([read(w)], updates={w: w + 1.0})()
    np.testing.assert_array_equal(before.reshape(-1), np.arange(6)[1:4] if before.size == 3 else np.arange(6))
    np.testing.assert_array_equal(get_value(w), np.arange(6) + 1)


def test_an_update_to_the_old_value_of_another():
    a, b = (nf.parameter((3,), name=n, init=np.full(3, v, np.float32)) for n, v in (("a", 1.0), ("b", 2.0)))
    step = nf.compile([], updates={a: b, b: b * 3.0})
    for old, new in ((2, 6), (6, 18)):
        step()
        assert (get_value(a) == old).all() and (get_value(b) == new).all()


def test_swapping_two_parameters():
    a, b = (nf.parameter((3,), name=n, init=np.full(3, v, np.float32)) for n, v in (("a", 1.0), ("b", 2.0)))
    nf.compile([], updates={a: b, b: a})()
    assert (get_value(a) == 2).all() and (get_value(b) == 1).all()


def test_an_index_outside_its_table_is_an_error():
    table, ids = nf.placeholder((7, 3), name="table"), nf.placeholder((4,), "int64", name="ids")
    f = nf.compile(nf.compute((4, 3), lambda b, h: table[ids[b], h]), [table, ids])
    rows = np.arange(21, dtype=np.float32).reshape(7, 3)
    np.testing.assert_array_equal(f(rows, np.array([0, 6, 3, 3]))[0], rows[[0, 6, 3, 3]])
    for bad in (7, -1):
        with pytest.raises(RuntimeFault, match=rf"dimension 0 by `ids\[b\]` = {bad} at b=1, but its extent is 7"):
            f(rows, np.array([0, bad, 3, 3]))


def test_profile_has_every_call(double):
    times = double.profile(np.ones((64, 96), np.float32), runs=3)
    assert len(times) == len(double.plan.calls) and sum(t.share for t in times) == pytest.approx(1)


@pytest.mark.parametrize("format", ["tir", "llvm", "asm"])
def test_source(double, format):
    assert "nf_" in double.source(format)


@pytest.mark.tvm
def test_results_are_the_callers_even_through_views():
    """Output memory is used again when nobody holds it, and not while a view of it is held."""
    x = nf.placeholder((8, 16), name="x")
    f = nf.compile([x * 2.0], [x])
    a, b = np.ones((8, 16), np.float32), np.full((8, 16), 5, np.float32)
    (first,) = f(a)
    (second,) = f(b)
    assert (first == 2).all() and (second == 10).all()
    row = f(a)[0][3]
    column = f(b)[0].T[:, 2]
    f(np.zeros((8, 16), np.float32))
    assert (row == 2).all() and (column == 10).all()
    del first, second, row, column
    memory = {f(a)[0].ctypes.data for _ in range(5)}
    assert len(memory) == 1


@pytest.mark.tvm
def test_the_same_array_changed_in_place_is_read_again():
    x = nf.placeholder((8, 16), name="x")
    f = nf.compile([x * 2.0], [x])
    a = empty((8, 16), "float32")
    a[...] = 1
    assert (f(a)[0] == 2).all()
    a[...] = 3
    assert (f(a)[0] == 6).all()
    a.shape = (16, 8)
    with pytest.raises(nf.RuntimeFault, match=r"input x has shape \(8, 16\), the array \(16, 8\)"):
        f(a)


@pytest.mark.tvm
@pytest.mark.parametrize("is_known", [True, False])
def test_where_an_array_lies_is_asked_of_numpy_where_c_does_not_tell(monkeypatch, is_known):
    monkeypatch.setattr(exchange, "_IS_KNOWN", is_known)
    x = nf.placeholder((4, 6), name="x")
    f = nf.compile([x * 2.0], [x])
    tried = [np.ones((4, 6), np.float32) for _ in range(16)]
    a = next((t for t in tried if t.ctypes.data % 64 == 0), tried[0])
    for _ in range(2):
        np.testing.assert_array_equal(f(a)[0], 2 * a)
    a.resize((40, 60), refcheck=False)  # other memory
    a.resize((4, 6), refcheck=False)
    a += 1
    np.testing.assert_array_equal(f(a)[0], 2 * a)


def test_what_is_copied_goes_to_the_same_memory(double, monkeypatch):
    given = [np.full((96, 64), n, np.float32).T for n in range(4)]
    double(given[0])
    monkeypatch.setattr(double._executor, "bind", None)  # nothing is bound again
    for x in given:
        np.testing.assert_array_equal(double(x)[0], 2 * x)


def test_an_interrupt_as_soon_as_an_array_is_bound(monkeypatch):
    x = nf.placeholder((4, 6), name="x")
    f, bind = nf.compile([x * 2.0], [x]), Executor.bind

    def interrupted(self, number, array):
        bind(self, number, array)
        raise KeyboardInterrupt

    a = empty((4, 6), "float32")
    a[...] = 3
    with monkeypatch.context() as patch:
        patch.setattr(Executor, "bind", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(a)
    np.testing.assert_array_equal(f(a)[0], 2 * a)


def test_runs_are_counted_when_they_end():
    table, ids = nf.parameter((7, 3), name="table"), nf.placeholder((4,), "int64", name="ids")
    f = nf.compile([nf.take(table, ids)], [ids], {table: table + 1.0})
    assert f.runs == 0
    f(np.arange(4))
    with pytest.raises(RuntimeFault, match="index out of range"):
        f(np.array([0, 1, 2, 7]))
    assert f.runs == 1 and (get_value(table) == 1).all()
    f.profile(np.arange(4), runs=3)
    assert f.runs == 4 and (get_value(table) == 4).all()
    np.testing.assert_array_equal(f.results()[0], np.full((4, 3), 3))


@pytest.mark.tvm
def test_a_fault_that_was_never_told_does_not_stop_the_next_call():
    table, ids = nf.placeholder((7, 3), name="table"), nf.placeholder((4,), "int64", name="ids")
    f = nf.compile([nf.take(table, ids)], [table, ids])
    rows = np.arange(21, dtype=np.float32).reshape(7, 3)
    f._executor._judge = lambda: None  # as if another exception had come first
    f(rows, np.array([0, 1, 2, 7]))
    del f._executor._judge
    np.testing.assert_array_equal(f(rows, np.array([0, 1, 2, 6]))[0], rows[[0, 1, 2, 6]])


@pytest.mark.tvm
def test_indices_are_checked_before_parameters_change():
    """A counter and running statistics do not move when a label that is needed much later is wrong."""
    x, labels = nf.placeholder((8, 5), name="x"), nf.placeholder((8,), "int64", name="labels")
    w, count = nf.parameter((5, 5), name="w", init=np.eye(5, dtype=np.float32)), nf.parameter((), name="count")
    running = nf.parameter((5,), name="running")
    updates = {count: count + 1.0, running: 0.9 * running + 0.1 * nf.mean(x, axis=0)}
    loss = nf.nn.functional.cross_entropy(nf.tanh(nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w)), labels)
    updates[w] = w - 0.1 * nf.grad(loss, [w])[0]
    step = nf.compile([loss], [x, labels], updates)
    data = np.random.default_rng(0).random((8, 5), np.float32)
    step(data, np.arange(8) % 5)
    before = [get_value(p) for p in updates]
    with pytest.raises(RuntimeFault, match="= 5 at b=5, but its extent is 5; no parameter has changed"):
        step(data, np.arange(8))
    assert all((get_value(p) == b).all() for p, b in zip(updates, before, strict=True))


@pytest.mark.tvm
def test_a_fault_says_what_has_been_overwritten():
    """Indices that are looked up in the new value of a table cannot be checked before it is there."""
    table, other = (nf.parameter((9,), name=n) for n in ("table", "other"))
    ids, i = nf.placeholder((4,), "int64", name="ids"), nf.axis(4, "i")
    new = table + 1.0
    step = nf.compile([nf.take(new, ids)], [ids], {table: new})
    with pytest.raises(
        RuntimeFault, match="= 9 at i=3, but its extent is 9; already overwritten: table; set or load them again"
    ):
        step(np.array([0, 1, 2, 9]))
    scattered = nf.scatter((9,), [i], (ids[i],), 1.0)
    step = nf.compile([], [ids], {table: table + scattered, other: other + 1.0})
    before = get_value(table)
    with pytest.raises(RuntimeFault, match="= 9 at r=3, but its extent is 9; no parameter has changed"):
        step(np.array([0, 1, 2, 9]))
    assert (get_value(table) == before).all() and (get_value(other) == 0).all()

"""Loops as one launch: what is given for them, and that it does not grow with the turns."""

import ctypes

import numpy as np
import pytest

import neoflow as nf
from neoflow.code import Code, Entry, Fault, Workspace
from neoflow.runtime.native import MOST_POINTERS, is_native, words_of
from neoflow.runtime.plan import Buffer, Call, Moving, Plan, Repeated
from neoflow.runtime.turns import stretches

pytestmark = pytest.mark.tvm


SERIAL = (Code((Entry("f", 2, False),)), Code((Entry("g", 1, False), Entry("h", 3, False))))
CALLS = (Call(0, (5,), (), "a"), Call(1, (6, 5), (), "b"), Call(0, (6,), (), "c"))


def plan(loops, codes=SERIAL, calls=CALLS):
    return Plan((), calls, codes, (), (), (), (), (), 0, 0, loops=tuple(loops))


def test_a_loop_in_a_loop_is_given_inside():
    inner = Repeated(1, 1, 4, (Moving(6, 8, 2, 1),))
    outer = Repeated(0, 2, 3, (Moving(5, 16, 3, 0), Moving(6, 100, 3, 0)))
    found = words_of(plan([inner, outer]), outer, [[1000], [2000, 3000]], 77)
    given = [2, 1, 2, 2000, 0, 1, 3000, 0, 3, 0, 8, 2, 1, 0, 0]
    movings = [0, 16, 3, 0, 14, 100, 3, 0, 15, 16, 3, 0]
    assert found.words == [2, 3, 16, 1000, 0, 2, 77, 1, 4, *movings, 0, *given]
    assert [found.words[n] for n in found.functions] == [1000, 77, 2000, 3000]
    assert found.places == [(5, 21), (6, 35), (5, 36)]


def test_what_runs_so():
    loop = Repeated(0, 2, 3, ())
    assert is_native(plan([loop]), loop, 2)
    failing = (Code((Entry("f", 2, False),), (), (Fault(0, 3),)), Code((Entry("g", 1, False),)))
    assert not is_native(plan([loop], failing), loop, 1)
    shared = (Code((Entry("f", 2, True),)), Code((Entry("g", 1, True),)))
    assert not is_native(plan([loop], shared), loop, 2) and is_native(plan([loop], shared), loop, 1)
    many = (Call(0, tuple(range(MOST_POINTERS)), (), "a"), Call(1, (1,), (), "b"))
    assert not is_native(plan([loop], calls=many), loop, 2)
    apart = Repeated(0, 2, 3, (), True)
    assert is_native(plan([apart], shared), apart, 2) and not is_native(plan([apart], failing), apart, 2)


def test_loops_and_what_is_between_them():
    loop = Repeated(1, 1, 4, ())
    assert list(stretches(plan([loop]))) == [(0, 1, None), (1, 2, loop), (2, 3, None)]


def test_kernels_that_are_adopted_by_strands_have_scratch_of_their_own():
    codes = (Code((Entry("f", 2, True),)), Code((Entry("g", 1, True),)))
    loops = [Repeated(1, 1, 5, ()), Repeated(1, 1, 3, (), True)]
    before = plan(loops, codes, (Call(0, (), (), "a"), Call(1, (), (), "b")))
    new = Code((Entry("h", 1, True),), (Workspace(100, True), Workspace(10, False)))
    after = before.adopting({0: new, 1: new}, 2)
    spaces = [[after.buffers[w] for w in c.workspaces] for c in after.calls]
    assert [[(b.offset, b.nbytes) for b in row] for row in spaces] == [[(0, 100), (128, 128)], [(256, 384), (640, 128)]]
    assert after.loops[1].moving == (Moving(after.calls[1].workspaces[0], 128, 3, 0),) and not after.loops[0].moving
    assert after.scratch_bytes == 768 and Buffer("workspace", (384,), "int8", "scratch", 256) in after.buffers


def scanned(steps):
    x, w = nf.placeholder((steps, 4, 6), name="x"), nf.placeholder((6, 6), name="w")
    last, ys = nf.scan(lambda h, row: (nf.tanh(h @ w + row),) * 2, nf.zeros((4, 6)), x)
    return nf.compile([last, *nf.grad(nf.sum(ys * ys), [x, w])], [x, w]), x, w


def test_what_is_laid_out_does_not_grow_with_the_turns():
    few, many = (scanned(steps)[0]._executor._laid.layout for steps in (5, 500))
    assert len(few.table) == len(many.table) and len(few.launches) == len(many.launches) and not many.sweeps


def test_memory_that_is_lent_moves_too():
    """Arrays that come with a call, from call to call somewhere else."""
    f, x, w = scanned(7)
    for seed in range(4):
        feeds = {t: np.random.default_rng(seed).standard_normal(t.shape).astype(np.float32) for t in (x, w)}
        last = feeds[x][0] * 0
        for row in feeds[x]:
            last = np.tanh(last @ feeds[w] + row)
        np.testing.assert_allclose(f(*feeds.values())[0], last, rtol=1e-4, atol=1e-4)


def test_a_package_runs_loops_in_c(tmp_path):
    f, x, w = scanned(9)
    feeds = [np.random.default_rng(n).standard_normal(t.shape).astype(np.float32) for n, t in enumerate((x, w))]
    expected = f(*feeds)
    f.save(tmp_path / "loop.nflib", "go")
    for got, want in zip(nf.load(tmp_path / "loop.nflib").go(*feeds), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    library = ctypes.CDLL(str(next((tmp_path / "loop.nflib").glob("*.so"))))
    library.loop_open.restype = ctypes.c_void_p
    for threads in (1, 2):
        model = ctypes.c_void_p(library.loop_open(threads))
        results = [aligned(np.zeros_like(t)) for t in expected]
        arrays = [aligned(t) for t in feeds]
        assert library.loop_go(model, *(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *results))) == 0
        library.loop_close(model)
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_array_equal(got, want)


def aligned(array):
    raw = np.zeros(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    found = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found

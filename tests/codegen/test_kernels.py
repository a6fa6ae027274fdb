"""Kernels against the interpreter: maps, reductions, contractions, every dtype, odd shapes, schedules of all kinds."""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.devices import device
from neoflow.errors import ScheduleError
from neoflow.loops import default_schedule
from neoflow.loops.nest import nest_of
from neoflow.runtime.device.cpu import empty

_spec = importlib.util.spec_from_file_location("codegen_kernels", Path(__file__).with_name("kernels.py"))
k = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(k)

pytestmark = pytest.mark.tvm


def p(*shape: int, dtype: str = "float32"):
    return nf.placeholder(shape, dtype)


FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64")


# ------------------------------------------------------------------------------------------------------ maps


@pytest.mark.parametrize("shape", [(), (1,), (7,), (16,), (37, 53), (3, 5, 1, 17)])
def test_elementwise_shapes(shape):
    x, y = p(*shape), p(*shape)
    k.check([x + y * 2.0, nf.maximum(x, y)], [x, y])


FUNCTIONS = (
    "exp",
    "expm1",
    "log1p",
    "stop_gradient",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "abs",
    "relu",
    "sign",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "rsqrt",
    "log",
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    x = p(5, 21, dtype=dtype)
    feeds = {x: k.random_array(x, 0.1, 3.0) if name in ("sqrt", "rsqrt", "log", "log1p") else k.random_array(x)}
    k.check(getattr(nf, name)(x), [x], feeds=feeds, scale=4.0)


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_arithmetic_of_every_dtype(dtype):
    x, y = p(5, 21, dtype=dtype), p(5, 21, dtype=dtype)
    k.check([x + y, x - y, x * y, -x, nf.minimum(x, y), nf.select(x < y, x, y)], [x, y])


@pytest.mark.parametrize("dtype", INTS)
def test_division_rounds_down(dtype):
    x, y = p(64, dtype=dtype), p(64, dtype=dtype)
    divisor = np.resize(np.array([-7, -3, -1, 1, 2, 5]), 64)
    k.check([x // y, x % y, x // 3, x % 4], [x, y], feeds={y: divisor})


def test_bool_and_casts():
    a, b, x = p(33, dtype="bool"), p(33, dtype="bool"), p(33)
    k.check([a & b, a | b, ~a], [a, b])
    k.check([nf.cast(a, "float32"), nf.cast(x, "float64")], [a, x])
    k.check([nf.cast(x, "int32"), nf.cast(x, "int8")], [x])
    k.check([nf.cast(x, "bfloat16"), nf.cast(x, "float16")], [x])
    k.check(nf.cast(x, "bool"), [x])


def test_nan_passes():
    x, y = p(20), p(20)
    values = np.linspace(-1, 1, 20, dtype=np.float32)
    values[[3, 17]] = np.nan
    feeds = {x: values, y: values[::-1]}
    k.check([nf.maximum(x, y), nf.minimum(x, y), nf.relu(x), nf.sign(x)], [x, y], feeds=feeds)
    k.check([nf.max(x), nf.min(x), nf.argmax(x), nf.argmin(x)][:1], [x], feeds=feeds)
    k.check(nf.argmin(x), [x], feeds=feeds)


def test_select_sees_nothing_of_the_other_branch():
    x = p(40)
    safe = nf.select(x > 0.0, nf.log(x), x * 0.0)
    k.check(safe, [x])


@pytest.mark.parametrize("shape", [(37, 53), (1, 19), (64, 64), (5, 3, 18)])
def test_rearrangements(shape):
    x = p(*shape)
    rank = len(shape)
    k.check(nf.transpose(x), [x])
    k.check(nf.pad(x, ((1, 2),) * rank), [x])
    k.check(nf.concat([x, x * 2.0, x], axis=rank - 1), [x])
    k.check(nf.concat([x, x * 2.0], axis=0), [x])
    k.check(nf.flip(x, rank - 1), [x])
    k.check(nf.reshape(x, (int(np.prod(shape)),)), [x])


def test_interleave_and_strides():
    x, y = p(6, 10), p(6, 10)
    z = nf.compute((6, 20), lambda i, j: nf.select(j % 2 == 0, x[i, j // 2], y[i, j // 2]))
    k.check(z, [x, y])
    k.check(nf.compute((3, 5), lambda i, j: x[2 * i, 2 * j + 1]), [x])


def test_in_place():
    x, y = p(1001), p(1001)
    call = k.kernel(k.subgraph_of([x + y], [x, y]))
    a, b = k.random_array(x), k.random_array(y) + 1
    want = a + b
    call(a, b, a)
    np.testing.assert_array_equal(a, want)


# ------------------------------------------------------------------------------------------- data-dependent reads


def test_gather():
    table, ids = p(11, 19), p(5, 3, dtype="int64")
    good = np.array([[0, 10, 3], [4, 4, 4], [1, 2, 3], [9, 8, 7], [0, 0, 0]])
    rows = nf.compute((5, 3, 19), lambda i, j, h: table[ids[i, j], h])
    k.check(rows, [table, ids], feeds={ids: good})
    k.check(nf.compute((19, 5, 3), lambda h, i, j: table[ids[i, j], h]), [table, ids], feeds={ids: good})


def test_a_lookup_under_a_condition_that_differs_from_lane_to_lane():
    x, y, table, ids = p(32, 40), p(32, 40), p(11), p(32, dtype="int64")
    feeds = {ids: np.arange(32) % 11}
    both = nf.compute((32, 40), lambda i, j: (x[i, j] > 0.0) & (table[ids[i]] > 0.0))
    k.check(both, [x, table, ids], feeds=feeds)
    k.check(
        nf.compute((32, 40), lambda i, j: nf.select(y[i, j] > 0.5, table[ids[i]], 0.25)), [y, table, ids], feeds=feeds
    )
    r = nf.axis(40)
    either = nf.compute((32,), lambda i: nf.sum(nf.cast((x[i, r] > 0.0) | (table[ids[i]] > 0.0), "float32"), axis=[r]))
    k.check(either, [x, table, ids], feeds=feeds)


LOOKUPS = {
    "an element": lambda i, j, m, t, e, ids: m[i, j] + t[ids[i, j]],
    "a row": lambda i, j, m, t, e, ids: m[i, j] + t[ids[i, 0]],
    "a column": lambda i, j, m, t, e, ids: m[i, j] * t[ids[0, j]],
    "an embedding": lambda i, j, m, t, e, ids: m[i, j] + e[ids[i, 1], j],
    "under a condition": lambda i, j, m, t, e, ids: nf.select(i < j, m[i, j] + e[ids[i, 1], j], 0.5),
}


@pytest.mark.parametrize("body", LOOKUPS.values(), ids=LOOKUPS)
def test_a_contraction_followed_by_a_lookup(body):
    """As the bias of a relative position: whatever the lanes go along, each element has an index of its own."""
    a, b, table, rows, ids = p(32, 50), p(50, 24), p(11), p(11, 24), p(32, 24, dtype="int64")
    feeds = {ids: np.arange(32 * 24).reshape(32, 24) % 11}
    product = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b)
    y = nf.compute((32, 24), lambda i, j: body(i, j, product, table, rows, ids))
    k.check(y, [a, b, table, rows, ids], feeds=feeds, scale=8.0)


@pytest.mark.parametrize("bad", [-1, 11, 1 << 40, -(1 << 40)])
def test_a_bad_index_fails_and_reads_nothing(bad):
    table, ids = p(11, 19), p(5, dtype="int64")
    call = k.kernel(k.subgraph_of([nf.compute((5, 19), lambda i, h: table[ids[i], h])], [table, ids]))
    index = empty((5,), "int64")
    index[...] = [0, 1, 2, bad, 4]
    with pytest.raises(Exception, match="index out of range: input 0 has extent 11"):
        call(k.random_array(table), index, empty((5, 19), "float32"))


# ------------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("shape", [(1, 1), (37, 53), (5, 200), (300, 3), (2, 3000), (64, 16)])
@pytest.mark.parametrize("op", ["sum", "max", "min", "prod", "argmax", "argmin"])
def test_reducers(op, shape):
    x = p(*shape)
    values = k.random_array(x, 0.9, 1.1)
    for axis in (0, 1):
        k.check(getattr(nf, op)(x, axis=axis), [x], feeds={x: values})


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_reductions_of_every_dtype(dtype):
    x = p(37, 53, dtype=dtype)
    for axis in (0, 1):
        k.check(nf.sum(x, axis=axis), [x], scale=4.0)
        k.check(nf.max(x, axis=axis), [x])
        k.check(nf.argmin(x, axis=axis), [x])


def test_first_extreme_wins():
    x = p(3, 100)
    values = np.zeros((3, 100), np.float32)
    values[0, [5, 50]] = 1.0
    values[1, :] = -np.inf
    values[2, 3], values[2, 2] = 0.0, -0.0
    k.check(nf.argmax(x, axis=1), [x], feeds={x: values})
    k.check(nf.argmin(x, axis=1), [x], feeds={x: values})


def test_reductions_with_producer_and_epilogue():
    x, y = p(30, 70), p(30)
    total = nf.sum(nf.exp(x), axis=1)
    k.check([total, nf.log(total) + y], [x, y])
    total = nf.sum(x * x, axis=0)
    k.check(nf.sqrt(total), [x])


def test_sum_of_everything():
    for n in (1, 15, 100_003):
        x = p(n)
        k.check(nf.sum(x), [x], scale=10.0)


@pytest.mark.parametrize("splits", [1, 2, 3, 7])
@pytest.mark.parametrize("lane", ["output", "reduced"])
@pytest.mark.parametrize("shape", [(50, 37), (40, 129)])
def test_reduction_schedules(splits, lane, shape):
    x = p(*shape)
    for op in ("sum", "argmax"):
        for axis in (0, 1):
            out = getattr(nf, op)(x, axis=axis)
            knobs = {"splits": splits, "lane": lane, "lanes": 8, "unroll": 2, "parallel": True}
            k.check(out, [x], k.scheduled(k.subgraph_of([out], [x]), **knobs))


def test_reproducible():
    x = p(100_000)
    call = k.kernel(k.subgraph_of([nf.sum(x)], [x]))
    a, first, again = k.random_array(x), empty((), "float32"), empty((), "float32")
    call(a, first)
    for _ in range(5):
        call(a, again)
        assert first.tobytes() == again.tobytes()


# ---------------------------------------------------------------------------------------------------- refusals


def test_schedules_that_do_not_fit():
    x, a, b = p(8, 8), p(8, 8), p(8, 8)
    y = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b)
    product, total, plain = (k.subgraph_of([o], i) for o, i in ((y, [a, b]), (nf.sum(x), [x]), (x + 1.0, [x])))
    default = {s: default_schedule(s, k.TARGET) for s in (product, total, plain)}
    wrong = [
        (plain, default[total], "does not fit a map"),
        (total, default[plain], "does not fit"),
        (total, default[product], "no sum of products"),
        (total, k.changed(default[total], lane="output"), "no such axis"),
        (product, k.changed(default[product], tile_rows=14, vectors=20), "no register tile"),
        (product, default_schedule(product, k.TARGET).__class__("contraction"), "lacks the knob"),
    ]
    for subgraph, schedule, message in wrong:
        with pytest.raises(ScheduleError, match=message):
            codegen.lower(subgraph, schedule, k.TARGET, "f")


def test_several_kernels_in_a_module():
    x = p(10)
    subgraphs = [k.subgraph_of([x + float(n)], [x]) for n in range(3)]
    kernels = [codegen.lower(s, default_schedule(s, k.TARGET), k.TARGET, f"k{n}") for n, s in enumerate(subgraphs)]
    a, out = k.random_array(x), empty((10,), "float32")
    for n, call in enumerate(k.loaded(kernels)):
        call(a, out)
        np.testing.assert_allclose(out, a + n, rtol=1e-6)
    with pytest.raises(nf.RuntimeFault, match="no function named 'absent'"):
        device().load(codegen.build(kernels, k.TARGET)).address("absent")
    for format, word in (("tir", "def k0"), ("llvm", "define"), ("asm", ".text")):
        assert word in codegen.source(kernels, k.TARGET, format)


@pytest.mark.parametrize("rows", [1, 5])
def test_indices_that_run_down_and_wrap(rows):
    """TVM's own lowering of `//` and `%` is wrong for some of these, along the lanes and along the loops."""
    a = p(4)
    for divisor in (3, 4, 7):
        y = nf.compute(
            (9, 7 * rows),
            lambda i, j, d=divisor: a[((6 - i) // d) % 4] + a[((6 - j) // d) % 4] + a[(-3 * j) % d % 4],
        )
        k.check([y, nf.compute(y.shape, lambda i, j, d=divisor: nf.cast((3 * i - 5 * j) // d, "float32"))], [a])


def test_a_value_computed_twice_is_the_same_to_the_last_bit():
    x, y = p(50, 40), p(50, 40)
    z = x * y + x
    top = nf.max(z, axis=1)
    again = nf.compute((50, 40), lambda i, j: nf.select(x[i, j] * y[i, j] + x[i, j] == top[i], 1.0, 0.0))
    a, b = k.random_array(x), k.random_array(y)
    first, hits = empty((50,), "float32"), empty((50, 40), "float32")
    k.kernel(k.subgraph_of([top], [x, y]))(a, b, first)
    k.kernel(k.subgraph_of([again], [x, y, top]))(a, b, first, hits)
    assert (hits.sum(axis=1) >= 1).all()


def test_a_condition_on_what_was_not_read():
    """Lanes a mask leaves out must be defined: an address chosen by a comparison of them is still computed."""
    x, y, z = p(6, 3, 6), p(4, 5), p(8, 5, 4)
    product = nf.compute(
        (6, 3, 6),
        lambda i, j, c: nf.select(
            (j == 2) & (c >= 1), nf.select(x[i, 2, c] > y[i % 4, c - 1], z[j, c - 1, i % 4], z[j, c - 1, 0]), 0.0
        ),
    )
    k.check(nf.sum(product, axis=1), [x, y, z])
    k.check(product, [x, y, z])


def test_floats_that_no_integer_holds():
    x = p(21)
    values = np.linspace(-5e9, 5e9, 21, dtype=np.float32)
    values[3], values[7] = np.nan, np.inf
    call = k.kernel(k.subgraph_of([nf.select(nf.cast(x, "int32") == 7, x, 1.0)], [x]))
    a, out = empty((21,), "float32"), empty((21,), "float32")
    a[...] = values
    call(a, out)
    assert (out == 1.0).all()


def test_code_follows_from_structure_alone():
    """Expressions are interned: those that other kernels made before must not change the order of the statements."""

    def code(body):
        a, b = p(64, 48), p(64, 48)
        subgraph = k.subgraph_of([nf.compute((48, 64), lambda i, j: body(i, j, a, b))], [a, b])
        lowered = codegen.lower(subgraph, default_schedule(subgraph, k.TARGET), k.TARGET, "f")
        return nest_of(subgraph).fused(), codegen.source([lowered], k.TARGET)

    before = code(lambda i, j, a, b: a[(i * 64 + j) // 48, (i * 64 + j) % 48] * b[j, i])
    kept, first = code(lambda i, j, a, b: a[j, i] + b[j, i] * 3.0)
    del before, kept
    gc.collect()
    assert code(lambda i, j, a, b: a[j, i] + b[j, i] * 3.0)[1] == first

"""`evaluate` against a brute-force interpreter on random programs, and against mathematics on named ones."""

import time
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from neoflow.errors import ExpressionError, RuntimeFault
from neoflow.expr import dsl as nf
from neoflow.expr.interp import body, evaluate
from neoflow.expr.ir import Cast, Const, postorder
from neoflow.expr.tensor import Compute, topological
from tests import reference
from tests.strategies import random_program

RNG = np.random.default_rng


def normal(shape, dtype="float32", seed=0):
    return RNG(seed).standard_normal(shape).astype(dtype)


def one(tensor, feeds, dtype=None):
    (result,) = evaluate(tensor, feeds, dtype)
    assert result.shape == tensor.shape and result.flags.c_contiguous and result.flags.writeable
    return result


def agree(program, dtype, rtol, atol):
    got = evaluate(program.outputs, program.feeds, dtype)
    want = reference.run(program.outputs, program.feeds, dtype)
    for t, a, b in zip(program.outputs, got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape == t.shape
        exact = a.dtype.kind != "f"
        np.testing.assert_allclose(
            a, b, rtol=0 if exact else rtol, atol=0 if exact else atol, err_msg=f"{t.name} of\n{program}"
        )


# ------------------------------------------------------------------------------------------------- random programs


@pytest.mark.parametrize("block", range(6))
def test_random_programs_equal_brute_force(block):
    for seed in range(25 * block, 25 * block + 25):
        agree(random_program(seed), "float64", 1e-9, 1e-9)


@pytest.mark.parametrize("block", range(2))
def test_random_programs_without_jumps_in_their_own_precision(block):
    for seed in range(5000 + 15 * block, 5015 + 15 * block):
        agree(random_program(seed, jumps=False), None, 2e-3, 2e-3)


@pytest.mark.parametrize("block", range(2))
def test_random_programs_in_pieces(block, monkeypatch):
    """With a limit of a few elements every reduction and every tensor is done piece by piece."""
    monkeypatch.setattr(body, "LIMIT", 5 + 20 * block)
    for seed in range(6000 + 20 * block, 6020 + 20 * block):
        agree(random_program(seed, points=200), "float64", 1e-9, 1e-9)


@pytest.mark.slow
def test_many_random_programs_equal_brute_force():
    for seed in range(10_000, 13_000):
        agree(random_program(seed), "float64", 1e-9, 1e-9)


def test_a_seed_gives_one_program():
    a, b = random_program(42), random_program(42)
    assert str(a) == str(b)
    for x, y in zip(a.feeds.values(), b.feeds.values(), strict=True):
        np.testing.assert_array_equal(x, y)
    assert str(a) != str(random_program(43))


def test_random_programs_use_the_whole_language():
    from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS, REDUCERS

    seen, ranks, nested, deep = set(), set(), 0, 0
    for seed in range(250):
        computes = [t for t in topological(random_program(seed).outputs) if isinstance(t, Compute)]
        deep += len(computes) >= 4
        for t in computes:
            ranks.add(t.rank)
            for e in postorder(t.definition.body):
                seen.add(getattr(e, "fn", getattr(e, "op", type(e).__name__)))
                nested += hasattr(e, "op") and any(hasattr(c, "op") for c in postorder(e.body))
    written = {n for n, row in FUNCTIONS.items() if row.typing != "single"}  # which precision alone asks for
    assert seen >= {*written, *REDUCERS, *ARG_REDUCERS, "Select", "Cast", "Read"}
    assert ranks == {0, 1, 2, 3, 4, 5} and nested > 50 and deep > 100


# ---------------------------------------------------------------------------------------------- select and guards


def test_guarded_reads_outside_their_tensor():
    x = nf.placeholder((4,), name="x")
    y = nf.compute((8,), lambda i: nf.select((i >= 2) & (i < 6), x[i - 2], -1.0))
    np.testing.assert_array_equal(one(y, {x: np.arange(4, dtype=np.float32)}), np.float32([-1, -1, 0, 1, 2, 3, -1, -1]))


def test_guarded_reads_too_far_outside_for_a_border():
    x = nf.placeholder((3,), name="x")
    y = nf.compute((4,), lambda i: nf.select(i < 1, x[100_000 * i], 5.0))
    np.testing.assert_array_equal(one(y, {x: np.float32([7, 8, 9])}), np.float32([7, 5, 5, 5]))


def test_the_branch_not_taken_leaks_no_nan_and_no_warning():
    x = nf.placeholder((3,), name="x")
    y = nf.compute((3,), lambda i: nf.select(x[i] > 0.0, nf.log(x[i]) / x[i], 0.0))
    k = nf.axis(3, "k")
    total = nf.compute((), lambda: nf.sum(nf.select(x[k] > 0.0, x[k] * nf.log(x[k]), 0.0), axis=[k]))
    feeds = {x: np.float32([-1, 0, 1])}
    np.testing.assert_array_equal(one(y, feeds), np.float32([0, 0, 0]))
    assert one(total, feeds) == 0


def test_infinities_keep_the_order_of_the_expression():
    """0 * inf is NaN even if the factors could be summed apart first; a masked one is 0."""
    a, b = nf.placeholder((2,), name="a"), nf.placeholder((2,), name="b")
    k = nf.axis(2, "k")
    y = nf.compute((2,), lambda i: nf.sum(a[k] * b[i], axis=[k]))
    z = nf.compute((2,), lambda i: nf.sum(nf.select(i < 1, a[k] * b[i], 0.0), axis=[k]))
    feeds = {a: np.float32([1, 2]), b: np.float32([3, np.inf])}
    np.testing.assert_array_equal(one(y, feeds), np.float32([9, np.inf]))
    np.testing.assert_array_equal(one(z, feeds), np.float32([9, 0]))


# --------------------------------------------------------------------------------------------- data-dependent reads


def gather():
    ids = nf.placeholder((3,), "int64", name="ids")
    table = nf.placeholder((5, 2), name="table")
    return ids, table, normal((5, 2))


def test_a_condition_on_one_factor_hides_no_nan_of_another():
    """A NaN times the 0 that is chosen is NaN, also where sums of products are matrix products."""
    x, r = nf.placeholder((1,), name="x"), nf.axis(3, "r")
    first = nf.select(0 - r >= 0, x[0 - r], 0.0)
    second = nf.select((4 * r - 1 >= 0) & (4 * r - 1 < 1), x[4 * r - 1], 0.0)
    y = nf.compute((1,), lambda i: nf.sum(first * second, axis=[r]))
    for value, wanted in ((np.nan, np.nan), (np.inf, np.nan), (2.0, 0.0)):
        np.testing.assert_array_equal(evaluate([y], {x: np.array([value], np.float32)})[0], [wanted])


def test_a_data_dependent_index_outside_is_a_clear_error():
    ids, table, values = gather()
    y = nf.compute((3, 2), lambda b, h: table[ids[b], h], name="y")
    np.testing.assert_array_equal(one(y, {ids: np.array([4, 0, 4]), table: values}), values[[4, 0, 4]])
    text = (
        r"test_interp.py:\d+: read `table\[ids\[b\], h\]` of y leaves table: index 0 is 5 at b=1, h=0, but the extent"
    )
    with pytest.raises(RuntimeFault, match=text):
        evaluate(y, {ids: np.array([1, 5, -1]), table: values})
    with pytest.raises(RuntimeFault, match="index 0 is -1"):
        evaluate(y, {ids: np.array([1, 4, -1]), table: values})


def test_a_guard_protects_a_data_dependent_index():
    ids, table, values = gather()
    feeds = {ids: np.array([1, 7, -2]), table: values}
    for y in (
        nf.compute((3, 2), lambda b, h: nf.select((ids[b] >= 0) & (ids[b] < 5), table[ids[b], h], 9.0)),
        nf.compute((3, 2), lambda b, h: nf.select((ids[b] < 0) | ~(ids[b] < 5), 9.0, table[ids[b], h])),
    ):
        np.testing.assert_array_equal(one(y, feeds), np.float32([values[1], [9, 9], [9, 9]]))
    swapped = nf.compute((3, 2), lambda b, h: nf.select(ids[b] < 5, table[ids[b], h], 9.0), name="swapped")
    with pytest.raises(RuntimeFault, match=r"index 0 is -2 at b=2"):
        evaluate(swapped, feeds)


def test_a_guard_inside_a_condition_protects_the_rest_of_it():
    ids, table, values = gather()
    feeds = {ids: np.array([1, 7, 2]), table: values}
    y = nf.compute((3,), lambda b: nf.select((ids[b] < 5) & (table[ids[b] % 7, 0] < 100.0), 1.0, 0.0))
    np.testing.assert_array_equal(one(y, feeds), np.float32([1, 0, 1]))
    k = nf.axis(3, "k")
    z = nf.compute((), lambda: nf.sum(nf.select(ids[k] < 5, table[ids[k], 0] * table[ids[k], 1], 0.0), axis=[k]))
    np.testing.assert_allclose(one(z, feeds), values[[1, 2]].prod(axis=1).sum(), rtol=1e-6)


def test_integer_division_rounds_down_and_by_zero_gives_zero():
    n = nf.placeholder((4,), "int32", name="n")
    y = nf.compute((4,), lambda i: 12 // n[i], name="y")
    z = nf.compute((4,), lambda i: 12 % n[i], name="z")
    feeds = {n: np.int32([5, 0, -5, 7])}
    np.testing.assert_array_equal(one(y, feeds), np.int32([2, 0, -3, 1]))
    np.testing.assert_array_equal(one(z, feeds), np.int32([2, 0, -3, 5]))
    outside = nf.where(nf.not_equal(n, 0), nf.compute((4,), lambda i: n[i] // n[i]), 9)
    np.testing.assert_array_equal(one(outside, feeds), np.int32([1, 9, 1, 1]))


def test_a_guard_protects_a_division_by_an_axis_inside_a_product():
    x = nf.placeholder((4,), name="x")
    k = nf.axis(4, "k")
    divides = nf.compute(
        (6,), lambda i: nf.sum(nf.select((k != 0) & (i % k == 0), x[k] * nf.cast(i, "float32"), 0.0), axis=[k])
    )
    want = [sum(k * i for k in range(1, 4) if i % k == 0) for i in range(6)]
    np.testing.assert_array_equal(one(divides, {x: np.arange(4, dtype=np.float32)}), np.float32(want))


# ------------------------------------------------------------------------------------------------------ reductions


def test_nested_reductions_in_bodies_indices_and_conditions():
    x = nf.placeholder((4, 5), name="x")
    values = normal((4, 5))
    i, k, m = nf.axis(4, "i"), nf.axis(5, "k"), nf.axis(5, "m")
    best = nf.compute((4,), lambda r: nf.max(x[r, k] * nf.sum(nf.exp(x[r, m]), axis=[m]), axis=[k]))
    np.testing.assert_allclose(
        one(best, {x: values}), (values * np.exp(values).sum(1, keepdims=True)).max(1), rtol=1e-5
    )
    at = nf.compute((4,), lambda r: x[r, nf.argmax(x[r, k], axis=[k])])
    np.testing.assert_array_equal(one(at, {x: values}), values.max(1))
    above = nf.compute((5,), lambda c: nf.select(nf.sum(x[i, c], axis=[i]) > 0.0, 1.0, 0.0))
    np.testing.assert_array_equal(one(above, {x: values}), (values.sum(0) > 0).astype(np.float32))
    double = nf.compute((), lambda: nf.sum(nf.sum(x[i, k] * x[i, k], axis=[k]), axis=[i]))
    np.testing.assert_allclose(one(double, {x: values}), (values**2).sum(), rtol=1e-6)


def test_infinities_in_a_sum_of_sums_done_in_pieces(monkeypatch):
    monkeypatch.setattr(body, "LIMIT", 6)
    a, b = nf.placeholder((3, 4), name="a"), nf.placeholder((4, 5), name="b")
    j, k = nf.axis(3, "j"), nf.axis(4, "k")
    y = nf.compute((5,), lambda r: nf.sum(nf.sum(a[j, k] * b[k, r], axis=[k]), axis=[j]))
    feeds = {a: np.ones((3, 4), np.float32), b: np.ones((4, 5), np.float32)}
    np.testing.assert_array_equal(one(y, feeds), np.full(5, 12, np.float32))
    feeds[b][2, 3] = np.inf
    np.testing.assert_array_equal(one(y, feeds), np.float32([12, 12, 12, np.inf, 12]))


def test_argmax_takes_the_first_of_equals_and_the_first_nan():
    x = nf.placeholder((3, 4), name="x")
    nan = np.nan
    feeds = {x: np.float32([[1, 3, 3, 0], [-2, -2, -2, -2], [0, nan, 5, nan]])}
    np.testing.assert_array_equal(one(nf.argmax(x, axis=1), feeds), [1, 0, 1])
    np.testing.assert_array_equal(one(nf.argmin(x, axis=1), feeds), [3, 0, 1])
    assert one(nf.argmax(x, axis=0), feeds).dtype == np.int64


def test_nan_goes_through_relu_and_extremes():
    x = nf.placeholder((2,), name="x")
    feeds = {x: np.float32([np.nan, -1])}
    for t in (nf.relu(x), nf.maximum(x, -5.0), nf.minimum(-5.0, x)):
        assert np.isnan(one(t, feeds)[0]) and not np.isnan(one(t, feeds)[1])
    assert np.isnan(one(nf.max(x), feeds)) and np.isnan(one(nf.min(x), feeds))


def test_a_reduction_over_an_axis_its_body_does_not_use():
    x = nf.placeholder((3,), name="x")
    k, m = nf.axis(4, "k"), nf.axis(2, "m")
    feeds = {x: np.float32([1, -2, 3])}
    assert one(nf.compute((), lambda: nf.sum(x[1], axis=[k])), feeds) == -8
    assert one(nf.compute((), lambda: nf.sum(x[1] * x[2], axis=[k, m])), feeds) == -48
    assert one(nf.compute((), lambda: nf.prod(x[1], axis=[k])), feeds) == 16
    assert one(nf.compute((), lambda: nf.argmin(x[1], axis=[k])), feeds) == 0


# ---------------------------------------------------------------------------------------------------- element types


def test_integers_are_exact_wrap_and_round_down():
    n = nf.placeholder((4,), "int64", name="n")
    values = np.array([(1 << 62) + 1, -7, 7, 3])
    feeds = {n: values}
    np.testing.assert_array_equal(one(n - 1, feeds), values - 1)
    np.testing.assert_array_equal(one(n // -2, feeds), values // -2)
    np.testing.assert_array_equal(one(n % -3, feeds), values % -3)
    k = nf.axis(4, "k")
    assert one(nf.compute((), lambda: nf.sum(n[k] * n[k] * 3, axis=[k])), feeds) == np.sum(values * values * 3)
    small = nf.placeholder((3,), "int8", name="small")
    bytes_ = np.int8([100, 100, -3])
    assert one(nf.sum(small), {small: bytes_}) == bytes_.sum(dtype=np.int8)
    np.testing.assert_array_equal(one(small + small, {small: bytes_}), np.int8([-56, -56, -6]))
    r = nf.axis(3, "r")
    assert one(nf.compute((), lambda: nf.sum(small[r] * small[r], axis=[r])), {small: bytes_}).dtype == np.int8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_computes_in_float32_and_rounds_what_it_stores(dtype):
    stored = np.dtype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    n = 5000
    x = nf.placeholder((n,), dtype, name="x")
    values = RNG(1).uniform(0, 1, n).astype(stored)
    k = nf.axis(n, "k")
    total = one(nf.compute((), lambda: nf.sum(x[k], axis=[k])), {x: values})
    assert total.dtype == stored
    assert total == values.astype(np.float64).sum().astype(stored)
    inner = one(nf.compute((n,), lambda i: (x[i] + 2048.0) - 2048.0), {x: values})  # one tensor: not rounded between
    np.testing.assert_array_equal(inner, ((values.astype("f4") + np.float32(2048)) - np.float32(2048)).astype(stored))
    outer = one((x + 2048.0) - 2048.0, {x: values})  # two tensors: the first is rounded
    assert np.unique(outer.astype("f4")).size < 4
    inside = nf.compute((n,), lambda i: nf.cast(nf.cast(x[i], "float32") * 1.001, dtype))
    np.testing.assert_array_equal(one(inside, {x: values}), (values.astype("f4") * np.float32(1.001)).astype(stored))
    assert one(x * 2.0, {x: values}, "float64").dtype == np.float64


def test_random_half_precision_programs_equal_brute_force():
    for seed in range(10):
        agree_half(random_program(seed, dtype="float16", jumps=False, unary=("tanh", "relu"), reducers=("max", "sum")))


def agree_half(program):
    got, want = evaluate(program.outputs, program.feeds), reference.run(program.outputs, program.feeds)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=2e-2, atol=2e-2, err_msg=str(program))


def test_float64_for_everything():
    x = nf.placeholder((1000,), name="x")
    values = RNG(0).uniform(0, 1, 1000)
    y = nf.sum(nf.cast(nf.exp(x) * 0.1, "float32"))
    assert one(y, {x: values}, "float64") == pytest.approx((np.exp(values) * 0.1).sum(), rel=1e-14)
    assert one(y, {x: values.astype("f4")}, "float64").dtype == np.float64
    with pytest.raises(ExpressionError, match=r"dtype=None .* or 'float64', not 'float16'"):
        evaluate(y, {x: values}, "float16")


def test_casts():
    x = nf.placeholder((4,), name="x")
    feeds = {x: np.float32([-1.7, 1.7, 0, 300])}
    np.testing.assert_array_equal(one(nf.cast(x, "int32"), feeds), np.int32([-1, 1, 0, 300]))
    np.testing.assert_array_equal(one(nf.cast(x, "bool"), feeds), [True, True, False, True])
    np.testing.assert_array_equal(one(nf.cast(nf.cast(x, "int32"), "int8"), feeds), np.int8([-1, 1, 0, 44]))
    third = nf.compute((1,), lambda i: Cast("float32", Const(1 / 3, "float16")))
    assert one(third, {}) == np.float32(np.float16(1 / 3))


# ------------------------------------------------------------------------------------------------------------ feeds


def test_feeds_that_do_not_fit_are_refused_by_name():
    x, w = nf.placeholder((2, 3), name="x"), nf.parameter((3,), name="w")
    y = x * w
    good = np.zeros((2, 3), np.float32)
    with pytest.raises(ExpressionError, match=r"placeholder x \(float32\[2, 3\]\) is not fed; pass feeds={x: array}"):
        evaluate(y, {w: np.zeros(3, np.float32)})
    with pytest.raises(ExpressionError, match=r"parameter w \(float32\[3\]\) is not fed"):
        evaluate(y, {x: good})
    with pytest.raises(ExpressionError, match=r"x has shape \(2, 3\), the array fed for it \(3, 2\)"):
        evaluate(y, {x: good.T, w: np.zeros(3, np.float32)})
    with pytest.raises(ExpressionError, match=r"x is float32, the array fed for it float64; convert it: array.astype"):
        evaluate(y, {x: good.astype("f8"), w: np.zeros(3, np.float32)})
    with pytest.raises(ExpressionError, match=r"mul is computed, not fed"):
        evaluate(y, {x: good, w: np.zeros(3, np.float32), y: good})


def test_a_parameter_that_is_not_fed_takes_its_array():
    w = nf.parameter((3,), name="w", init=np.float32([1, 2, 3]))
    np.testing.assert_array_equal(one(w * 2.0, {}), np.float32([2, 4, 6]))
    np.testing.assert_array_equal(one(w * 2.0, {w: np.float32([1, 1, 1])}), np.float32([2, 2, 2]))
    drawn = nf.parameter((3,), name="drawn", init=lambda shape, generator: generator.random(shape))
    with pytest.raises(ExpressionError, match="parameter drawn"):
        evaluate(drawn, {})


def test_results_are_separate_from_feeds_and_from_each_other():
    x = nf.placeholder((2,), name="x")
    values = np.float32([1, 2])
    a, b, c = evaluate([x, x, nf.compute((2,), lambda i: x[i])], {x: values})
    for result in (a, b, c):
        result[:] = 0
    np.testing.assert_array_equal(values, [1, 2])


def test_plain_numbers_and_strided_arrays_may_be_fed():
    x = nf.placeholder((2, 3), name="x")
    t = nf.compute((3, 2), lambda i, j: x[1 - j, 2 - i])
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[::-2, ::2]
    np.testing.assert_array_equal(one(t, {x: values}), values[::-1, ::-1].T)
    np.testing.assert_array_equal(one(x, {x: [[1, 2, 3], [4, 5, 6]]}), np.float32([[1, 2, 3], [4, 5, 6]]))


# --------------------------------------------------------------------------------- contractions, speed and memory


def convolution(batch, channels, size, filters, stride=1, pad=0, dilation=1):
    x = nf.placeholder((batch, channels, size, size), name="x")
    w = nf.placeholder((filters, channels, 3, 3), name="w")
    out = (size + 2 * pad - 2 * dilation - 1) // stride + 1
    c, r, s = nf.axis(channels, "c"), nf.axis(3, "r"), nf.axis(3, "s")

    def body(b, o, p, q):
        h, v = stride * p + dilation * r - pad, stride * q + dilation * s - pad
        product = x[b, c, h, v] * w[o, c, r, s]
        if pad:
            product = nf.select((h >= 0) & (h < size) & (v >= 0) & (v < size), product, 0.0)
        return nf.sum(product, axis=[c, r, s])

    y = nf.compute((batch, filters, out, out), body, name="y")
    return y, {x: normal(x.shape, seed=1), w: normal(w.shape, seed=2)}


@pytest.mark.parametrize(("stride", "pad", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 1)])
def test_convolution_through_matrix_products(stride, pad, dilation):
    y, feeds = convolution(2, 3, 9, 4, stride, pad, dilation)
    np.testing.assert_allclose(
        one(y, feeds, "float64"), reference.run([y], feeds, "float64")[0], rtol=1e-12, atol=1e-12
    )


def test_contractions_with_strides_broadcasting_batches_and_three_factors():
    a, b, c = nf.placeholder((3, 6, 4), name="a"), nf.placeholder((5, 6), name="b"), nf.placeholder((4, 5), name="c")
    j, k = nf.axis(3, "j"), nf.axis(4, "k")
    programs = [
        nf.compute((3, 5), lambda i, r: nf.sum(a[i, 2 * j, k] * b[r, 2 * j + 1] * c[k, r], axis=[j, k])),
        nf.compute((3, 5), lambda i, r: nf.sum(a[i, 5 - j, k] * b[r, 3], axis=[j, k])),
        nf.compute((3, 6, 6), lambda i, p, q: nf.sum(a[i, p, k] * a[i, q, k], axis=[k])),
        nf.compute((6, 6), lambda p, q: -nf.sum(-(a[0, p, k] * a[0, p, k]) * c[k, q // 2], axis=[k])),
        nf.compute((5,), lambda r: nf.sum(nf.select((k + r) % 2 == 0, 0.0, c[k, r] * c[k, 4 - r]), axis=[k])),
        nf.compute((), lambda: nf.sum(c[k, j] * 0.5 * c[k, j + 1], axis=[j, k])),
    ]
    feeds = {t: normal(t.shape, seed=t.uid) for t in (a, b, c)}
    for got, want in zip(evaluate(programs, feeds, "float64"), reference.run(programs, feeds, "float64"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def measured(tensor, feeds):
    start = time.perf_counter()
    evaluate(tensor, feeds)
    seconds = time.perf_counter() - start
    tracemalloc.start()
    try:
        evaluate(tensor, feeds)
        return seconds, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_large_convolution_is_fast_and_small():
    seconds, peak = measured(*convolution(1, 64, 56, 64, pad=1))
    assert seconds < 2 and peak < 100 << 20


def test_a_large_reduction_that_is_no_contraction_stays_small():
    """4096 x 4096 x 8 absolute differences are 512 MiB at once."""
    x, y = nf.placeholder((4096, 8), name="x"), nf.placeholder((4096, 8), name="y")
    k = nf.axis(8, "k")
    t = nf.compute((4096,), lambda i: nf.max(nf.abs(x[i, k] - y[4095 - i, k]), axis=[k]))
    m = nf.axis(4096, "m")
    far = nf.compute((4096,), lambda i: nf.max(nf.sum(nf.abs(x[i, k] - y[m, k]), axis=[k]), axis=[m]))
    feeds = {x: normal(x.shape, seed=3), y: normal(y.shape, seed=4)}
    start = time.perf_counter()
    tracemalloc.start()
    try:
        got, _ = evaluate([far, t], feeds)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300 << 20 and time.perf_counter() - start < 10
    np.testing.assert_allclose(got[:16], np.abs(feeds[x][:16, None] - feeds[y][None]).sum(-1).max(-1), rtol=1e-5)

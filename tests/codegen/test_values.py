"""compiled == evaluated where the random programs never go: special values, overflow, casts, guards, large indices."""

import ml_dtypes
import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.nn import functional as F

pytestmark = pytest.mark.tvm
ULPS = {"float64": 8, "float32": 8, "float16": 1, "bfloat16": 1}
FREE_ZERO = ("relu", "maximum", "minimum")  # which of -0 and 0 is larger is not said
COMMON = ["float32", "bfloat16", "int32", "bool"]
RARE = [d for d in dt.NUMPY if d not in COMMON]
DTYPES = [*COMMON, *(pytest.param(d, marks=pytest.mark.slow) for d in RARE)]


def special(dtype):
    """The values at which something may go wrong."""
    kind = dt.NUMPY[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if dt.is_int(dtype):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array([low, high, low + 1, high - 1, low // 2, high // 2, 0, 1, -1, 2, -2, 7, -7, 100], kind)
    info = ml_dtypes.finfo(kind)
    small = [float(info.smallest_subnormal), float(info.tiny), float(info.eps)]
    plain = [0.0, 0.5, 1.0, 1.5, 2.5, 3.7, 10.5, 88.0, 1000.0, *small, np.inf]
    return np.array([np.nan, *plain, *(-v for v in plain)], np.float64).astype(kind)


def mixed(dtype, shape, rng):
    """Special values among plain ones."""
    values = rng.choice(special(dtype), shape)
    if dt.is_float(dtype):
        values = np.where(rng.random(shape) < 0.5, values, (rng.standard_normal(shape) * 3).astype(values.dtype))
    return values


def agree(named, *cases, signed_zero=True):
    """Integers and conditions are equal, floats near, NaN and infinities in the same places, zeros of one sign; of each
    case, which says what is fed."""
    outputs = list(named.values())
    compiled = nf.compile(outputs, list(cases[0]))
    for feeds in cases:
        for name, t, a, b in zip(named, outputs, compiled(*feeds.values()), nf.evaluate(outputs, feeds), strict=True):
            same(name, t, a, b, signed_zero and name not in FREE_ZERO)


def same(name, t, a, b, signed_zero):
    if not dt.is_float(t.dtype):
        np.testing.assert_array_equal(a, b, err_msg=str(name))
        return
    info = ml_dtypes.finfo(dt.NUMPY[t.dtype])
    a, b = a.astype(np.float64), b.astype(np.float64)
    bound = {"rtol": ULPS[t.dtype] * float(info.eps), "atol": ULPS[t.dtype] * float(info.smallest_subnormal)}
    np.testing.assert_allclose(a, b, **bound, err_msg=str(name))
    if signed_zero:
        at = (a == 0) & (b == 0)
        np.testing.assert_array_equal(np.signbit(a[at]), np.signbit(b[at]), err_msg=f"zeros of {name}")


def takes(row, dtype):
    floats = {"real": dt.is_float(dtype), "single": dtype == "float32"}
    return {"arith": dtype != "bool", **floats, "integer": False, "compare": True}.get(row.typing, dtype == "bool")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (131,), pytest.param((5, 33), marks=pytest.mark.slow)])
def test_every_function(dtype, shape):
    """Of all pairs of special values; `//` and `%` have tests of their own."""
    rng = np.random.default_rng(0)
    x, y = (nf.placeholder(shape, dtype, name=n) for n in "xy")
    named = {}
    for name, row in FUNCTIONS.items():
        if takes(row, dtype):
            named[name] = dsl.apply(name, *(x, y)[: row.arity])
    for _ in range(1 if len(shape) == 2 else 2):
        feeds = {t: mixed(dtype, shape, rng) for t in (x, y)}
        agree(named, feeds)
        if len(shape) == 2:
            turned = {}
            for n, t in named.items():
                turned[n] = nf.compute(shape[::-1], lambda i, j, t=t: t[j, i])
            agree(turned, feeds)


@pytest.mark.parametrize("dtype", ["float32", "int32", pytest.param("int64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(), (35,)])
def test_a_constant_operand(dtype, shape):
    """TVM folds constants by rules that hold for numbers without NaN, overflow and -0."""
    x = nf.placeholder(shape, dtype, name="x")
    constants = [0.0, -0.0, 1e-46, 1.0, -1.5, np.nan, np.inf, 1e39] if dt.is_float(dtype) else [0, 1, -1]
    constants += [] if dt.is_float(dtype) else [np.iinfo(dtype).max, np.iinfo(dtype).min + (dtype == "int64")]
    named = {}
    for fn in ("add", "sub", "mul", "div", "lt", "le", "eq", "ne", "maximum", "minimum"):
        if takes(FUNCTIONS[fn], dtype):
            named |= {(fn, "x", str(c)): dsl.apply(fn, x, c) for c in constants}
            named |= {(fn, str(c), "x"): dsl.apply(fn, c, x) for c in constants}
    every = special(dtype)
    values = [np.resize(every, shape)] if shape else list(every)
    agree(named, *({x: np.asarray(value)} for value in values), signed_zero=False)


@pytest.mark.parametrize("dtype", ["int32", "int64", pytest.param("int16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [1, 67])
def test_integers_wrap_around(dtype, size):
    """LLVM is told that 32 and 64 bits do not overflow, unless care is taken."""
    rng = np.random.default_rng(size)
    x, y = (nf.placeholder((size,), dtype, name=n) for n in "xy")
    named = {
        "next": nf.select(y + x < x, 1, 0),
        "halved": x * y // y,
        "square": nf.select(x * x < 0, 1, 0),
        "absolute": nf.select(nf.abs(x * 1) < 0, 1, 0),
        "own opposite": nf.select(nf.equal(-x, x), 1, 0),
        "widened": nf.cast(x + y, "int64") + nf.cast(x * y, "int64"),
        "float": nf.cast(x * 3 - y, "float64"),
        "order": nf.select(x - y < 0, 1, 0),
        "larger": nf.maximum(x - y, x),
    } | {op: getattr(nf, op)(x * 3 - y, axis=0) for op in ("sum", "prod", "max", "min", "argmax", "argmin")}
    for _ in range(8 if size == 1 else 2):
        agree(named, {t: mixed(dtype, (size,), rng) for t in (x, y)})


@pytest.mark.parametrize("dtype", [d if d == "float32" else pytest.param(d, marks=pytest.mark.slow) for d in dt.FLOATS])
@pytest.mark.parametrize("shape", [(3,), (131,), (5, 33)])
def test_extremes_and_their_positions(dtype, shape):
    """The first NaN of either sign wins; -0 and 0 are a tie."""
    rng = np.random.default_rng(1)
    x = nf.placeholder(shape, dtype, name="x")
    named = {
        (op, d): getattr(nf, op)(x, axis=d) for op in ("max", "min", "argmax", "argmin") for d in range(len(shape))
    }
    kind, whole = dt.NUMPY[dtype], rng.integers(-3, 4, shape).astype(np.float64)
    for values in (
        mixed(dtype, shape, rng),
        rng.choice([0.0, -0.0], shape),
        np.where(rng.random(shape) < 0.1, -np.nan, whole),
        np.where(rng.random(shape) < 0.1, np.nan, whole),
        np.full(shape, -np.inf),
        np.full(shape, np.nan),
    ):
        agree(named, {x: np.asarray(values).astype(kind)}, signed_zero=False)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", pytest.param("float64", marks=pytest.mark.slow)])
def test_casts(dtype):
    """From and through every type; a float that does not fit an integer gives what NumPy gives here."""
    more = [65519, 65520, 127.9, 128, -129, 2147483520.0, 2147483648.0, 1e10, 1 + 2**-8, 1 + 3 * 2**-8, 3.39e38]
    values = special(dtype)
    if dt.is_float(dtype):
        values = np.concatenate([values, np.array(more, values.dtype)])
    x = nf.placeholder(values.shape, dtype, name="x")
    named = {d: nf.cast(x, d) for d in dt.NUMPY}
    named |= {(d, e): nf.cast(nf.cast(x, d), e) for d in dt.NUMPY for e in ("int8", "float16", "bfloat16", "bool")}
    agree(named, {x: values})


def test_nan_stays_nan_in_bfloat16():
    x = nf.placeholder((4,), name="x")
    bits = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000], np.uint32)
    (found,) = nf.compile([nf.cast(x, "bfloat16")], [x])(bits.view(np.float32))
    assert np.isnan(found.astype(np.float32)).all()


def test_a_narrow_constant_is_rounded():
    for dtype in ("float16", "bfloat16"):
        x = nf.placeholder((3,), dtype, name="x")
        values = np.array([0.1, 0.2, 0.3]).astype(dt.NUMPY[dtype])
        agree({dtype: nf.equal(x, 0.1)}, {x: values})


@pytest.mark.parametrize("n", [1, 17, 131])
def test_guards_and_comparisons(n):
    rng = np.random.default_rng(n)
    x, y, table = nf.placeholder((n,), name="x"), nf.placeholder((n,), name="y"), nf.placeholder((4,), name="t")
    ids, narrow = nf.placeholder((n,), "int32", name="ids"), nf.placeholder((n,), "int8", name="narrow")
    every = special("float32")
    named = {
        "log": nf.select(x > 0, nf.log(x), 0.0),
        "quotient": nf.select(nf.not_equal(y, 0.0), x / y, 7.0),
        "previous": nf.compute((n,), lambda i: nf.select(i > 0, x[i - 1], 0.0)),
        "nested": nf.compute((n,), lambda i: nf.select(i > 0, nf.select(x[i - 1] > 0, nf.log(x[i - 1]), y[i]), 1.0)),
        "not": nf.compute((n,), lambda i: nf.select(~((i < 1) | (i > n - 2)), x[i - 1] * x[i + 1], 0.5)),
        "table": nf.compute((n,), lambda i: nf.select((ids[i] < 4) & (ids[i] >= 0), table[ids[i]], 0.0)),
        "narrow": nf.compute(
            (n,), lambda i: nf.select(narrow[i] < 4, nf.select(narrow[i] >= 0, table[narrow[i]], 1.0), 0.0)
        ),
        "not less": nf.select(~(x < y), 1, 0),
        "unordered": nf.select(~(x <= y) & ~(x > y), 1, 0),
        "nan": nf.select(nf.not_equal(x, x), 1.0, x),
        "itself": nf.select(nf.equal(x, x), x - x, x / x),
        "conditions": nf.select(x > 0, y > 0, x < y),
    }
    feeds = {x: np.resize(every, n), y: np.resize(every[::-1], n), table: np.float32([1, 2, 3, 4])}
    feeds |= {ids: rng.integers(-3, 9, n).astype(np.int32), narrow: rng.integers(-3, 9, n).astype(np.int8)}
    agree(named, feeds, signed_zero=False)


@pytest.mark.parametrize("n", [1, 5, 40])
def test_large_index_arithmetic(n):
    """Index arithmetic is int64, also on the way to a small result."""
    k, x = nf.axis(9, "k"), nf.placeholder((7,), name="x")
    named = {
        "product": nf.compute((n,), lambda i: i * (1 << 31) + 7),
        "float": nf.compute((n,), lambda i: nf.cast(i * (1 << 30), "float64")),
        "quotient": nf.compute((n,), lambda i: -(i * (1 << 40)) // 3),
        "remainder": nf.compute((n, 5), lambda i, j: ((i * 100000) * (j * 100000)) % 7),
        "power": nf.compute((n,), lambda i: (i * i * i * i * i * i * i * i * i) % 1000003),
        "order": nf.compute((n,), lambda i: nf.select(i * (1 << 30) > 3 << 30, 1, 0)),
        "below": nf.compute((n,), lambda i: (i - (1 << 31)) // 3),
        "wrapped": nf.compute((n,), lambda i: nf.cast(nf.cast(i * 100, "int8"), "int64") * 2),
        "sum": nf.compute((n,), lambda i: nf.sum((k + i) * 300000000, axis=[k])),
        "read": nf.compute((n, 5), lambda i, j: x[((i * 100000) * (j * 100000)) % 7]),
    }
    agree(named, {x: np.arange(7, dtype=np.float32)})


def test_rank_zero_and_shared_tensors():
    x, p = nf.placeholder((6,), name="x"), nf.placeholder((), "int64", name="p")
    ones = nf.placeholder((1, 6, 1), name="ones")
    named = {
        "input": x,
        "again": x,
        "points": nf.compute((3,), lambda i: x[i] + x[i + 3] - x[2 * i] * x[5 - i]),
        "shifted": nf.compute((6,), lambda i: x[(i + p[()]) % 6]),
        "scalar": p * 3,
        "bounded": nf.compute((), lambda: nf.select((p[()] >= 0) & (p[()] < 6), x[p[()]], -1.0)),
        "constant": nf.compute((2, 2), lambda i, j: nf.cast(7, "int8")),
        "ones": nf.max(ones, axis=0) + nf.sum(ones, axis=2),
    }
    for value in (0, 5, -1):
        array = np.arange(6, dtype=np.float32)
        agree(named, {x: array, p: np.array(value), ones: array.reshape(1, 6, 1)})


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [64, 131])
def test_rows_with_nan_and_infinities(dtype, width):
    rows = np.random.default_rng(0).standard_normal((10, width))
    rows[0], rows[1, 3], rows[2, -1], rows[3, :-1], rows[4, 0] = -np.inf, np.nan, np.inf, -np.inf, -np.inf
    rows[5], rows[6], rows[7, -1], rows[8, :2] = np.nan, 1e4, -np.nan, np.inf
    x = nf.placeholder(rows.shape, dtype, name="x")
    masked = nf.compute(x.shape, lambda i, j: nf.select(j < i, x[i, j], float("-inf")))
    feeds = {x: rows.astype(dt.NUMPY[dtype])}
    outputs = [F.softmax(x), F.softmax(masked), nf.max(x, axis=1), nf.max(masked, axis=1)]
    for a, b in zip(nf.compile(outputs, [x])(*feeds.values()), nf.evaluate(outputs, feeds), strict=True):
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance)

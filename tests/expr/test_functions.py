"""The table of scalar functions: what each row says holds, and what hangs on a row is there for every one."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.autodiff.rules import RULES
from neoflow.errors import ExpressionError
from neoflow.expr.functions import FUNCTIONS, REDUCERS, ROUND_TF32
from neoflow.expr.traits import is_exact
from neoflow.expr.typed import scalar
from tests.strategies import limits

x = nf.placeholder((4, 3), name="x")
n = nf.placeholder((4, 3), "int32", name="n")


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_row(f):
    assert f.typing in ("arith", "real", "single", "integer", "compare", "logic")
    assert f.cost >= f.instructions >= 1
    assert bool(f.symbol) == (f.precedence < 9)
    sample = {"integer": np.int64(3), "logic": np.True_}.get(f.typing, np.float32(0.5))
    assert np.ndim(f.numpy(*[sample] * f.arity)) == 0


def test_every_differentiable_function_has_a_derivative():
    assert set(RULES) == {f.name for f in FUNCTIONS.values() if f.typing in ("arith", "real", "single")}


def test_random_programs_use_every_function_of_floats():
    drawn = {*limits.UNARY, *limits.JUMPS, *limits.STOPS, *limits.BINARY}
    assert drawn == {f.name for f in FUNCTIONS.values() if f.typing in ("arith", "real")}
    assert set(limits.REDUCERS) == set(REDUCERS)


def rounded(values, dtype=np.float32):
    return FUNCTIONS[ROUND_TF32].numpy(np.asarray(values, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tf32_is_the_nearest_number_of_ten_bits(dtype):
    """By the definition: of the numbers there are, the nearest, of two the one away from zero."""
    there = np.ldexp(1 + np.arange(1024) / 1024, 3)  # from 8 to 16
    x = np.random.default_rng(0).uniform(8, 15.99, 500).astype(np.float32)
    nearest = there[np.abs(there[None] - x[:, None].astype(np.float64)).argmin(1)]
    np.testing.assert_array_equal(rounded(x, dtype), nearest)
    between = (there[:-1] + there[1:]) / 2
    np.testing.assert_array_equal(rounded(between, dtype), there[1:])
    np.testing.assert_array_equal(rounded(-between, dtype), -there[1:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tf32_has_the_exponents_of_float32(dtype):
    least, step = 2.0**-149, 2.0**-136
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, least, step / 2, -step * 1.5, 3.4028235e38, 3.3999e38])
    found = rounded(x, dtype)
    expected = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.0, step, -2 * step, np.inf]
    np.testing.assert_array_equal(found[:-1], np.asarray(expected, dtype))
    assert np.signbit(found[4]) and np.isfinite(found[-1]) and found.dtype == dtype


def test_what_tf32_is_of():
    h = nf.placeholder((3,), "float16", name="h")
    with pytest.raises(ExpressionError, match=r"round_tf32 takes float32, but `h\[i\]` is float16"):
        nf.compute((3,), lambda i: scalar(ROUND_TF32, h[i]))


def test_reducers_make_one_of_two():
    values = np.random.default_rng(0).standard_normal(7)
    for reducer in REDUCERS.values():
        total = values[0]
        for v in values[1:]:
            total = FUNCTIONS[reducer.function].numpy(total, v)
        assert total == reducer.numpy.accumulate(values)[-1]
        assert reducer.exact == FUNCTIONS[reducer.function].exact


@pytest.mark.parametrize(
    "text",
    [
        "y[i,j] = maximum(-x[i,j], relu(x[i,2-j]))",
        "y[i] = max[k](abs(x[i,k]))",
        "y[i,j] = select(floor(x[i,j]) > 0, 1.0, sign(x[i,j]))",
        "y[i,j] = cast(n[i,j] * 3 - n[i,0] // 2, float32)",
        "y[i] = argmax[k](x[i,k])",
        "y[i] = sum[k](n[i,k])",
    ],
)
def test_exact(text):
    assert is_exact(_body(text))


@pytest.mark.parametrize(
    "text",
    [
        "y[i,j] = x[i,j] * 2.0",
        "y[i] = sum[k](x[i,k])",
        "y[i,j] = select(x[i,j] + 1.0 > 0, 1.0, 0.0)",
        "y[i,j] = maximum(exp(x[i,j]), 0.0)",
    ],
)
def test_inexact(text):
    assert not is_exact(_body(text))


def _body(text):
    return nf.expr(text, **{name: t for name, t in (("x", x), ("n", n)) if f"{name}[" in text}).definition.body

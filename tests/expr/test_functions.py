"""The table of scalar functions: what each row says holds, and what hangs on a row is there for every one."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.autodiff.rules import RULES
from neoflow.expr.functions import FUNCTIONS, REDUCERS
from neoflow.expr.traits import is_exact
from tests.strategies import limits

x = nf.placeholder((4, 3), name="x")
n = nf.placeholder((4, 3), "int32", name="n")


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_row(f):
    assert f.typing in ("arith", "real", "integer", "compare", "logic")
    assert f.cost >= f.instructions >= 1
    assert bool(f.symbol) == (f.precedence < 9)
    sample = {"integer": np.int64(3), "logic": np.True_}.get(f.typing, np.float32(0.5))
    assert np.ndim(f.numpy(*[sample] * f.arity)) == 0


def test_every_differentiable_function_has_a_derivative():
    assert set(RULES) == {f.name for f in FUNCTIONS.values() if f.typing in ("arith", "real")}


def test_random_programs_use_every_function_of_floats():
    drawn = {*limits.UNARY, *limits.JUMPS, *limits.STOPS, *limits.BINARY}
    assert drawn == {f.name for f in FUNCTIONS.values() if f.typing in ("arith", "real")}
    assert set(limits.REDUCERS) == set(REDUCERS)


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

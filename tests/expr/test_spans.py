"""Conditions on one linear form become the interval they leave, and mean the same."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Const
from neoflow.expr.spans import FEW, factored, is_index_condition, together

I, J = Axis(0, 12), Axis(1, 9)


def compare(fn, left, number):
    return Apply(fn, (left, Const(number, "int64")))


def values(conditions):
    """Whether all hold, at every point of I and J."""
    i, j = np.indices((I.extent, J.extent))
    at = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
    at["ne"] = np.not_equal

    def value(e):
        if isinstance(e, Const):
            return np.full(i.shape, e.value)
        if isinstance(e, Axis):
            return i if e is I else j
        a, b = map(value, e.args) if len(e.args) == 2 else (value(e.args[0]), 0)
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply, **at}[e.fn](a, b)

    return np.logical_and.reduce([value(c) for c in conditions])


def test_the_spine_of_a_stack_is_one_condition():
    spine = tuple(compare("ne", I, n) for n in range(7))
    assert list(map(str, together(spine, (compare("lt", I, 9),)))) == ["axis0 >= 7", "axis0 < 9"]
    assert list(map(str, together(spine, (compare("eq", I, 8),)))) == ["axis0 == 8"]
    guards = ()
    for c in spine:
        guards = together(guards, (c,))
        assert len(guards) <= FEW


def test_few_conditions_stay_as_written():
    guards = tuple(compare("ge", I, n) for n in range(1, FEW + 1))
    assert together(guards[:2], guards[2:]) == guards and len(together(guards, (compare("ge", I, 9),))) == 1


@pytest.mark.parametrize("seed", range(60))
def test_the_same_points_are_left(seed):
    rng = np.random.default_rng(seed)
    forms = [I, J, Apply("sub", (I, J)), Apply("sub", (J, I)), Apply("add", (I, Apply("mul", (Const(2, "int64"), J))))]
    given = tuple(
        compare(
            str(rng.choice(["lt", "le", "gt", "ge", "ne", "ne", "eq"])),
            forms[rng.integers(5)],
            int(rng.integers(-3, 14)),
        )
        for _ in range(int(rng.integers(5, 12)))
    )
    found = ()
    for c in given:
        found = together(found, (c,))
    np.testing.assert_array_equal(values(found), values(given))


def test_what_paths_share():
    a, b, c = (compare("ge", I, n) for n in (1, 2, 3))
    common, rests = factored(((a, b), (c, a)))
    assert len(common) == 1 and common[0] is a and rests[0][0] is b and rests[1][0] is c


def test_conditions_on_data_are_no_index_conditions():
    x = nf.placeholder((12,), name="x")
    y = nf.compute((12,), lambda i: nf.select((i < 3) & (x[i] > 0.0), 1.0, 0.0))
    first, second = conjuncts(y.definition.body.cond, True)
    assert is_index_condition(first) and not is_index_condition(second)


def test_branches_that_are_shared_by_nested_choices_are_differentiated_in_linear_time():
    x = nf.placeholder((8,), name="x")

    def body(i):
        e = x[i]
        for n in range(10):
            e = nf.select(x[i] > 0.1 * n, e * 1.5, e + 1.0)
        return e

    y = nf.compute((8,), body)
    nf.check_grad(y, [x], feeds={x: np.linspace(-1.03, 2.7, 8)})

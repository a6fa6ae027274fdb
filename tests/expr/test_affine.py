"""The integer simplifier: equal before and after, idempotent, and the forms a person would write."""

import itertools
import time

import numpy as np
import pytest
import z3

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Const, Expr, postorder
from neoflow.expr.memo import memo_of
from tests.indices import grid, integer, random_axes, random_condition, random_index, values


def simplified_twice(e: Expr) -> tuple[Expr, Expr]:
    """simplify(e) and simplify(simplify(e)), the second without what the first remembered."""
    once = affine.simplify(e)
    for e in postorder(once):
        memo_of(e).clear()
    return once, affine.simplify(once)


def check(seed: int, condition: bool = False) -> None:
    rng = np.random.default_rng(seed)
    axes = random_axes(rng)
    e = random_condition(rng, axes) if condition else random_index(rng, axes)
    once, twice = simplified_twice(e)
    at = grid(axes)
    before = values(e, at)
    np.testing.assert_array_equal(before, values(once, at), err_msg=f"seed {seed}: {e} became {once}")
    if not condition:
        for form in (e, once):
            low, high = affine.bounds(form)
            assert low <= before.min() and before.max() <= high, f"seed {seed}: bounds {low, high} of {form}"
    assert twice is once, f"seed {seed}: {e} became {once}, then {twice}"


def test_indices_are_equal_and_final():
    for seed in range(500):
        check(seed)


def test_conditions_are_equal_and_final():
    for seed in range(300):
        check(seed, condition=True)


@pytest.mark.slow
def test_many_indices_are_equal_and_final():
    for seed in range(1000, 21000):
        check(seed, condition=seed % 4 == 0)


i, j, k = Axis(0, 6, "i"), Axis(1, 4, "j"), Axis(2, 8, "k")


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ((i + 1) + (j + 2), "i + j + 3"),
        (i - i, "0"),
        (2 * i + 3 * i - j, "5*i - j"),
        (-(i - 5), "5 - i"),
        ((4 * i + j) // 4, "i"),
        ((4 * i + j) % 4, "j"),
        ((4 * i + j) // 2 // 2, "i"),
        (4 * (k // 4) + k % 4, "k"),
        ((k // 2) // 2, "k // 4"),
        ((k % 4) // 2, "k // 2 % 2"),
        ((k % 4) % 2, "k % 2"),
        ((i + 8) % 8, "i"),
        (i // 6, "0"),
        ((2 * i) % 4, "2*(i % 2)"),
        ((i + 6 * j) % 6, "i"),
        (k // -3, "-k // 3"),
        (i * 0 + 7, "7"),
    ],
)
def test_forms(written: Expr, simple: str):
    assert str(affine.simplify(written)) == simple


def test_decided_conditions():
    for condition, decided in [(i < 6, True), (i >= 0, True), (i == 7, False), (i + j > 8, False), (i - i != 0, False)]:
        assert affine.simplify(condition) is Const(decided, "bool")
    undecided = i < j
    assert affine.simplify(undecided) is undecided


def _z3(e: Expr):

    known = {}
    ranges = []
    for node in postorder(e):
        if isinstance(node, Const):
            known[node] = z3.IntVal(node.value)
        elif isinstance(node, Axis):
            known[node] = z3.Int(f"a{node.ident}")
            ranges += [known[node] >= 0, known[node] < node.extent]
        else:
            assert isinstance(node, Apply)
            args = [known[a] for a in node.args]
            known[node] = _Z3[node.fn](*args)
    return known[e], ranges


def _z3_floordiv(a, b):
    return (-a) / (-b) if b.as_long() < 0 else a / b  # Z3 rounds down for positive divisors


_Z3 = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "floordiv": _z3_floordiv,
    "mod": lambda a, b: a - b * _z3_floordiv(a, b),
    "maximum": lambda a, b: _z3_if(a >= b, a, b),
    "minimum": lambda a, b: _z3_if(a <= b, a, b),
}


def _z3_if(c, a, b):
    return z3.If(c, a, b)


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_indices_are_proved_equal(count):
    """Expressions over axes of large extents, proved by Z3; at most 1 % may stay unknown."""
    unknown, start = 0, time.perf_counter()
    for seed in range(count):
        rng = np.random.default_rng(seed)
        axes = random_axes(rng, extent=9 if seed % 2 else 1000)
        e = random_index(rng, axes)
        once, twice = simplified_twice(e)
        assert twice is once, f"seed {seed}: {e} became {once}, then {twice}"
        (before, ranges), (after, more) = _z3(e), _z3(once)
        solver = z3.Solver()
        solver.set("timeout", 5000)
        solver.add(*ranges, *more, before != after)
        answer = solver.check()
        assert answer != z3.sat, f"seed {seed}: {e} became {once}; they differ at {solver.model()}"
        unknown += answer == z3.unknown
    print(f"\n{count} proved equal but {unknown} unknown ({time.perf_counter() - start:.0f} s)")
    assert unknown <= count // 100


def test_wide_constants_stay_exact():
    assert affine.bounds(integer(1 << 40) * i) == (0, 5 << 40)
    assert affine.simplify((integer(1 << 40) * i) // (1 << 38)) is affine.simplify(4 * i)


@pytest.mark.parametrize("fn", ["floordiv", "mod"])
def test_bounds_of_division_by_what_is_no_constant(fn):
    """Against every pair of values in the intervals; the exact interval where the signs are known."""
    ends = range(-4, 5)
    for a, b in itertools.combinations_with_replacement(ends, 2):
        for c, d in itertools.combinations_with_replacement(ends, 2):
            x = affine.combine(affine.linear(Axis(0, b - a + 1)), ({}, a))
            y = affine.combine(affine.linear(Axis(1, d - c + 1)), ({}, c))
            low, high = affine.bounds(Apply(fn, (affine.from_linear(x), affine.from_linear(y))))
            pairs = [(p, q) for p in range(a, b + 1) for q in range(c, d + 1)]
            values = [0 if q == 0 else p // q if fn == "floordiv" else p % q for p, q in pairs]
            assert low <= min(values) and max(values) <= high, (a, b, c, d)
            assert high - low <= 2 * max(map(abs, (a, b, c, d))), (a, b, c, d)

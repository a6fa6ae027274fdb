"""Bounds proofs against brute force: nothing that leaves its tensor is accepted, hardly anything else refused."""

import re
from collections import Counter

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import affine, check
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select
from tests.indices import grid, integer, random_axes, random_condition, random_index, values


def access(seed: int) -> tuple[tuple[Axis, ...], Expr, bool, Expr, int]:
    """A random read `x[index]` inside selects: axes, the body, whether it leaves x (by trying every point), and the
    index and extent. Odd seeds leave, by one or two elements at one end."""
    rng = np.random.default_rng(seed)
    axes = random_axes(rng, most=3)
    axes = tuple(Axis(-1 - a.ident, a.extent, "abc"[a.ident]) for a in axes)
    index = random_index(rng, axes, int(rng.integers(1, 5)))
    guards = [random_condition(rng, axes) for _ in range(rng.integers(0, 3))]
    at = grid(axes)
    holds = np.ones(next(iter(at.values())).size, bool)
    kept = []
    for guard in guards:
        still = holds & values(guard, at)
        if still.any() or seed % 2 == 0:
            kept.append(guard)
            holds = still
    reached = values(index, at)
    inside = reached[holds] if holds.any() else reached
    low, extent = int(inside.min()), int(inside.max() - inside.min()) + 1
    if seed % 2:
        low += int(rng.integers(1, 3)) * (-1 if rng.random() < 0.5 else 1)
    index = Apply("sub", (index, integer(low)))
    reached = reached - low
    leaves = bool(((reached < 0) | (reached >= extent))[holds].any())
    x = nf.placeholder((extent,), name="x")
    body: Expr = Read(x, (index,))
    for guard in kept:
        body = Select(guard, body, Const(0, "float32"))
        if rng.random() < 0.3:
            cond = Apply("not", (guard,))
            body = Select(cond, Const(0, "float32"), body.then)
    return axes, body, leaves, index, extent


def verdict(seed: int) -> str:
    """`right`, or `false refusal`; fails when a read that leaves is accepted or the reported point does not leave."""
    axes, body, leaves, index, extent = access(seed)
    try:
        nf.expr.define(tuple(a.extent for a in axes), axes, body, "y")
    except nf.ExpressionError as e:
        if not leaves:
            return "false refusal"
        found = re.search(r"= (-?\d+) at (.*), but the extent is (\d+)", str(e))
        assert found, str(e)
        point = dict(re.findall(r"([a-c])=(\d+)", found[2]))
        at: dict[Expr, np.ndarray] = {a: np.array([int(point.get(a.name, 0))]) for a in axes}
        reached = int(values(index, at)[0])
        assert reached == int(found[1]), f"seed {seed}: {e}"
        assert not 0 <= reached < extent == int(found[3]), f"seed {seed}: {e}"
        return "right"
    assert not leaves, f"seed {seed}: accepted {body}, which leaves its tensor"
    return "right"


def judge(seeds: range) -> None:
    count = Counter(verdict(seed) for seed in seeds)
    leaving = sum(access(seed)[2] for seed in list(seeds)[:500])
    print(f"\n{len(seeds)} access functions: {dict(count)}; of the first 500, {leaving} leave their tensor")
    assert count["false refusal"] < 0.01 * len(seeds)


def test_random_accesses():
    judge(range(500))


@pytest.mark.slow
def test_many_random_accesses():
    judge(range(1000, 11000))


def accepted(shape, body) -> bool:
    try:
        nf.compute(shape, body)
    except nf.ExpressionError:
        return False
    return True


x = nf.placeholder((10,), name="x")


@pytest.mark.parametrize(
    ("shape", "body", "expected"),
    [
        ((10,), lambda i: x[i], True),
        ((11,), lambda i: x[i], False),
        ((10,), lambda i: x[9 - i], True),
        ((10,), lambda i: x[10 - i], False),
        ((4, 4), lambda i, j: x[i * j], True),
        ((4, 4), lambda i, j: x[i * j + 1], False),
        ((4, 4), lambda i, j: nf.select(i * j < 9, x[i * j + 1], 0.0), True),
        ((12,), lambda i: nf.select((i >= 1) & (i < 11), x[i - 1], 0.0), True),
        ((12,), lambda i: nf.select((i >= 1) | (i < 11), x[i - 1], 0.0), False),
        ((12,), lambda i: nf.select((i < 1) | (i >= 11), 0.0, x[i - 1]), True),
        ((12,), lambda i: (i < 10) & (x[i] > 0), True),
        ((12,), lambda i: (i >= 10) | (x[i] > 0), True),
        ((12,), lambda i: (x[i] > 0) & (i < 10), False),
        ((4, 4), lambda i, j: x[nf.maximum(i - j, j - i) * 3], True),
        ((4, 4), lambda i, j: x[nf.maximum(i - j, j - i) * 3 + 1], False),
        ((4, 4), lambda i, j: x[nf.select(i < j, j - i, i - j) * 3], True),
        ((4, 4), lambda i, j: x[nf.abs(i - j) * 3], True),
        ((20,), lambda i: x[(5 * i + 3) // 10 % 10], True),
        ((20,), lambda i: nf.select(i % 2 == 0, x[i // 2], x[(i - 1) // 2]), True),
        ((300,), lambda i: x[nf.cast(i, "int8") % 10], True),
        ((300,), lambda i: x[nf.cast(i, "int8")], False),
        ((10,), lambda i: x[nf.cast(i, "int8")], True),
    ],
)
def test_cases(shape, body, expected):
    assert accepted(shape, body) is expected


def test_reads_in_a_condition_are_judged_outside_of_it():
    assert not accepted((12,), lambda i: nf.select(x[i] > 0, 1.0, 0.0))


def test_reads_inside_reductions_are_judged_with_their_axes():
    k = nf.axis(3, "k")
    assert accepted((8,), lambda i: nf.sum(x[i + k], axis=[k]))
    assert not accepted((9,), lambda i: nf.sum(x[i + k], axis=[k]))


def test_data_dependent_indices_are_left_to_run_time():
    ids = nf.placeholder((4,), "int32", name="ids")
    assert accepted((4,), lambda i: x[ids[i]])
    assert not accepted((5,), lambda i: x[ids[i]])


def test_implied():
    i, j = Axis(0, 8), Axis(1, 8)
    assert check.implied(i + j < 15, ())
    assert not check.implied(i + j < 14, ())
    assert check.implied(i + j < 14, (i < 7,))
    assert check.implied(nf.not_equal(i % 2, 1), (nf.equal(i % 4, 2),))
    assert not check.implied(i * j < 10, ())


def test_narrow_integers_wrap():
    i = Axis(0, 300)
    assert affine.bounds(nf.cast(i, "int8")) == (-128, 127)
    assert affine.bounds(nf.cast(i, "int16")) == (0, 299)

"""Nests of choices whose branches share what is below: few kernels, none long, no work done twice, right values."""

from collections.abc import Callable

import numpy as np
import pytest

import neoflow as nf
from neoflow import rewriting
from neoflow.graph import LONGEST, make_graph, operations
from neoflow.trace import Trace

pytestmark = pytest.mark.tvm
SLOW = pytest.mark.slow
SIZE = 19

Step = Callable[[np.random.Generator, nf.Tensor, object, object, float], object]
"""a generator, the tensor, the axis, what is below, a number in [0, 1) that grows -> a choice above it"""


def by_data(g, x, i, e, c):
    return nf.select(x[i] < c, e * 0.5, e + 1.0)


def by_what_is_below(g, x, i, e, c):
    return nf.select(e > c, e * 0.5, e + 0.25)


def by_axis(g, x, i, e, c):
    k, n = (int(v) for v in g.integers(1, 23, 2))
    return nf.select(i * k < n, e * 0.5, e + 1.0)


def by_several(g, x, i, e, c):
    k = int(g.integers(SIZE))
    return nf.select((x[i] < c) | (i >= k) & (e < 0.5), e * 0.75, 1.0 - e)


def inside_each_other(g, x, i, e, c):
    k = int(g.integers(SIZE))
    return nf.select(e < 0.5, nf.select(x[i] < c, e * 0.5, e - 0.25), nf.select(i < k, e + 1.0, e * 0.75))


def beside_reads(g, x, i, e, c):
    """Each read outside unless its own condition holds."""
    k = int(g.integers(1, 12))
    return nf.select(i + k < SIZE, x[i + k] * 0.5 + e, nf.select(i >= k, e * 0.5 - x[i - k], e * 0.5))


def with_functions(g, x, i, e, c):
    return nf.select(x[i] < c, nf.tanh(e), nf.exp(-nf.abs(e)))


STEPS: tuple[Step, ...] = (
    by_data,
    by_what_is_below,
    by_axis,
    by_several,
    inside_each_other,
    beside_reads,
    with_functions,
)


def nest(depth: int, seed: int, steps: tuple[Step, ...], dtype: str = "float32") -> tuple[nf.Tensor, nf.Tensor]:
    x, g = nf.placeholder((SIZE,), dtype, name="x"), np.random.default_rng(seed)

    def body(i):
        e = x[i]
        for k in range(depth):
            e = steps[int(g.integers(len(steps)))](g, x, i, e, k / depth)
        return e

    return nf.compute((SIZE,), body, name="y"), x


def under_a_condition(depth: int, seed: int) -> tuple[nf.Tensor, nf.Tensor]:
    """Every level reads what lies inside because of one condition around all."""
    x, g = nf.placeholder((SIZE,), name="x"), np.random.default_rng(seed)

    def body(i):
        e = x[i + 3]
        for k in range(depth):
            a, b = (int(v) for v in g.integers(1, 4, 2))
            e = nf.select(x[i] < k / depth, e * 0.5 + x[i + a], e * 0.25 - x[i + b])
        return nf.select(i < SIZE - 3, e, 0.0)

    return nf.compute((SIZE,), body, name="y"), x


def two_behind(depth: int, seed: int) -> tuple[nf.Tensor, nf.Tensor]:
    """Each choice shares the last two."""
    x, g = nf.placeholder((SIZE,), name="x"), np.random.default_rng(seed)
    numbers = g.uniform(0, 1, depth)

    def body(i):
        a, e = x[i] * 0.5, x[i]
        for c in numbers:
            a, e = e, nf.select(x[i] < float(c), e * 0.5 + a * 0.25, (a - e) * 0.5)
        return e

    return nf.compute((SIZE,), body, name="y"), x


def agrees(y: nf.Tensor, x: nf.Tensor, seed: int) -> None:
    """Compiled and evaluated, equal but for rounding; no kernel is long, and no work is done many times over."""
    _, divided = rewriting.stages(make_graph([y], [x]), Trace())
    sizes = [sum(operations(n.definition) for n in c.subgraph.nodes) for c in divided.calls]
    assert max(sizes) <= 2 * LONGEST
    assert sum(sizes) <= 3 * operations(y.definition)
    values = np.random.default_rng(seed).standard_normal(x.shape).astype(np.float32)
    (found,) = nf.compile([y], inputs=[x])(values)
    (wanted,) = nf.evaluate([y], {x: values})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("depth", "seed"),
    [(30, 0), *(pytest.param(depth, seed, marks=SLOW) for depth in (80, 160, 400) for seed in range(1, 6))],
)
def test_all_steps(depth, seed):
    agrees(*nest(depth, seed, STEPS), seed)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("depth", [pytest.param(n, marks=SLOW) for n in (20, 80, 400)])
def test_one_step(step, depth):
    agrees(*nest(depth, depth, (step,)), depth)


@pytest.mark.parametrize("make", [under_a_condition, two_behind])
@pytest.mark.parametrize("depth", [40, *(pytest.param(n, marks=SLOW) for n in (20, 80, 160, 400))])
def test_shared(make, depth):
    agrees(*make(depth, depth), depth)


@pytest.mark.parametrize(
    "steps", [(by_data,), *(pytest.param((s,), marks=SLOW) for s in (by_what_is_below, with_functions))]
)
def test_few_kernels(steps):
    """However deep, few: the conditions differ in a number each, which is read."""
    for depth in (300, 600):
        y, x = nest(depth, 0, steps)
        _, divided = rewriting.stages(make_graph([y], [x]), Trace())
        assert len(divided.subgraphs) <= 4 < len(divided.calls)

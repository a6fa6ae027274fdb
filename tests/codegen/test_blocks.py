"""Sums in blocks: right for every length of block, and as far off as the levels of blocks say, however long the sum."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.codegen import rounding
from neoflow.codegen.tir import blocks
from neoflow.expr.functions import BLOCK, levels
from neoflow.loops import Schedule, complete, default_schedule, problem_of, space
from neoflow.runtime.device.cpu import empty
from neoflow.target import Target
from tests.codegen.kernels import TARGET, loaded, subgraph_of
from tests.loops.programs import named_cases
from tests.loops.test_law import check, sampled

pytestmark = pytest.mark.tvm
TWO = Target("cpu", TARGET.mcpu, 2, TARGET.vector_bytes, TARGET.l2_bytes, TARGET.fma_units)
UNIT = 2.0**-24
"""Of a float32: how far off the nearest one is at most."""


def total(shape, axis):
    x = nf.placeholder(shape, name="x")
    return subgraph_of([nf.sum(x, axis=axis)], [x])


def product(m, n, k):
    x, w = nf.placeholder((m, k), name="x"), nf.placeholder((k, n), name="w")
    return subgraph_of([nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w)], [x, w])


def squares(shape):
    """Rows whose sums have two axes, the last one long."""
    x = nf.placeholder(shape, name="x")
    return subgraph_of([nf.expr("y[i] = sum(x[i,k,l] * x[i,k,l])", x=x)], [x])


LONG = {
    "along the lanes": lambda n: total((n,), 0),
    "under the lanes": lambda n: total((n // 16, 16), 0),
    "rows": lambda n: squares((2, 3, n // 6)),
    "product": lambda n: product(5, 33, n // 32),
}
POWER = {"rows": 2}


def worst(subgraph, schedules, power, value=0.1):
    """The largest relative error over schedules, of terms that are all the same: their roundings do not cancel."""
    lowered = [codegen.lower(subgraph, s, TWO, f"k{n}") for n, s in enumerate(schedules)]
    arrays = [empty(v.shape, v.dtype) for v in subgraph.inputs]
    arrays[0][...] = value
    for a in arrays[1:]:
        a[...] = 1.0
    term = np.float64(np.float32(value)) ** power
    found = 0.0
    for kernel in loaded(lowered, TWO):
        out = empty(subgraph.value(subgraph.outputs[0]).shape, "float32")
        kernel(*arrays, out)
        count = subgraph.nodes[0].definition.body.axes
        exact = term * np.prod([a.extent for a in count], dtype=np.float64)
        found = max(found, float(np.max(np.abs(out.astype(np.float64) / exact - 1))))
    return found


def allowed(terms):
    """At most `BLOCK` roundings a level, a few for lanes, accumulators and parts."""
    return (levels(terms) * BLOCK + 40) * UNIT


@pytest.mark.parametrize("name", LONG)
def test_errors_grow_with_levels(name):
    n = 1 << 21
    subgraph = LONG[name](n)
    terms = np.prod([a.extent for a in subgraph.nodes[0].definition.body.axes])
    assert worst(subgraph, [default_schedule(subgraph, TWO)], POWER.get(name, 1)) <= allowed(int(terms))


def test_every_length_of_block_computes_the_same(monkeypatch):
    """Blocks of three terms: every sum of a few has levels, and tails at each."""
    monkeypatch.setattr(blocks, "BLOCK", 3)
    cases = [c for c in named_cases() if any(n.definition.has_reduction for n in c.subgraph.nodes)]
    assert check([(c, sampled(c, 1, n)) for n, c in enumerate(cases[::6])]) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 5, 16])
def test_many_schedules_of_every_length_of_block(monkeypatch, length):
    monkeypatch.setattr(blocks, "BLOCK", length)
    cases = [c for d in ("float32", "float64") for c in named_cases(d)]
    cases = [c for c in cases if any(n.definition.has_reduction for n in c.subgraph.nodes)]
    assert check([(c, sampled(c, 2, n)) for n, c in enumerate(cases)]) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_errors_grow_with_levels_by_any_schedule(name):
    subgraph = LONG[name](3 * (1 << 17) + 96)
    problem, rng = problem_of(subgraph), np.random.default_rng(0)
    schedules = list(dict.fromkeys(space(problem, TWO).sample(rng) for _ in range(10)))
    terms = np.prod([a.extent for a in subgraph.nodes[0].definition.body.axes])
    assert len(schedules) >= 5
    assert worst(subgraph, schedules, POWER.get(name, 1)) <= 2 * allowed(int(terms))  # splits are a level, too


def code(subgraph, schedule: Schedule | None = None):
    return codegen.lower(subgraph, schedule or default_schedule(subgraph, TWO), TWO, "k").text()


def test_the_innermost_loop_is_the_same():
    """A multiply-add is written once, however many blocks there are."""
    short, long = product(64, 64, BLOCK), product(64, 64, 7 * BLOCK)
    schedule = default_schedule(short, TWO)
    texts = [code(s, complete("contraction", problem_of(s), TWO, dict(schedule.knobs))) for s in (short, long)]
    counts = [t.count("llvm.fma") for t in texts]
    assert counts[0] == counts[1] > 0
    assert texts[1].count("nf_forget_registers") > texts[0].count("nf_forget_registers")


def test_short_sums_are_not_in_blocks():
    assert code(total((BLOCK, 16), 0)).count("acc0 = ") == 1
    assert code(total((BLOCK + 1, 16), 0)).count("acc0") > code(total((BLOCK, 16), 0)).count("acc0")


def test_only_sums_of_floats_are():
    """Extremes and integers are exact in any order."""
    x, n = nf.placeholder((4 * BLOCK, 16), name="x"), nf.placeholder((4 * BLOCK, 16), "int32", name="n")
    for y, source in ((nf.max(x, axis=0), x), (nf.sum(n, axis=0), n), (nf.argmax(x, axis=0), x)):
        subgraph = subgraph_of([y], [source])
        schedule = complete("reduction", problem_of(subgraph), TWO, {"parallel": False})
        assert f"range(T.int64({4 * BLOCK}))" in code(subgraph, schedule)


def test_what_the_judge_allows_is_bounded():
    growth = [rounding._steps(1 << n) for n in range(0, 40, 3)]
    assert growth == sorted(growth) and growth[-1] <= 4 + 2 * 5 * np.sqrt(BLOCK) + 1
    assert rounding._steps(100) == rounding._in_a_row(100) == 24
    assert [levels(n) for n in (1, BLOCK, BLOCK + 1, BLOCK**2, BLOCK**2 + 1)] == [1, 1, 2, 2, 3]

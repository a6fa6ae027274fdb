"""Operations of many steps under a limit to memory: what is one, what goes back to a chain, and what is said of it."""

from dataclasses import dataclass

import numpy as np
import pytest

import neoflow as nf
from neoflow.code import Code
from neoflow.errors import ConfigError
from neoflow.graph import make_graph
from neoflow.partition import order_calls, partition
from neoflow.pipeline import compile_program
from neoflow.recompute import DoesNotFit, Fitted, Program, fit
from neoflow.rewriting import Price, rewritten
from neoflow.rewriting.pricing import ABOVE, OVER_TIME, cheapest, prices
from neoflow.roofs import STATED
from neoflow.trace import Trace
from tests.chance import Chance

STEPS, BATCH, SIZE = 24, 32, 64


def recurrence(steps=STEPS, batch=BATCH, size=SIZE):
    """A cell whose input goes through a layer of its own, written out, and a step of its three weights. The loss."""
    x, h = nf.placeholder((steps, batch, size), name="x"), nf.zeros((batch, size))
    w, u, v = weights = [nf.parameter((size, size), name=n, init=0.1) for n in "wuv"]
    k = nf.axis(size, "k")

    def projected(a, by):
        return nf.compute((batch, size), lambda b, o: nf.sum(a[b, k] * by[o, k], axis=[k]))

    for t in range(steps):
        h = nf.tanh(projected(nf.tanh(projected(x[t], w)), u) + projected(h, v))
    loss = nf.sum(h * h)
    return loss, x, {p: p - 0.01 * g for p, g in zip(weights, nf.grad(loss, weights), strict=True)}


@dataclass
class Made:
    fitted: Fitted
    trace: Trace


def program_of(written, price):
    """Its kernels, which need no memory besides."""
    graph = rewritten(written, Trace(), "fp32", frozenset(), None, price)
    parts = partition(graph)
    calls, in_place = order_calls(graph, parts)
    return Program(graph, calls, in_place, parts.views, {c.subgraph.digest: Code(()) for c in calls}, 1)


class Programs:
    """Of a graph at different prices, each made once."""

    def __init__(self, outputs, inputs, updates):
        self.written, self.known = make_graph(outputs, inputs, updates), {}

    def found(self, limit):
        def make(price):
            if price.seconds not in self.known:
                self.known[price.seconds] = program_of(self.written, price), price.chosen
            program, price.chosen = self.known[price.seconds]
            return Made(fit(program, limit, STATED), Trace())

        return cheapest(make)

    def least(self):
        with pytest.raises(ConfigError, match="the least that works is ") as caught:
            self.found(1)
        assert not isinstance(caught.value, DoesNotFit)
        return int(caught.value.message.split(" bytes (")[0].split()[-1]), caught.value.message


@pytest.fixture(scope="module")
def programs():
    loss, x, updates = recurrence()
    return Programs([loss], [x], updates)


def alone(programs, price):
    """The program at a price, by itself: its bytes, and the least."""
    program = program_of(programs.written, Price(price))
    with pytest.raises(DoesNotFit) as refused:
        fit(program, 1, STATED)
    return program.plan().nbytes, refused.value.least


def test_where_everything_fits_nothing_is_asked(programs):
    whole, _ = alone(programs, 0.0)
    found = programs.found(whole)
    assert len(found.ways) == 1 and found.best.price.seconds == 0.0
    assert found.summary == "everything fits: 2 of 2 operations of many steps that make bytes wait are one"


def test_what_gains_least_a_byte_goes_back_to_a_chain_first(programs):
    whole, _ = alone(programs, 0.0)
    found = programs.found(whole - 1)
    assert len(found.ways) == 3 and found.best is found.ways[1] and len(found.best.price.chosen) == 1
    assert found.best.price.chosen == [max(found.ways[0].price.chosen)]
    assert found.summary == (
        "1 of 2 operations of many steps that make bytes wait are one, in the fastest of 3 programs"
    )
    first, second, third = str(found).splitlines()
    assert first.startswith("whatever takes less time, 2 choices: does not fit, the least that works is ")
    assert second.startswith("a byte that waits at ") and second.endswith("kernels run again, taken")
    assert third.startswith("nothing that makes bytes wait, 0 choices: ") and third.endswith("kernels run again")


def test_chains_are_taken_where_nothing_else_fits(programs):
    found = programs.found(programs.least()[0])
    assert found.best is found.ways[-1] and found.best.price.seconds == float("inf") and not found.best.price.chosen
    assert [way.refusal is None for way in found.ways] == [False, False, True]


def test_one_is_kept_where_what_runs_again_for_it_takes_less():
    programs = Programs(*drawn(1))
    found = programs.found(alone(programs, 0.0)[0] - 1)
    assert found.best is found.ways[0] and found.made.fitted.again and len(found.ways) > 2
    assert all(way.seconds >= found.best.seconds for way in found.ways)


def test_the_refusal_counts_chains(programs):
    least, message = programs.least()
    assert least == alone(programs, float("inf"))[1] < alone(programs, 0.0)[1]
    assert message.endswith("; in it 0 of 2 operations of many steps that make bytes wait are one")
    assert programs.found(least).made.fitted.plan.nbytes == least
    with pytest.raises(ConfigError, match=f"the least that works is .*, {least} bytes "):
        programs.found(least - 1)


def drawn(seed):
    """Layers of recurrences of some sizes, and the step of their weights."""
    chance = Chance(np.random.default_rng(seed))
    steps, batch, size = chance.between(4, 9), chance.between(2, 8), chance.between(8, 24)
    k, weights, updates = nf.axis(size, "k"), [], {}
    x = nf.placeholder((steps, batch, size), name="x")

    def projected(a):
        w = weights[-1]
        return nf.compute((batch, size), lambda b, o: nf.sum(a[b, k] * w[o, k], axis=[k]))

    states = [x[t] for t in range(steps)]
    for _ in range(chance.between(1, 3)):
        weights.append(nf.parameter((size, size), name=f"w{len(weights)}"))
        given = [projected(s) for s in states]
        weights.append(nf.parameter((size, size), name=f"w{len(weights)}"))
        h, states = given[0], []
        for g in given:
            h = nf.tanh(g + projected(h))
            states.append(h)
    loss = nf.sum(states[-1] * states[-1])
    updates = {w: w - 0.01 * g for w, g in zip(weights, nf.grad(loss, weights), strict=True)}
    return [loss], [x], updates


def law(seed):
    """How many limits asked for another price: more memory is never slower, and the least works."""
    programs = Programs(*drawn(seed))
    whole, (least, _) = program_of(programs.written, Price()).plan().nbytes, programs.least()
    assert least <= whole
    slower, others = float("inf"), 0
    for limit in sorted({least, (3 * least + whole) // 4, (least + whole) // 2, max(least, whole - 1), whole}):
        found = programs.found(limit)
        assert found.made.fitted.plan.nbytes <= limit
        seconds = max(found.best.seconds, found.ways[0].whole)
        assert seconds <= slower
        slower, others = seconds, others + (found.best is not found.ways[0])
    assert not others or slower == found.ways[0].whole
    return others


def test_more_memory_is_never_slower():
    assert sum(map(law, range(4))) > 0


@pytest.mark.slow
def test_more_memory_is_never_slower_in_many_programs():
    assert sum(map(law, range(1000, 1040))) > 20


def test_few_prices_are_tried_and_the_last_leaves_nothing():
    assert prices([]) == [] and prices([2.0]) == prices([2.0, 2.0]) == [float("inf")]
    assert prices([3.0, 1.0]) == [ABOVE * 1.0, float("inf")]
    many = prices([float(n) for n in range(1, 101)])
    assert many == [ABOVE * 25.0, ABOVE * 50.0, ABOVE * 75.0, float("inf")]


@pytest.mark.tvm
def test_a_program_within_a_limit_gives_the_same():
    loss, x, updates = recurrence(8, 16, 32)
    free = compile_program([loss], [x], updates)
    assert OVER_TIME not in [r.name for r in free.trace.records] and "bytes of them wait at once" in free.explain()
    with pytest.raises(ConfigError) as refused:
        compile_program([loss], [x], updates, memory=1)
    least = int(refused.value.message.split(" bytes (")[0].split()[-1])
    fitted = nf.compile([loss], [x], memory=least)
    assert fitted.compiled.plan.nbytes <= least
    bound = compile_program([loss], [x], updates, memory=least)
    assert "taken" in bound.explain(OVER_TIME) and "operations of many steps" in bound.explain()
    value = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    np.testing.assert_allclose(fitted(value), nf.compile([loss], [x])(value), rtol=1e-5)

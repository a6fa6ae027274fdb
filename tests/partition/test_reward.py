"""What fusing two operators moves less, forward and backward, by exact counts: the paper's four cases (section 5.1).

An operator of *one* tensor is a scale; one of *many* is a product of two. What is not stored is computed again in each
kernel that needs it, in the gradients too: these are a kernel each.
"""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

import neoflow as nf
from benchmarks.fusion import best_first
from neoflow.expr.tensor import Placeholder, topological
from neoflow.graph import make_graph, optimize
from neoflow.graph.cost import SURE, Cost
from neoflow.partition import LOSES, cost_of, object_to, objective, partition, reward
from neoflow.partition.cost import spent
from neoflow.partition.engine import go_through
from neoflow.partition.rules import ROW_KERNELS
from neoflow.roofs import STATED, Level, Roofs
from tests.graph.programs import anything
from tests.partition.test_rules import law

SHAPE, T = (8, 64), 8 * 64 * 4
APART = {"parts", "views", "epilogues", "siblings", "row kernels", "moves", "alongside", "sharing"}


def one(x, name):
    return nf.compute(SHAPE, lambda i, j: 3.0 * x[i, j], name=name)


def many(x, y, name):
    return nf.compute(SHAPE, lambda i, j: x[i, j] * y[i, j], name=name)


def pair(*names):
    """The step of an operator on what another one makes, `b`: its result `e`, and the gradients of all it reads."""
    a, c, d, de = (nf.placeholder(SHAPE, name=n) for n in ("a", "c", "d", "de"))
    b = one(a, "b") if names[0] == "one" else many(a, c, "b")
    e = one(b, "e") if names[1] == "one" else many(b, d, "e")
    db = one(de, "db") if names[1] == "one" else many(de, d, "db")
    da = [one(db, "da")] if names[0] == "one" else [many(db, c, "da"), many(db, a, "dc")]
    return [e, *da, *([] if names[1] == "one" else [many(de, b, "dd")])]


def divided(roots, choose, without=APART):
    inputs = [t for t in topological(roots) if isinstance(t, Placeholder)]
    return partition(make_graph(roots, inputs), without, choose)


def moved(parts):
    """How often each tensor is read and written, once a kernel."""
    return Counter(t.name for c in parts.calls for t in (*c.inputs, *c.outputs))


@pytest.mark.parametrize(
    ("operators", "saved", "again", "instructions"),
    [
        (("one", "one"), {"b": 2, "db": 2}, {}, 2),
        (("one", "many"), {"b": 3, "db": 2}, {"a": 1}, 1),
        (("many", "one"), {"b": 2, "db": 3}, {"de": 1}, 1),
        (("many", "many"), {"b": 3, "db": 3}, {"a": 1, "c": 1, "d": 1, "de": 1}, -2),
    ],
)
def test_the_four_cases(operators, saved, again, instructions):
    """One and one save 4 T_B. Two of many save 6 T_B and read again what the other's gradients need: T_D and T_E those
    of the first, T_A and T_C that of the second."""
    roots = pair(*operators)
    stored = divided(roots, lambda *_: "so chosen")
    fused = divided(roots, lambda *_: None)
    before, after = moved(stored), moved(fused)
    assert before - after == Counter(saved) and after - before == Counter(again)
    bytes_saved = (sum(saved.values()) - sum(again.values())) * T
    costs = [[cost_of(c.subgraph) for c in p.calls] for p in (stored, fused)]
    assert sum(c.nbytes for c in costs[0]) - sum(c.nbytes for c in costs[1]) == bytes_saved
    assert len(costs[0]) - len(costs[1]) == 2
    work = [sum(c.instructions for c in each) for each in costs]
    roofs = Roofs(100.0, (Level("memory", None, 10.0),), start=1e-6)
    expected = bytes_saved / 10e9 + 2 * (work[0] - work[1]) / 100e9 + 2e-6
    assert reward(*costs, roofs) == pytest.approx(expected) and expected > 0
    assert work[0] - work[1] == instructions * 8 * 64


def test_a_reward_has_one_bandwidth():
    """What leaves a cache only because two kernels are one does not count against it."""
    two, together = [Cost(1.5 * 2**20, 10)] * 2, [Cost(2.9 * 2**20, 20)]
    assert sum(c.seconds(STATED) for c in two) < together[0].seconds(STATED)
    assert reward(two, together, STATED) == pytest.approx(0.1 * 2**20 / 90e9 + STATED.start)


def costly(rows, width):
    x, k = nf.placeholder((rows, width), name="x"), nf.axis(width, "k")
    top = nf.compute((rows,), lambda i: nf.max(x[i, k], axis=[k]), name="top")
    return [nf.compute((rows, width), lambda i, j: nf.tanh(nf.tanh(nf.exp(x[i, j] - top[i]))), name="e")]


def test_what_loses_is_refused():
    """Rows of 33 fill three vectors of 16, where all of them together fill all: that is more work than is saved."""

    def refused(width, **options):
        parts = divided(costly(8192, width), partial(object_to, **options), ())
        found = [d.verdict.reason for d in parts.decisions if d.rule == ROW_KERNELS.name and not d.verdict.ok]
        return found, objective(parts, STATED)

    (reason,), apart = refused(33)
    assert reason.startswith("one kernel would take about ")
    none, together = refused(33, besides=(LOSES,))
    assert not none and apart < together
    assert not refused(48)[0]


def normed(rows, width):
    """Of each row two tensors lie between a sum and what follows from it."""
    x, k = nf.placeholder((rows, width), name="x"), nf.axis(width, "k")
    e = nf.compute((rows, width), lambda i, j: nf.exp(x[i, j]), name="e")
    total = nf.compute((rows,), lambda i: nf.sum(e[i, k], axis=[k]), name="total")
    return [e, nf.compute((rows, width), lambda i, j: e[i, j] / total[i], name="y")]


def test_large_rows_have_to_save_surely():
    width = 1 << 16  # two such rows are half a megabyte
    few = divided(normed(64, width), partial(object_to, besides=(LOSES,)), ())
    assert any("exceeds 262144 bytes a row" in d.verdict.reason for d in few.decisions)
    together = divided(normed(64, width), object_to, ())
    assert len(together.calls) < len(few.calls) and objective(together, STATED) < objective(few, STATED)


def weighed(combine, least, found):
    """`combine`, each of whose moves saves of all kernels what its reward says, and at least this part of the kernel
    that it makes; `found`: the rewards."""

    def weighing(rule):
        def apply(state, merge):
            pair = [state.cost(state.kernels[n]) for n in (merge.first, merge.second)]
            one = state.cost(state.merged(merge))
            most = max(c.nbytes for c in (*pair, one))
            before = spent(map(state.cost, state.kernels.values()), state.roofs, most)
            rule.apply(state, merge)
            saved = before - spent(map(state.cost, state.kernels.values()), state.roofs, most)
            found.append(reward(pair, [one], state.roofs))
            assert saved == pytest.approx(found[-1], rel=1e-6, abs=1e-9 * before)
            assert found[-1] >= least * spent([one], state.roofs, most)

        return replace(rule, apply=apply)

    def combining(facts, state, passes, choose):
        return combine(facts, state, tuple(replace(p, rules=tuple(map(weighing, p.rules))) for p in passes), choose)

    return combining


ORDERS = [(go_through, -SURE), (best_first, 0.0), (partial(best_first, at_once=True), 0.0)]


def moves_are_their_rewards(seeds, combine, least):
    found: list[float] = []
    for seed in seeds:
        law(seed, combine=weighed(combine, least, found))
    return found


@pytest.mark.parametrize(("combine", "least"), ORDERS)
def test_what_a_move_saves_is_its_reward(combine, least):
    """In the order of the passes and by the best reward first: values stay, and nothing that loses is taken."""
    assert len(moves_are_their_rewards(range(6), combine, least)) > 10


@pytest.mark.slow
@pytest.mark.parametrize(("combine", "least"), ORDERS)
def test_what_a_move_saves_is_its_reward_for_many(combine, least):
    assert len(moves_are_their_rewards(range(5000, 6000), combine, least)) > 1000


@pytest.mark.parametrize(("combine", "least"), ORDERS)
def test_a_program_is_always_divided_alike(combine, least):
    def made(seed):
        case = anything(seed)
        parts = divided_by(combine, case)
        return (
            [c.subgraph.digest for c in parts.calls],
            [d.rule for d in parts.decisions],
            [d.verdict.ok for d in parts.decisions],
        )

    assert all(made(seed) == made(seed) for seed in range(3))


def divided_by(combine, case):
    return partition(optimize(make_graph(case.roots, list(case.feeds))), combine=combine)

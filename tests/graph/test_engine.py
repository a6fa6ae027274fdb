"""The engine ends, says why, takes what it is told to take; a derivation prints and replays."""

from dataclasses import dataclass

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute
from neoflow.graph import PASSES, Editor, Limits, Match, Pass, Rewrite, make_graph, run, sites
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Again(Rewrite):
    """x -> a copy of x, for ever."""

    name: str = "again"

    def match(self, editor, t):
        yield Match((t,))

    def legal(self, editor, match):
        return Verdict(match.tensors[0].name != "kept", "it can be done again" if match.tensors else "")

    def apply(self, editor, match):
        (t,) = match.tensors
        return {t: Compute(t.definition, editor.inputs(t), t.name)}


@dataclass(frozen=True)
class Halve(Rewrite):
    """2 * x -> x + x, at every input of t: more than one place at a compute.

    y = a + b    ->    y = a' + b
    """

    name: str = "halve"

    def match(self, editor, t):
        for i in editor.inputs(t):
            if isinstance(i, Compute) and str(i.definition.body) == "$0[axis0] * 2.0":
                yield Match((t, i))

    def legal(self, editor, match):
        return Verdict(True, f"{match.tensors[1].name} is twice something")

    def apply(self, editor, match):
        (x,) = editor.inputs(match.tensors[1])
        return {match.tensors[1]: x + x}


def program():
    x = nf.placeholder((4,), name="x")
    a = nf.compute((4,), lambda i: x[i] * 2.0, name="a")
    e = nf.exp(x)
    b = nf.compute((4,), lambda i: e[i] * 2.0, name="b")
    c = nf.compute((4,), lambda i: a[i] + nf.exp(a[i]), name="c")
    return make_graph([c, nf.compute((4,), lambda i: a[i] - b[i], name="d")], [x])


def test_a_rewrite_without_end_is_stopped():
    graph = program()
    after, derivation = run(graph, Pass("again", (Again(),)), limits=Limits(steps=3))
    count = 3 * len(graph.nodes) + 100
    assert len(derivation.steps) == count and derivation.stopped == f"the limit of {count} steps"
    assert after.digest == graph.digest and str(derivation).endswith(f"stopped: the limit of {count} steps")
    assert derivation.replay(graph).digest == after.digest


def test_what_is_refused_is_recorded_once_with_the_reason():
    x = nf.placeholder((4,), name="x")
    kept = nf.compute((4,), lambda i: nf.exp(x[i]), name="kept")
    after, derivation = run(make_graph([kept], [x]), Pass("again", (Again(),)))
    assert after.outputs[0] is kept and not derivation.steps
    assert str(derivation) == "no again at 1 kept: it can be done again\nstopped: nothing is left to rewrite"


def test_legal_places_are_one_thing_and_the_choice_another():
    graph = program()
    editor = Editor(graph.roots)
    places = [site for t in editor.computes() for site in sites(editor, (Halve(),), t)]
    assert [[t.name for t in site.match.tensors] for site in places] == [["c", "a"], ["d", "a"], ["d", "b"]]
    row, seen = Pass("halve", (Halve(),)), []

    def last(editor, legal):
        found = list(legal)
        seen.append([site.match.tensors[1].name for site in found])
        return found[-1] if found else None

    _, derivation = run(graph, row, last)
    assert [step.name for step in derivation.steps] == ["c", "d"] and ["b"] in seen
    none, derivation = run(graph, row, lambda editor, legal: None)
    assert none is graph and not derivation.steps


def test_rewrites_are_tried_in_the_order_of_the_table_and_after_only_where_something_was_touched():
    graph = program()
    _, derivation = run(graph, Pass("both", (Halve(), Again())), limits=Limits(steps=0))
    assert derivation.steps[0].rewrite == Again() and derivation.steps[0].name == "a"
    _, derivation = run(graph, Pass("after", (Halve(),), after=(Again(),)), limits=Limits(steps=0))
    assert derivation.steps[0].rewrite == Halve() and {s.rewrite for s in derivation.steps} == {Halve(), Again()}
    assert run(graph, Pass("nothing", (), after=(Again(),)))[0] is graph


def written():
    x, w = nf.placeholder((6,), name="x"), nf.placeholder((3,), name="w")
    r = nf.axis(3, "r")
    one = nf.compute((6,), lambda i: 1.0, name="one")
    s = nf.compute((6,), lambda i: x[i] * one[i], name="s")
    a, b = (nf.compute((6,), lambda i: nf.exp(s[i]), name=n) for n in "ab")

    def body(i):
        inside = (i + r >= 1) & (i + r < 7)
        return nf.sum(nf.select(inside, b[i + r - 1] * w[r], 0.0), axis=[r])

    y = nf.compute((6,), body, name="y")
    return make_graph([a, y], [x, w])


GOLDEN = """\
0. fold constants at 2 s: an input is constant; x * 1 -> x
1. forward copies at 7 s: it is x, element by element
2. merge equal at 3 a with 4: b computes the same
stopped: nothing is left to rewrite
0. pad guards at 3 y: its guards say no more than that a is zero outside its extents
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
stopped: nothing is left to rewrite
"""


def test_the_derivation_of_a_fixed_program():
    graph, lines = written(), []
    for row in PASSES:
        graph, derivation = run(graph, row)
        lines.append(f"{derivation}\n")
    assert "".join(lines) == GOLDEN


def test_a_derivation_replays_on_an_equal_graph_and_is_equal():
    first, second = written(), written()
    for row in PASSES:
        after, derivation = run(first, row)
        other, again = run(second, row)
        assert derivation == again and derivation.replay(second).digest == after.digest == other.digest
        first, second = after, derivation.replay(second)


def test_a_derivation_does_not_replay_on_another_graph():
    _, derivation = run(written(), PASSES[0])
    x = nf.placeholder((6,), name="x")
    with pytest.raises(nf.GraphError, match=r"step 0 of the derivation, fold constants at 2 s: .*has no tensor 2"):
        derivation.replay(make_graph([nf.exp(x)], [x]))
    with pytest.raises(nf.GraphError, match="does not fit the graph: fold constants does not match mul"):
        derivation.replay(make_graph([nf.exp(x), x + x * x], [x]))


def test_a_step_that_is_not_legal_does_not_replay():
    x = nf.placeholder((4,), name="x")
    a = nf.compute((4,), lambda i: nf.exp(x[i]), name="a")
    kept = nf.compute((4,), lambda i: nf.exp(x[i]), name="kept")
    _, derivation = run(make_graph([a], [x]), Pass("again", (Again(),)), limits=Limits(steps=0))
    with pytest.raises(nf.GraphError, match="does not fit the graph: it can be done again"):
        derivation.replay(make_graph([kept], [x]))


def test_values_stay_when_choices_are_random():
    graph = program()
    rng = np.random.default_rng(0)
    feeds = {graph.inputs[0]: np.linspace(-1, 1, 4).astype(np.float32)}

    def chance(editor, legal):
        found = list(legal)
        return found[rng.integers(len(found))] if found and rng.random() < 0.7 else None

    after, derivation = run(graph, Pass("halve", (Halve(),)), chance)
    for a, b in zip(nf.evaluate(after.outputs, feeds), nf.evaluate(graph.outputs, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert derivation.replay(graph).digest == after.digest

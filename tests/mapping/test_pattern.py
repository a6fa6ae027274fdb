"""Patterns by name: each is its implementation, proved and computed, and is found in all its forms."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.mapping import CATALOGUE, pattern, patterns, remove, reroll
from neoflow.mapping.holes import hole
from neoflow.superopt import Proof
from tests.mapping.near import lstm

NAMES = [f"{p.name} {' '.join(p.holes.values())}" for p in CATALOGUE]
CELLS = [p for p in CATALOGUE if p.cell_input]
PARTS = [p for p in CATALOGUE if not p.cell_input]
FEW = [p for p in PARTS if p.letters in (tuple("DEST"), tuple("NK"), tuple("KN"), tuple("BC"), tuple("BCHOW"))]
UNPROVED = {"softmax cross entropy": "it reads at places that are data, which no family does"}
"""What `superopt.prove` does not know: the laws above check it, values and gradients."""


def marked(all_of, few):
    there = [(p, n) for p, n in zip(CATALOGUE, NAMES, strict=True) if p in all_of]
    return [pytest.param(p, marks=[] if p in few else pytest.mark.slow, id=n) for p, n in there]


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 20))])
@pytest.mark.parametrize("cell", CATALOGUE, ids=NAMES)
def test_a_cell_is_its_implementation(cell, seed):
    """Values and gradients, at random extents."""
    cell.check(seed)


def unrolled(cell, steps=5):
    sizes = {"B": 2, "I": 3, "H": 4}
    given = cell.given(sizes)
    states = {name: given[name] for name in cell.cell_input}
    xs = nf.placeholder((steps, *given["x"].shape), name="xs")
    weights = {n: t for n, t in given.items() if n not in (*states, "x")}
    inputs = [xs, *states.values(), *weights.values()]
    for t in range(steps):
        results = cell.cell(x=xs[t], **states, **weights)
        states = {name: results[n] for name, n in cell.cell_input.items()}
    return make_graph([next(iter(states.values()))], inputs)


@pytest.mark.parametrize("cell", CELLS, ids=[f"{p.name} {len(p.holes)}" for p in CELLS])
def test_a_cell_is_found(cell):
    (found,) = reroll(unrolled(cell)).found
    assert found.cell == cell.name and str(found).endswith(f"; it is {cell.name}")


SIZES = (5, 6, 7, 8, 9, 10)


def with_gradients(results, given):
    (y,) = results
    wrt = [t for t in given.values() if t.dtype == "float32"]
    return make_graph([y, *nf.vjp(y, wrt, y)], list(given.values()))


@pytest.mark.parametrize("part", marked(PARTS, FEW))
def test_a_part_is_found_in_all_its_forms(part):
    """And is worth the same, with its gradients."""
    sizes = dict(zip(part.letters, SIZES, strict=False))
    rng = np.random.default_rng(1)
    for cell in part.cells:
        given = part.given(sizes)
        graph = with_gradients(part.results(cell, {**given, **part.attributes}), given)
        found = reroll(graph)
        if part.implemented is None or part.implemented.bound(sizes, {}, [graph.outputs[0]]) is None:
            assert any(v.reason.endswith(f": {part.name}, implemented") for v in found.cells), cell
            assert found.summary.endswith("patterns implemented")
        feeds = {t: part.parts[n].draw(rng, sizes, "float32") for n, t in given.items()}
        for a, b in zip(*(nf.evaluate(list(g.outputs), feeds) for g in (graph, found.graph)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("part", marked(PARTS, FEW))
def test_an_implementation_stays(part):
    given = part.given(dict(zip(part.letters, SIZES, strict=False)))
    graph = make_graph(list(part.results(part.op_type, {**given, **part.attributes})), list(given.values()))
    assert not any(part.name in v.reason for v in reroll(graph).cells)


def test_wrong_parts():
    """What differs from a pattern in one place."""
    x, w, labels = nf.placeholder((4, 6), name="x"), nf.placeholder((6,), name="w"), nf.placeholder((4,), "int64")
    e, m = nf.exp(x), nf.mean(x, axis=-1, keepdims=True)
    z = x - m
    variance = nf.mean(z * z, axis=-1, keepdims=True)
    q, k, v = (nf.placeholder((5, 7), name=n) for n in "qkv")
    scores = nf.exp(q @ k.T)
    wrong = [
        e / nf.sum(e, axis=0, keepdims=True),
        e / nf.max(e, axis=-1, keepdims=True),
        nf.exp(x) / nf.sum(nf.exp(2.0 * x), axis=-1, keepdims=True),
        z / nf.sqrt(variance) + 1e-5,
        z / nf.sqrt(nf.mean(z * x, axis=-1, keepdims=True) * 0.5 + 1e-5),
        (x - 0.9 * m) / nf.sqrt(variance + 1e-5) * w,
        z * nf.sqrt(variance + 1e-5),
        scores @ v / nf.sum(scores),
        (scores / nf.sum(scores, axis=0, keepdims=True)) @ v,
        -nf.sum(nf.log(nf.take_along_axis(e, nf.expand_dims(labels, -1), -1))),
        nf.stop_gradient(e) / nf.sum(e, axis=-1, keepdims=True),
    ]
    for y in wrong:
        found = reroll(make_graph([y], [x, w, labels, q, k, v]))
        assert not found.cells, found.cells


@pytest.mark.parametrize("cell", marked(CATALOGUE, [*CELLS, PARTS[0], PARTS[-1]]))
def test_proofs(cell):
    """For all sizes, but for what is known to have none."""
    found = cell.proofs()
    assert len(found) >= len(cell.cells)
    assert all(isinstance(p, Proof) for p in found) is (cell.name not in UNPROVED), list(map(str, found))


def test_weights_that_lie_otherwise():
    """x @ w in place of what the catalogue has, w @ x."""
    outputs, _, inputs = lstm(8, np.random.default_rng(0))
    assert [f.cell for f in reroll(make_graph(outputs, inputs)).found] == ["LSTM"]


def leaky(x, h, w):
    return (0.9 * h + nf.tanh(x @ w),)


def better(x, h, w):
    return (nf.tanh(x @ w) + h * 0.9,)


HOLES = {"x": "BI", "h": "BH", "w": "IH"}


def test_a_user_adds_one():
    own = pattern("leaky", HOLES, leaky, {"h": 0}, better)
    assert own in patterns()
    assert [f.cell for f in reroll(unrolled(own)).found] == ["leaky"]
    remove("leaky")
    assert reroll(unrolled(own)).found[0].cell is None
    assert [f.cell for f in reroll(unrolled(own), [own]).found] == ["leaky"]


def test_an_implementation_of_other_values():
    with pytest.raises(nf.GraphError, match="pattern leaky: result 0 of its cell and of its implementation differ"):
        pattern("leaky", HOLES, leaky, {"h": 0}, lambda x, h, w: (nf.tanh(x @ w) + h * 0.8,))


def test_an_implementation_of_other_gradients():
    def other(x, h, w):
        return (nf.tanh(nf.stop_gradient(x) @ w) + h * 0.9,)

    with pytest.raises(nf.GraphError, match="pattern leaky: gradient 0 of its cell and of its implementation differ"):
        pattern("leaky", HOLES, leaky, {"h": 0}, other)


@pytest.mark.parametrize(
    "given, message",
    [
        (("", HOLES, leaky, {}, leaky), "a pattern has a name, not ''"),
        (("p", ["x"], leaky, {}, leaky), "holes of a pattern is a dict by names of holes, not"),
        (("p", {}, leaky, {}, leaky), "pattern p: a cell has holes"),
        (("p", {"x": "b"}, leaky, {}, leaky), "a hole is letters of extents, like BH, B4H, N<K or ST\\?, not 'b'"),
        (("p", HOLES, 3, {}, leaky), "pattern p: a cell is a function of its holes, not 3"),
        (("p", HOLES, leaky, {}, leaky, {}, "ab"), "pattern p: forms is a list of functions, not 'ab'"),
        (("p", HOLES, lambda x: (x,), {}, leaky), "pattern p: its cell takes x, h, w: "),
        (("p", HOLES, lambda x, h, w: x, {}, leaky), "pattern p: a cell gives a tuple of tensors"),
        (("p", HOLES, leaky, {"h": 1}, leaky), "pattern p: cell_input leads from one of 1 results to a hole, not h: 1"),
    ],
)
def test_what_is_no_pattern(given, message):
    with pytest.raises(nf.GraphError, match=message):
        pattern(*given)


def test_what_is_not_there():
    with pytest.raises(nf.GraphError, match="there is no pattern 'p' of one's own; there are none"):
        remove("p")


def test_holes():
    rng = np.random.default_rng(0)
    assert hole("B4H").shape({"B": 2, "H": 3}) == (2, 12) and hole("OC_3").shape({"O": 2, "C": 4}) == (2, 4, 3)
    assert hole("ST?").dtype("float32") == "bool" and hole("N<K").dtype("float32") == "int64"
    assert hole("N<K").draw(rng, {"N": 50, "K": 3}, "float32").max() == 2

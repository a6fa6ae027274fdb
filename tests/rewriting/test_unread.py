"""Contractions of which slices are read: what is read is computed, the rest is not."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import canonicalize, is_contraction, make_graph, optimize
from neoflow.models import build_model
from neoflow.rewriting.unread import Narrowed, boxes_of, only_read
from tests.chance import Chance


def program(seed):
    """A product of random extents, and slices of slices of it, each read by something."""
    make = Chance(np.random.default_rng(seed))
    rows, columns = make.between(2, 6), make.between(4, 12)
    x = nf.placeholder((rows, 5), name="x")
    w = nf.parameter((columns, 5), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    y = nf.nn.functional.linear(x, w)
    results = []
    for _ in range(make.between(1, 4)):
        row = make.between(0, rows - 1)
        low = make.between(0, columns - 1)
        high = make.between(low + 1, columns)
        part = y[row : row + make.between(1, rows - row), low:high]
        if make.chance(0.4):
            part = part[:, : make.between(1, high - low)]
        results.append(nf.sum(nf.tanh(part)))
    if make.chance(0.15):
        results.append(nf.sum(nf.exp(y)))
    return make_graph(results, [x])


def contracted(graph):
    """Elements that contractions compute."""
    return sum(t.size for t in graph.nodes if is_contraction(t.definition))


def law(seed):
    """Whether a random program computes less; its values are as they were."""
    graph = canonicalize(program(seed))
    after = only_read(graph)
    after.check()
    rng = np.random.default_rng(seed)
    feeds = {t: rng.standard_normal(t.shape) for t in (*graph.inputs, *graph.parameters)}
    for g in (after, optimize(after)):
        values = (nf.evaluate(list(h.outputs), feeds, dtype="float64") for h in (g, graph))
        for a, b in zip(*values, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    if after is graph:
        return False
    assert contracted(after) <= 0.9 * contracted(graph)
    return True


def test_values_stay_when_less_is_computed():
    assert sum(law(seed) for seed in range(20)) >= 6


@pytest.mark.parametrize(
    "read, found",
    [
        ([((0, 4), (0, 8))], None),
        ([((0, 4), (0, 4)), ((3, 4), (4, 8))], [((0, 4), (0, 4)), ((3, 4), (4, 8))]),
        ([((0, 2), (2, 4))], [((0, 2), (2, 4))]),
        ([((0, 4), (0, 4)), ((0, 4), (4, 6)), ((3, 4), (6, 8))], [((0, 4), (0, 6)), ((3, 4), (6, 8))]),
    ],
)
def test_boxes_hold_what_is_read(read, found):
    """Of 4 x 8 elements."""
    assert boxes_of(read, 32) == found


def test_what_is_read_whole_or_returned_stays():
    x = nf.placeholder((4, 8), name="x")
    w = nf.parameter((6, 8), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    y = nf.nn.functional.linear(x, w)
    for outputs in ([y, y[0, :2]], [nf.exp(y), y[0, :2]]):
        graph = canonicalize(make_graph(outputs, [x]))
        assert only_read(graph) is graph


def test_a_gate_of_the_last_step_is_computed_once():
    """The simple recurrent unit reads its last gate at its last step alone: a third of its sums fall away."""
    model = build_model("sru_rnntc", 1, steps=4, width=16)
    graph = canonicalize(make_graph([model.scores], [model.x]))
    after = Narrowed().replay(graph)
    assert contracted(after) <= 0.76 * contracted(graph)

"""Reductions that agree but for one extent: where they are one, and why not."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Parameter
from neoflow.graph import Pass, make_graph, run
from neoflow.graph.widen import WidenShared, concatenated, forms

WIDEN = Pass("widen", (WidenShared(),))


def widened(outputs, inputs):
    """The graph after the rewrite, and its derivation; values stay."""
    graph = make_graph(outputs, [t for t in inputs if not isinstance(t, Parameter)])
    after, derivation = run(graph, WIDEN)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (graph, after)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    return after, derivation


def projections(widths, rows=64, inner=32, last=True):
    """Products of one matrix by several, with as many columns, or as many rows."""
    x, k = nf.placeholder((rows, inner), name="x"), nf.axis(inner, "k")
    ws = [nf.parameter((inner, n), name=f"w{n}") for n in widths]
    ys = [nf.compute((rows, w.shape[1]), lambda i, j, w=w: nf.sum(x[i, k] * w[k, j], axis=[k])) for w in ws]
    if not last:
        ys = [nf.compute((w.shape[1], rows), lambda j, i, w=w: nf.sum(x[i, k] * w[k, j], axis=[k])) for w in ws]
    return ys, [x, *ws]


@pytest.mark.parametrize("last", [True, False])
def test_projections_of_several_widths_are_one(last):
    ys, inputs = projections((8, 16, 12), 512, last=last)
    after, derivation = widened([nf.tanh(y[::2]) for y in ys], inputs)
    (one,) = [t for t in after.nodes if t.definition.has_reduction]
    assert one.shape == ((512, 36) if last else (36, 512))
    assert derivation.steps[0].reason.startswith("one for 3 takes about ")


def test_branches_of_an_image_are_one_however_their_windows_go():
    x = nf.placeholder((16, 4, 9, 9), name="x")
    ws = [nf.parameter((n, 4, 3, 3), name=f"w{n}") for n in (3, 5)]
    ys = [nf.nn.functional.conv2d(x, w, stride=2) for w in ws]
    after, _ = widened([nf.concat([nf.relu(y) for y in ys], axis=1)], [x, *ws])
    assert [t.shape for t in after.nodes if t.definition.has_reduction] == [(16, 8, 4, 4)]


def test_what_kernels_write_is_not_copied():
    ys, inputs = projections((8, 16), rows=32)
    x, k = inputs[0], nf.axis(32, "k")
    made = [nf.tanh(nf.transpose(w)) for w in inputs[1:]]
    ys = [nf.compute((32, w.shape[0]), lambda i, j, w=w: nf.sum(x[i, k] * w[j, k], axis=[k])) for w in made]
    _, derivation = widened([nf.exp(y[::2]) for y in ys], inputs)
    assert derivation.steps[0].reason.endswith("with 0 bytes for copies")


@pytest.mark.parametrize(
    "widths, rows, reason",
    [
        ((2, 16), 64, "they are from 2 to 16 wide: a narrow one packs nothing"),
        ((16, 24), 8, f"{2 * 40 * 32 * 4} bytes would be copied, to share {8 * 32 * 4}"),
    ],
)
def test_what_does_not_pay_is_left(widths, rows, reason):
    ys, inputs = projections(widths, rows)
    _, derivation = widened([nf.exp(y[::2]) for y in ys], inputs)
    assert not derivation.steps and {s.reason for s in derivation.refused} == {reason}


def test_long_ones_of_little_input_take_as_long_apart():
    ys, inputs = projections((96, 128), rows=128, inner=2048)
    _, derivation = widened([nf.exp(y) for y in ys], inputs)
    assert all("would" in s.reason for s in derivation.refused) and not derivation.steps


def test_one_that_needs_another_is_left():
    x, k = nf.placeholder((16, 16), name="x"), nf.axis(16, "k")
    w = nf.parameter((16, 8), name="w")
    y = nf.compute((16, 8), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]))
    v = nf.concat([y, y], axis=1)
    z = nf.compute((16, 16), lambda i, j: nf.sum(x[i, k] * v[k, j], axis=[k]))
    _, derivation = widened([nf.exp(z)], [x, w])
    assert [s.reason for s in derivation.refused] == [f"{z.name} needs another of them"]


def test_forms_say_which_extent_is_free():
    x, w, k = nf.placeholder((4, 6), name="x"), nf.placeholder((6, 5), name="w"), nf.axis(6, "k")
    y = nf.compute((4, 5), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]))
    assert [(f.at, f.own) for f in forms(y.definition)] == [(0, ((0, 0),)), (1, ((1, 1),))]
    guarded = nf.compute((4, 5), lambda i, j: nf.sum(nf.select(j < 3, x[i, k] * w[k, j], 0.0), axis=[k]))
    assert [f.at for f in forms(guarded.definition)] == [0]
    sliced = nf.compute((4, 4), lambda i, j: nf.sum(x[i, k] * w[k, j + 1], axis=[k]))
    assert [f.at for f in forms(sliced.definition)] == [0]


def test_concatenated_parts_lie_one_behind_the_other():
    parts = [nf.placeholder((2, n), name=f"p{n}") for n in (1, 3, 2)]
    feeds = {p: np.random.default_rng(n).standard_normal(p.shape).astype(np.float32) for n, p in enumerate(parts)}
    (found,) = nf.evaluate([concatenated(parts, 1, "all")], feeds)
    np.testing.assert_array_equal(found, np.concatenate(list(feeds.values()), axis=1))

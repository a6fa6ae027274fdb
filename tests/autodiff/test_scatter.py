"""Data-dependent reads: their adjoint scatters, and is differentiable again."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.count import count_ops
from neoflow.expr.ir import Scatter
from neoflow.expr.tensor import Compute, topological

RNG = np.random.default_rng(0)


def scatters(tensors):
    return [t for t in topological(tensors) if isinstance(t, Compute) and isinstance(t.definition.body, Scatter)]


def embedding(vocabulary=50, width=6, shape=(4, 5)):
    table = nf.placeholder((vocabulary, width), name="table")
    ids = nf.placeholder(shape, "int64", name="ids")
    rows = nf.compute((*shape, width), lambda b, t, h: table[ids[b, t], h])
    return table, ids, rows, {ids: RNG.integers(0, 7, shape)}  # few rows, so that they repeat


def test_embedding_gradient_scatters():
    table, _, rows, feeds = embedding()
    y = nf.tanh(rows) * rows
    assert nf.check_grad(y, [table], feeds, samples=80) <= 1
    (d,) = nf.vjp(y, [table])
    assert scatters([d])
    assert count_ops([d]).other < 20 * rows.size  # not vocabulary times rows


def test_embedding_double_backward():
    table, _, rows, feeds = embedding()
    (d,) = nf.vjp(nf.exp(rows * 0.3), [table])
    y = nf.sum(d * nf.sin(table))
    assert nf.check_grad(y, [table], feeds, samples=80) <= 1


def test_axes_the_index_does_not_use_are_summed_first():
    table = nf.placeholder((60, 3), name="table")
    ids = nf.placeholder((4,), "int64", name="ids")
    w = nf.placeholder((4, 3, 8), name="w")
    h = nf.axis(3, "h")
    y = nf.compute((4, 8), lambda b, j: nf.sum(table[ids[b], h] * w[b, h, j], axis=[h]))
    feeds = {ids: np.array([5, 59, 5, 0])}
    assert nf.check_grad(y, [table, w], feeds, samples=80) <= 1
    (found,) = scatters(nf.vjp(y, [table]))
    assert found.inputs[0].shape == (4, 3) or found.inputs[1].shape == (4, 3)


def test_guarded_index_is_only_read_in_its_branch():
    table = nf.placeholder((60,), name="table")
    ids = nf.placeholder((8,), "int64", name="ids")
    y = nf.compute((8,), lambda i: nf.select(i % 2 == 0, nf.exp(table[ids[i]]), 0.0))
    feeds = {ids: np.array([5, 999, 5, -3, 0, 60, 59, 77])}
    assert nf.check_grad(y, [table], feeds, samples=60) <= 1


def test_one_row_a_point_stays_a_gather():
    logits = nf.placeholder((4, 10), name="logits")
    labels = nf.placeholder((4,), "int64", name="labels")
    y = nf.compute((4,), lambda b: logits[b, labels[b]])
    (d,) = nf.vjp(y, [logits])
    assert not scatters([d])
    assert nf.check_grad(y, [logits], {labels: np.array([3, 9, 0, 3])}, samples=40) <= 1


@pytest.mark.torch
def test_against_torch():
    torch = pytest.importorskip("torch")
    table, ids, rows, feeds = embedding()
    feeds[table] = RNG.standard_normal(table.shape)
    (d,) = nf.evaluate(nf.vjp(nf.sum(rows * rows * rows), [table]), feeds, dtype="float64")
    weight = torch.tensor(feeds[table], requires_grad=True)
    (torch.nn.functional.embedding(torch.tensor(feeds[ids]), weight) ** 3).sum().backward()
    np.testing.assert_allclose(d, weight.grad.numpy(), rtol=1e-12)

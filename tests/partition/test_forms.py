"""Kernels of what every training step has: how many a loss and a recurrent cell take, forward and backward."""

import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.models import build_model
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.train.step import program

PAPERS = 35
"""Distinct subgraphs of MI-LSTM's step in NeoFlow's table."""


def calls_of(outputs, inputs, updates=None):
    return partition(optimize(make_graph(outputs, inputs, updates))).calls


def test_a_softmax_with_its_cross_entropy_and_gradient_is_one_kernel():
    x, labels = nf.placeholder((64, 32), name="x"), nf.placeholder((64,), "int32", name="labels")
    w = nf.parameter((32, 100), name="w")
    loss = F.cross_entropy(x @ w, labels)
    calls = calls_of([loss], [x, labels], {w: w - 0.1 * nf.grad(loss, [w])[0]})
    shapes = [[t.shape for t in call.outputs] for call in calls]
    assert shapes == [[(64, 100)], [(64, 1), (64, 1), (64, 100)], [()], [(32, 100)]]
    exponentials = [call for call in calls if "exp(" in str(call.subgraph)]
    assert len(exponentials) == 1, "the gradient is made of the same exponentials"


@pytest.mark.parametrize(("name", "steps"), [("mi_lstm_ptb", 20), ("mi_lstm_mnist", 28)])
def test_a_cell_takes_few_calls_a_step(name, steps):
    """Forward a product and a map, backward a product, a map, and what its weights' gradients take."""
    calls = calls_of(*program(build_model(name, 64)))
    distinct = {call.subgraph.digest for call in calls}
    assert len(distinct) < PAPERS
    assert len(calls) <= 9 * steps
    forward = [call for call in calls if not any(t.name.startswith("d_") for t in call.outputs)]
    assert len(forward) <= 2 * steps + 12

"""The recurrent nodes of ONNX, and what PyTorch exports, are loops of known cells."""

import warnings

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.mapping import reroll

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.onnx

STEPS, BATCH, WIDTH, HIDDEN = 7, 2, 3, 4
ROWS = [
    ("LSTM", 4, {}, "LSTM, gates iofg together"),
    ("GRU", 3, {}, "GRU, gates zrn together, reset before"),
    ("GRU", 3, {"linear_before_reset": 1}, "GRU, gates zrn together"),
    ("RNN", 1, {}, "RNN, inputs of all steps"),
    ("RNN", 1, {"activations": ["Relu"]}, "RNN, relu, inputs of all steps"),
]


def loaded(path, kind, gates, direction, attributes):
    """A node of that kind, with biases, as PyTorch's exporter writes its layers."""
    rng = np.random.default_rng(0)
    ways = 2 if direction == "bidirectional" else 1
    if ways == 2 and "activations" in attributes:
        attributes = {"activations": attributes["activations"] * 2}
    shapes = {"w": (gates * HIDDEN, WIDTH), "r": (gates * HIDDEN, HIDDEN), "b": (2 * gates * HIDDEN,)}
    arrays = [
        onnx.numpy_helper.from_array(rng.standard_normal((ways, *s)).astype(np.float32), n) for n, s in shapes.items()
    ]
    node = onnx.helper.make_node(
        kind, ["x", "w", "r", "b"], ["y"], hidden_size=HIDDEN, direction=direction, **attributes
    )
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [STEPS, BATCH, WIDTH])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [STEPS, ways, BATCH, HIDDEN])
    graph = onnx.helper.make_graph([node], "g", [x], [y], arrays)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return nf.onnx.load(path)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("row", ROWS, ids=[name for *_, name in ROWS])
def test_a_node_is_a_loop_of_a_known_cell(row, direction, tmp_path):
    kind, gates, attributes, name = row
    model = loaded(tmp_path / "model.onnx", kind, gates, direction, attributes)
    graph = make_graph(list(model.outputs), list(model.inputs))
    found = reroll(graph)
    ways = 2 if direction == "bidirectional" else 1
    assert [(f.cell, f.run.recurrence.steps) for f in found.found] == [(name, STEPS)] * ways
    feeds = {model.inputs[0]: np.random.default_rng(1).standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)}
    feeds |= {p: p.init for p in graph.parameters}
    np.testing.assert_allclose(
        *(nf.evaluate(list(g.outputs), feeds)[0] for g in (graph, found.graph)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.torch
@pytest.mark.parametrize("ways", [1, 2], ids=["forward", "both ways"])
@pytest.mark.parametrize("layer, name", [("LSTM", ROWS[0][3]), ("GRU", ROWS[2][3]), ("RNN", ROWS[3][3])])
def test_what_pytorch_exports(layer, name, ways, tmp_path):
    torch = pytest.importorskip("torch")
    made = getattr(torch.nn, layer)(WIDTH, HIDDEN, num_layers=2, bidirectional=ways == 2)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(made, (torch.randn(STEPS, BATCH, WIDTH),), path, dynamo=False, input_names=["x"])
    model = nf.onnx.load(path)
    graph = make_graph(list(model.outputs), list(model.inputs))
    found = reroll(graph)
    assert [(f.cell, f.run.recurrence.steps) for f in found.found] == [(name, STEPS)] * 2 * ways
    assert sum(f.run.recurrence.is_reversed for f in found.found) == 2 * (ways - 1)
    given = np.random.default_rng(1).standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)
    (value,) = nf.evaluate([found.graph.outputs[0]], {model.inputs[0]: given, **{p: p.init for p in graph.parameters}})
    with torch.no_grad():
        wanted = made(torch.from_numpy(given))[0].numpy()
    np.testing.assert_allclose(value.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)

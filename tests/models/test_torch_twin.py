"""The PyTorch peers against figures from an independent float64 implementation (tests/data/expected_capsnet.json)."""

import json
from pathlib import Path

import numpy as np
import pytest

from neoflow import fill

pytest.importorskip("torch")

from benchmarks.peers import torch_capsnet

pytestmark = pytest.mark.torch

EXPECTED = json.loads((Path(__file__).parents[1] / "data" / "expected_capsnet.json").read_text())


def make(batch: int):
    shapes = torch_capsnet.parameter_shapes()
    parameters = {n: fill.parameter("capsnet", n, s, torch_capsnet.FAN_IN[n]) for n, s in shapes.items()}
    return parameters, fill.inputs("capsnet", (batch, 1, 28, 28)), fill.labels("capsnet", (batch,), 10)


def assert_agrees(gradient: np.ndarray, expected: dict) -> None:
    """Sampled entries to 1e-3 of the largest entry, the norm to 1e-3, the sum to 1e-3 of the sum of magnitudes."""
    entries = gradient.reshape(-1)[np.linspace(0, gradient.size - 1, 8).astype(int)]
    wide = gradient.astype(np.float64)
    np.testing.assert_allclose(entries, expected["entries"], rtol=0, atol=1e-3 * np.abs(wide).max())
    np.testing.assert_allclose(np.linalg.norm(wide), expected["norm"], rtol=1e-3)
    np.testing.assert_allclose(wide.sum(), expected["sum"], rtol=0, atol=1e-3 * np.abs(wide).sum())


@pytest.mark.parametrize("batch", [1, 16])
def test_capsnet(batch):
    expected = EXPECTED[f"capsnet/{batch}"]
    parameters, x, y = make(batch)
    loss, gradients = torch_capsnet.loss_and_grads(parameters, x, y)
    assert loss == pytest.approx(expected["loss"], rel=1e-5)
    for name, entry in expected["parameters"].items():
        assert list(gradients[name].shape) == entry["shape"]
        assert_agrees(gradients[name], entry["gradient"])


def test_step_descends_in_place():
    parameters, x, y = make(1)
    before = {name: value.copy() for name, value in parameters.items()}
    loss, gradients = torch_capsnet.loss_and_grads(parameters, x, y)
    model = torch_capsnet.CapsNet(parameters)
    assert model.step(x, y) == pytest.approx(loss, rel=1e-6)
    for name, value in model.parameters().items():
        np.testing.assert_array_equal(parameters[name], before[name])  # the caller's arrays stay
        np.testing.assert_allclose(value, before[name] - 0.01 * gradients[name], atol=1e-6)
    assert model.infer(x).shape == (1, 10)


def test_sizes_by_argument():
    shapes = torch_capsnet.parameter_shapes(kernel=3, primary=2, capsules=3, side=2, image=17, classes=4, out=6)
    assert shapes["digit"] == (3 * 3 * 3, 4, 6, 4)
    parameters = {n: fill.parameter("small", n, s) for n, s in shapes.items()}
    lengths = torch_capsnet.infer(parameters, fill.inputs("small", (5, 1, 17, 17)))
    assert lengths.shape == (5, 4)


@pytest.mark.parametrize("batch", [1, 16])
def test_capsconv(batch):
    """`capsule_conv` on the operator of its own: C[b,o,p,q,i,j], 9x9 kernels, loss mean(C * G)."""
    torch = pytest.importorskip("torch")
    expected = EXPECTED[f"capsconv/{batch}"]
    a = torch.from_numpy(fill.inputs("capsconv", (batch, 32, 20, 20, 4, 4))).requires_grad_()
    w = torch.from_numpy(fill.parameter("capsconv", "w", (32, 32, 9, 9, 4, 4), fan_in=10368)).requires_grad_()
    g = torch.from_numpy(fill.fill("capsconv/g", (batch, 32, 6, 6, 4, 4), 1, 0))
    y = torch_capsnet.capsule_conv(a.permute(4, 0, 2, 3, 5, 1).reshape(4, batch, 20, 20, 128), w)  # [I, B, P, Q, J*O]
    loss = (y.unflatten(4, (4, 32)).permute(1, 5, 2, 3, 0, 4) * g).mean()
    loss.backward()
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-5, abs=1e-8)
    assert_agrees(w.grad.numpy(), expected["parameters"]["w"]["gradient"])
    assert_agrees(a.grad.numpy(), expected["input_gradients"][0])

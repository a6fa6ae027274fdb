"""The convolutions of capsules alone: a step gives the gradients of weights and input, and updates nothing."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.models import build_model, find_peer
from neoflow.nn import Model
from neoflow.report.agreement import widened
from neoflow.train.step import reset, sgd_updates, train_step
from tests.models.agreement import assert_gradients, expected, interpreted

TRUE = [("capsconv", "capsnet", "capsconv/1"), ("capsconv8", "capsconv8", "capsconv8/1")]
SMALL = {
    "capsconv": {"capsules": 2, "side": 2, "image": 7, "kernel": 3},
    "capsconv8": {"elements": 3, "capsules": 2, "channels": 4, "image": 7, "kernel": 3},
}


def figures_of(file: str, key: str) -> dict:
    """The gradient of x beside those of the parameters."""
    found = expected(file, key)
    found["parameters"]["x"] = {"gradient": found["input_gradients"][0]}
    return found


def stepped(model: Model) -> tuple[float, dict[str, np.ndarray]]:
    """The loss and the gradients that a compiled step leaves."""
    reset(model)
    loss = train_step(model)(*model.example())[0]
    return float(loss), {p.name.removesuffix(".gradient"): nf.get_value(p) for p in model.state}


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.parametrize(("name", "file", "key"), TRUE)
def test_loss_and_gradients(name, file, key):
    figures, model = figures_of(file, key), build_model(name, 1)
    loss, gradients = stepped(model)
    np.testing.assert_allclose(loss, figures["loss"], rtol=1e-5, atol=1e-8)
    assert_gradients(gradients, figures, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file", "key"), TRUE)
def test_by_definition(name, file, key):
    figures, model = figures_of(file, key), build_model(name, 1)
    loss, of_w, of_x = interpreted(model, [model.loss, *model.state.values()])
    np.testing.assert_allclose(loss, figures["loss"], rtol=1e-8)
    assert_gradients({"w": of_w, "x": of_x}, figures, rel=1e-8)


@pytest.mark.torch
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=[pytest.mark.jax, pytest.mark.slow])])
def test_peers(name, framework):
    """Gradients of both as the interpreter has them; a step changes no parameter."""
    model = build_model(name, 2, **SMALL[name])
    peer = find_peer(framework, name, widened(model.values()))
    x, weights = (a.astype(np.float64) for a in model.example())
    loss, *wanted = interpreted(model, [model.loss, *model.state.values()])
    assert peer.step(x, weights) == pytest.approx(float(loss), rel=1e-9)
    found = peer.every_gradient(x, weights)[1]
    for value, exact in zip((found["w"], found["x"]), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(value), exact, atol=1e-9 * np.abs(exact).max())
    np.testing.assert_array_equal(peer.parameters()["w"], model.values()["w"])
    scores = interpreted(model, [model.scores])[0]
    np.testing.assert_allclose(peer.infer(x), scores, atol=1e-9 * np.abs(scores).max())


def test_nothing_is_updated():
    model = build_model("capsconv", 1, **SMALL["capsconv"])
    assert sgd_updates(model, nf.grad(model.loss, list(model.parameters.values()))) == model.state
    assert [p.name for p in model.state] == ["w.gradient", "x.gradient"]
    assert model.example()[1].dtype == np.float32

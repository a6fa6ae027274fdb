"""The JAX peers in float64 against figures from an independent implementation, and their steps against NumPy."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.models import build_model, find_model, find_peer
from neoflow.nn import Model
from neoflow.report.agreement import widened
from tests.models.agreement import assert_gradients, expected

pytest.importorskip("jax")
pytestmark = pytest.mark.jax

CASES = [
    "capsnet/1",
    "mi_lstm_mnist/64",
    pytest.param("capsnet/16", marks=pytest.mark.slow),
    pytest.param("mi_lstm_ptb/64", marks=pytest.mark.slow),
    pytest.param("ptb_lstm/20", marks=pytest.mark.slow),
    "bert_layer/1",
    pytest.param("bert/1", marks=pytest.mark.slow),
    pytest.param("resnet18/1", marks=pytest.mark.slow),
    pytest.param("resnet50/1", marks=pytest.mark.slow),
    pytest.param("shufflenet/1", marks=pytest.mark.slow),
    *(
        pytest.param(key, marks=pytest.mark.slow)
        for key in (
            "scrnn_ptb/64",
            "sublstm_ptb/64",
            "lltm_ptb/64",
            "nasrnn/64",
            "sru_rnntc/64",
            "mobilenet/1",
            "squeezenet/1",
            "resnext50/1",
            "inception_v3/1",
            "nasnet_a/1",
            "capsconv8/1",
        )
    ),
]
SMALL = {
    "capsnet": {"image": 17, "classes": 4, "kernel": 3, "primary": 2, "capsules": 3, "side": 2, "out": 6},
    "mi_lstm": {"steps": 3, "inputs": 4, "hidden": 5, "classes": 3},
    "ptb_lstm": {"words": 7, "hidden": 4, "steps": 3},
    "bert": {"layers": 2, "length": 5, "width": 128, "heads": 2, "inner": 6},
    "resnet18": {"image": 32, "classes": 5},
    "shufflenet": {"image": 32, "classes": 5, "stages": ((240, 2), (480, 1))},
}


def wide_peer(name: str, model: Model):
    """The peer, and the model's example, in float64."""
    x, labels = model.example()
    arrays = widened({**model.values(), "x": x})
    x = arrays.pop("x")
    return find_peer("jax", name, arrays), x, labels


@pytest.mark.parametrize("key", CASES)
def test_loss_and_gradients(key):
    name, batch = key.split("/")
    figures = expected(find_model(name)[0].stem, key)
    peer, x, labels = wide_peer(name, build_model(name, int(batch)))
    loss, gradients = peer.loss_and_grads(x, labels)
    np.testing.assert_allclose(loss, figures["loss"], rtol=1e-8)
    assert gradients.keys() == figures["parameters"].keys()
    assert_gradients(gradients, figures, rel=1e-8)


@pytest.mark.parametrize("name", SMALL)
def test_a_step_updates_parameters_and_statistics(name):
    """p -= lr dp, and scores by the running statistics of one step: as NumPy computes them in float64."""
    model = build_model(name, 2, **SMALL[name])
    peer, x, labels = wide_peer(name, model)
    parameters = list(model.parameters.values())
    feeds = {**model.initial(), model.x: x, model.labels: labels}
    roots = [model.loss, *nf.grad(model.loss, parameters), *model.state.values()]
    loss, *values = nf.evaluate(roots, feeds, dtype="float64")
    assert peer.step(x, labels, lr=0.1) == pytest.approx(float(loss), rel=1e-9)
    after = {p: feeds[p] - 0.1 * g for p, g in zip(parameters, values, strict=False)}
    found = peer.parameters()
    for n, p in model.parameters.items():
        np.testing.assert_allclose(found[n], after[p], rtol=0, atol=1e-9 * np.abs(after[p]).max(), err_msg=n)
    after |= dict(zip(model.state, values[len(parameters) :], strict=True))
    (scores,) = nf.evaluate([model.scores], {**after, model.x: x, model.labels: labels}, dtype="float64")
    np.testing.assert_allclose(peer.infer(x), scores, rtol=1e-7)


def test_float32_stays_float32():
    model = build_model("mi_lstm", 2, **SMALL["mi_lstm"])
    peer = find_peer("jax", "mi_lstm", model.values())
    _, gradients = peer.loss_and_grads(*model.example())
    assert {g.dtype for g in gradients.values()} == {np.dtype("float32")}

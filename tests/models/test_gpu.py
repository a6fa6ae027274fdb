"""Training steps of whole models on a GPU, which is the emulator: small, so that it takes seconds."""

import numpy as np
import pytest

import neoflow as nf
from models import mi_lstm, shufflenet
from neoflow.train.step import reset, sgd_updates
from tests.emulator.driver import emulated

MODELS = {
    "mi_lstm": lambda: mi_lstm.build(3, steps=3, inputs=5, hidden=8),
    "shufflenet": lambda: shufflenet.build(2, stages=((48, 2),), image=16, classes=5),
}


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training_steps_are_those_of_the_cpu(monkeypatch, name):
    emulated(monkeypatch, checked=False)
    model, rng = MODELS[name](), np.random.default_rng(0)
    x = rng.normal(size=model.x.shape).astype(np.float32)
    labels = rng.integers(0, model.classes, model.labels.shape)
    updates = sgd_updates(model, nf.grad(model.loss, list(model.parameters.values())))
    found = {}
    for target in ("cpu", "cuda"):
        reset(model)
        step = nf.compile([model.loss], model.inputs, updates, target=target)
        losses = [float(step(x, labels)[0]) for _ in range(3)]
        found[target] = losses, {p.name: nf.get_value(p) for p in updates}
    np.testing.assert_allclose(found["cuda"][0], found["cpu"][0], rtol=1e-4)
    for name, value in found["cpu"][1].items():
        np.testing.assert_allclose(found["cuda"][1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)

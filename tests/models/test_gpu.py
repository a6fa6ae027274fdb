"""Training steps of whole models on a GPU, which is the emulator, every access checked: small, a minute or two.

What NumPy makes of the loss and of every parameter is what the step makes, forward, backward and update.
"""

import numpy as np
import pytest

import neoflow as nf
from models import capsnet, mi_lstm, shufflenet
from neoflow.train.step import reset, sgd_updates
from tests.emulator.driver import emulated

SMALL = {"image": 13, "kernel": 3, "classes": 3, "primary": 2, "capsules": 3, "side": 2, "out": 4, "rounds": 3}
MODELS = {
    "capsnet": lambda: capsnet.build(2, **SMALL),
    "mi_lstm": lambda: mi_lstm.build(3, steps=3, inputs=5, hidden=8),
    "shufflenet": lambda: shufflenet.build(2, stages=((48, 2),), image=16, classes=5),
}


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_training_steps_are_those_of_numpy(monkeypatch, name):
    emulated(monkeypatch)
    model, rng = MODELS[name](), np.random.default_rng(0)
    x = rng.normal(size=model.x.shape).astype(np.float32)
    labels = rng.integers(0, model.classes, model.labels.shape)
    updates = sgd_updates(model, nf.grad(model.loss, list(model.parameters.values())))
    step = nf.compile([model.loss], model.inputs, updates, target="cuda")
    reset(model)
    for _ in range(2):
        feeds = {model.x: x, model.labels: labels, **{p: nf.get_value(p) for p in updates}}
        loss, *wanted = nf.evaluate([model.loss, *updates.values()], feeds)
        np.testing.assert_allclose(step(x, labels)[0], loss, rtol=1e-5)
        assert sum(np.array_equal(value, feeds[p]) for p, value in zip(updates, wanted, strict=True)) < len(updates) / 3
        for p, value in zip(updates, wanted, strict=True):
            np.testing.assert_allclose(nf.get_value(p), value, rtol=1e-3, atol=1e-6, err_msg=p.name)

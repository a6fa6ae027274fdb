"""`NEOFLOW_WITH=mapping`: off unless it is asked for, and worth the same."""

import re

import numpy as np
import pytest

import neoflow as nf
from models import ptb_lstm_native


def losses(steps=3):
    model = ptb_lstm_native.build(2, words=11, hidden=4, steps=6, layers=1)
    weights = list(model.parameters.values())
    gradients = nf.grad(model.loss, weights)
    updates = {w: w - 0.5 * g for w, g in zip(weights, gradients, strict=True)}
    f = nf.compile([model.loss], list(model.inputs), updates)
    x, labels = model.example()
    return f, [float(f(x, labels)[0]) for _ in range(steps)]


@pytest.mark.tvm
def test_training_with_and_without(monkeypatch):
    f, without = losses()
    with pytest.raises(nf.ConfigError, match="there is no stage 'mapping'"):
        f.explain("mapping")
    monkeypatch.setenv("NEOFLOW_WITH", "mapping")
    f, mapped = losses()
    assert "6 steps of one cell in place of" in f.explain("mapping")
    assert "7 gradients derived anew" in f.explain("mapping")
    assert re.search("about .* us as loops, .* written out", f.explain("mapping"))
    np.testing.assert_allclose(mapped, without, rtol=1e-5)
    assert without[0] > without[-1]


def test_what_there_is_not(monkeypatch):
    x = nf.placeholder((2,))
    monkeypatch.setenv("NEOFLOW_WITH", "magic")
    with pytest.raises(nf.ConfigError, match="no transformation 'magic' to ask for; there is mapping"):
        nf.compile([x + 1.0], [x])

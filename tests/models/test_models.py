"""The models of `models/` against figures from an independent float64 implementation; by default the loss alone."""

import numpy as np
import pytest

import neoflow as nf
from models import bert, mi_lstm, ptb_lstm, resnet, shufflenet
from tests.models.agreement import assert_agrees, expected

CASES = [
    (mi_lstm, "mi_lstm_mnist/64"),
    (mi_lstm, "mi_lstm_ptb/64"),
    (ptb_lstm, "ptb_lstm/20"),
    (bert, "bert_layer/1"),
    (resnet, "resnet18/1"),
    (shufflenet, "shufflenet/1"),
    pytest.param(resnet, "resnet50/1", marks=pytest.mark.slow),
    pytest.param(bert, "bert/1", marks=pytest.mark.slow),
]


def make(module, key):
    variant, batch = key.split("/")
    return module.build(int(batch), **module.VARIANTS[variant]), expected(module.__name__.rsplit(".", 1)[-1], key)


@pytest.mark.parametrize(("module", "key"), CASES)
def test_loss(module, key):
    assert_agrees(*make(module, key), gradients=False)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "key"), CASES)
def test_gradients(module, key):
    assert_agrees(*make(module, key), gradients=True)


SMALL = [
    (mi_lstm, {"steps": 3, "inputs": 4, "hidden": 5, "classes": 3}),
    (ptb_lstm, {"words": 7, "hidden": 4, "steps": 3}),
    (bert, {"layers": 2, "length": 5, "width": 8, "heads": 2, "inner": 6}),
    (resnet, {"image": 32, "classes": 5}),
    (shufflenet, {"image": 32, "classes": 5, "stages": ((240, 2), (480, 1))}),
]


@pytest.mark.parametrize(("module", "sizes"), SMALL)
def test_sizes_by_argument(module, sizes):
    """Other sizes build, differentiate, and give the same scores in training and inference where nothing differs."""
    model = module.build(2, **sizes)
    assert len(nf.grad(model.loss, list(model.parameters.values()))) == len(model.parameters)
    x, labels = model.example()
    assert x.shape == model.x.shape and x.dtype == model.x.dtype
    assert labels.dtype == np.int64 and labels.max() < model.classes
    assert model.scores.shape == (*model.labels.shape, model.classes)
    assert all(new.shape == p.shape for p, new in model.state.items())

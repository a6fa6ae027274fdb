"""The models of `models/` against figures from an independent float64 implementation; by default the loss alone."""

import numpy as np
import pytest

import neoflow as nf
from models import (
    bert,
    inception_v3,
    lltm,
    mi_lstm,
    mobilenet,
    nasnet_a,
    nasrnn,
    ptb_lstm,
    resnet,
    scrnn,
    shufflenet,
    squeezenet,
    sru_rnntc,
    sublstm,
)
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
    *(
        pytest.param(module, key, marks=pytest.mark.slow)
        for module, key in (
            (scrnn, "scrnn_mnist/64"),
            (scrnn, "scrnn_ptb/64"),
            (sublstm, "sublstm_mnist/64"),
            (sublstm, "sublstm_ptb/64"),
            (lltm, "lltm_mnist/64"),
            (lltm, "lltm_ptb/64"),
            (nasrnn, "nasrnn/64"),
            (sru_rnntc, "sru_rnntc/64"),
            (mobilenet, "mobilenet/1"),
            (resnet, "resnext50/1"),
            (squeezenet, "squeezenet/1"),
            (inception_v3, "inception_v3/1"),
            (nasnet_a, "nasnet_a/1"),
        )
    ),
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
    *((cell, {"steps": 3, "inputs": 4, "hidden": 6, "classes": 3}) for cell in (scrnn, sublstm, lltm, nasrnn)),
    (sru_rnntc, {"steps": 3, "width": 5, "classes": 3}),
    (mobilenet, {"image": 32, "classes": 5, "blocks": ((64, 1), (128, 2))}),
    (squeezenet, {"image": 32, "classes": 5, "fires": ((4, 8), None, (4, 8))}),
    (inception_v3, {"image": 75, "classes": 5, "blocks": (inception_v3.SHRINK_D,)}),
    (nasnet_a, {"image": 32, "classes": 5, "stages": 1, "normal_cells": 1, "channels": 4}),
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

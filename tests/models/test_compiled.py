"""Models through the compiler, in float32, against figures from an independent float64 implementation."""

import pytest

from models import (
    bert,
    capsnet,
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
from tests.models.agreement import assert_agrees, assert_as_good_as_float32, compiled, expected

pytestmark = pytest.mark.tvm
CASES = [
    (capsnet, "capsnet/1"),
    (mi_lstm, "mi_lstm_mnist/64"),
    pytest.param(capsnet, "capsnet/16", marks=pytest.mark.slow),
    pytest.param(mi_lstm, "mi_lstm_ptb/64", marks=pytest.mark.slow),
    pytest.param(ptb_lstm, "ptb_lstm/20", marks=pytest.mark.slow),
    pytest.param(bert, "bert_layer/1", marks=pytest.mark.slow),
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
        )
    ),
]
KINKED = [
    (resnet, "resnet18/1"),
    (shufflenet, "shufflenet/1"),
    (mobilenet, "mobilenet/1"),
    (squeezenet, "squeezenet/1"),
    (resnet, "resnext50/1"),
    (inception_v3, "inception_v3/1"),
    (nasnet_a, "nasnet_a/1"),
]
"""Deep, with a million relus."""


def make(module, key):
    variant, batch = key.split("/")
    return module.build(int(batch), **module.VARIANTS[variant]), expected(module.__name__.rsplit(".", 1)[-1], key)


@pytest.mark.parametrize(("module", "key"), CASES)
def test_loss_and_gradients(module, key):
    """Loss to 1e-5, gradients to 1e-3 of the largest entry."""
    assert_agrees(*make(module, key), rel=1e-5, run=compiled)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "key"), KINKED)
def test_gradients_beside_kinks(module, key):
    assert_as_good_as_float32(*make(module, key))

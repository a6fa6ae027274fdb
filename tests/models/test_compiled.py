"""Models through the compiler, in float32, against figures from an independent float64 implementation."""

import pytest

from models import bert, capsnet, mi_lstm, ptb_lstm, resnet, shufflenet
from tests.models.agreement import assert_agrees, assert_as_good_as_float32, compiled, expected

pytestmark = pytest.mark.tvm
CASES = [
    (capsnet, "capsnet/1"),
    (mi_lstm, "mi_lstm_mnist/64"),
    pytest.param(capsnet, "capsnet/16", marks=pytest.mark.slow),
    pytest.param(mi_lstm, "mi_lstm_ptb/64", marks=pytest.mark.slow),
    pytest.param(ptb_lstm, "ptb_lstm/20", marks=pytest.mark.slow),
    pytest.param(bert, "bert_layer/1", marks=pytest.mark.slow),
]
KINKED = [(resnet, "resnet18/1"), (shufflenet, "shufflenet/1")]
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

"""Models through the compiler, in float32, against figures from an independent float64 implementation."""

import pytest

from tests.models.agreement import assert_agrees, assert_as_good_as_float32, compiled
from tests.models.table import cases, make

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("key", cases("compiled", kinked=False))
def test_loss_and_gradients(key):
    """Loss to 1e-5, gradients to 1e-3 of the largest entry."""
    assert_agrees(*make(key), rel=1e-5, run=compiled)


@pytest.mark.parametrize("key", cases("compiled", kinked=True))
def test_gradients_beside_kinks(key):
    assert_as_good_as_float32(*make(key))

"""Models through the compiler, in float32, against figures from an independent float64 implementation."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.models import build_model, find_model
from tests.models.agreement import assert_agrees, assert_as_good_as_float32, by_pytorch, compiled, interpreted
from tests.models.table import ROWS, SMALL_SIZES, cases, make

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("key", cases("compiled", kinked=False))
def test_loss_and_gradients(key):
    """Loss to 1e-5, gradients to 1e-3 of the largest entry."""
    assert_agrees(*make(key), rel=1e-5, run=compiled)


@pytest.mark.parametrize("key", cases("compiled", kinked=True, large=False))
def test_gradients_beside_kinks(key):
    assert_as_good_as_float32(*make(key))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::neoflow.trace.SlowCompileWarning")  # beside other tests it may be
@pytest.mark.parametrize("key", cases("compiled", kinked=True, large=True))
def test_gradients_beside_kinks_of_many_images(key):
    file = find_model(key.split("/")[0])[0].stem
    assert_as_good_as_float32(*make(key), run=partial(by_pytorch, file=file))


@pytest.mark.parametrize("name", ["bert", "resnet50"])
def test_loss_and_gradients_of_a_small_one(name):
    """Of those that the slow tests alone compile at their own size; so few relus are beside their kinks by chance."""
    model = build_model(name, 2, **SMALL_SIZES[name])
    roots = [model.loss, *nf.grad(model.loss, list(model.parameters.values()))]
    found, wanted = compiled(model, roots), interpreted(model, roots)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    for name, a, b in zip(model.parameters, found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 * np.abs(b).max() + 1e-9, err_msg=name)


def test_every_model_of_the_table_is_compiled():
    assert all(row.compiled for row in ROWS)

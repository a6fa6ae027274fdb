"""The models of `models/` against figures from an independent float64 implementation; by default the loss alone."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.models import build_model
from tests.models.agreement import assert_agrees
from tests.models.table import ROWS, SMALL_SIZES, cases, make


@pytest.mark.parametrize("key", cases("numpy"))
def test_loss(key):
    assert_agrees(*make(key), gradients=False)


@pytest.mark.slow
@pytest.mark.parametrize("key", [r.key for r in ROWS if r.numpy])
def test_gradients(key):
    assert_agrees(*make(key), gradients=True)


@pytest.mark.parametrize("name", SMALL_SIZES)
def test_sizes_by_argument(name):
    """Other sizes build, differentiate, and give the same scores in training and inference where nothing differs."""
    model = build_model(name, 2, **SMALL_SIZES[name])
    assert len(nf.grad(model.loss, list(model.parameters.values()))) == len(model.parameters)
    x, labels = model.example()
    assert x.shape == model.x.shape and x.dtype == model.x.dtype
    assert labels.dtype == np.int64 and labels.max() < model.classes
    assert model.scores.shape == (*model.labels.shape, model.classes)
    assert all(new.shape == p.shape for p, new in model.state.items())

import numpy as np
import pytest

import neoflow as nf
from models import capsnet
from tests.models.agreement import assert_agrees, expected


@pytest.mark.parametrize("batch", [1, pytest.param(16, marks=pytest.mark.slow)])
def test_agrees_with_independent_figures(batch):
    assert_agrees(capsnet.build(batch), expected("capsnet", f"capsnet/{batch}"))


def test_sizes_by_argument():
    model = capsnet.build(2, image=17, classes=4, kernel=3, primary=2, capsules=3, side=2, out=6, rounds=2)
    assert model.parameters["digit"].shape == (3 * 3 * 3, 4, 6, 4)
    assert model.scores.shape == (2, 4)
    feeds = {model.labels: np.array([1, 3]), model.x: model.example()[0], **model.initial()}
    nf.check_grad(model.loss, list(model.parameters.values()), feeds, samples=4)

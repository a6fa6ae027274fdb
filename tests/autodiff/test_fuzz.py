"""Gradients of random programs against central differences and against PyTorch, first and second order."""

import numpy as np
import pytest

from tests.autodiff.differences import Counts, compare_with_differences, compare_with_torch, first_order, second_order
from tests.strategies import random_program

torch = pytest.importorskip("torch")
SAMPLES = 3
"""Elements of each input that are compared with differences; PyTorch is compared with everywhere."""


def judge(seeds, make, **limits) -> tuple[Counts, Counts]:
    """Elements compared with differences and with PyTorch; raises at the first that disagrees."""
    torch.set_num_threads(1)
    differences, autograd = Counts(), Counts()
    for seed in seeds:
        case = make(random_program(seed, jumps=seed % 2 == 1, stops=False, **limits))
        if case is not None:
            autograd += compare_with_torch(case)
            differences += compare_with_differences(case, SAMPLES, np.random.default_rng(seed))
    print(f"{len(seeds)} programs: {differences} by differences, {autograd.checked} by PyTorch")
    assert differences.kinks <= 0.02 * differences.checked
    return differences, autograd


SMALL = {"tensors": (1, 4), "points": 200}


@pytest.mark.torch
def test_first_order():
    differences, autograd = judge(range(60), first_order, tensors=(2, 5), points=300)
    assert differences.checked > 300 and autograd.checked > 6_000


@pytest.mark.torch
def test_second_order():
    differences, autograd = judge(range(20), second_order, **SMALL)
    assert differences.checked > 60 and autograd.checked > 600


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("start", range(1_000_000, 1_010_000, 500))
def test_first_order_of_ten_thousand(start):
    judge(range(start, start + 500), first_order)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("start", range(2_000_000, 2_001_000, 100))
def test_second_order_of_a_thousand(start):
    judge(range(start, start + 100), second_order, **SMALL)

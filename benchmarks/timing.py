"""What the benchmarks measure with: arrays that are taken as they are, blocks of calls, errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow.devices import device

BLOCK = 0.15
"""Seconds of a block of calls."""
_SMALLEST = 1e-30
"""What a tensor of zeros is said to have as its largest entry."""


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that a step takes as it is."""
    copy = device().allocate(array.shape, str(array.dtype))
    copy[...] = array
    return copy


def block(run: Callable[[], object]) -> float:
    """Seconds of one call, over as many as fill a block."""
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < BLOCK:
        run()
        calls += 1
    return (time.perf_counter() - start) / calls


def error_of(found: Sequence[np.ndarray], wanted: Sequence[Any]) -> float:
    """The largest difference from PyTorch's tensors, as a share of the largest entry of its tensor."""
    errors = []
    for a, t in zip(found, wanted, strict=True):
        b = t.detach().numpy()
        errors.append(float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), _SMALLEST)))
    return max(errors)

"""The uniform fill: reproducible parameter, input and label values from a text, the same in every framework."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Amplitude and centre by the last part of a parameter's name; names not listed depend on the rank alone.
_BY_NAME: dict[str, tuple[float, float]] = {
    "gamma": (0.1, 1.0),
    "alpha": (0.1, 1.0),
    "beta1": (0.1, 0.5),
    "beta2": (0.1, 0.5),
    "beta": (0.1, 0.0),
    "embedding": (0.1, 0.0),
}


def fill(text: str, shape: Sequence[int], a: float, c: float) -> NDArray[np.float32]:
    """Uniform float32 values in [c - a, c + a), drawn from a generator seeded with the CRC-32 of `text`."""
    generator = np.random.default_rng(zlib.crc32(text.encode()))
    return (2 * generator.random(tuple(shape), np.float32) - 1) * np.float32(a) + np.float32(c)


def parameter(
    model: str, name: str, shape: Sequence[int], fan_in: int | None = None, gain: float = 1.0
) -> NDArray[np.float32]:
    """Parameter `name` of `model`: biases and scales by name, weights uniform with a = gain * sqrt(3 / fan_in).

    `fan_in` is the product of all dimensions but the first unless given.
    """
    last = name.rsplit(".", 1)[-1]
    if last in _BY_NAME:
        a, c = _BY_NAME[last]
    elif len(shape) == 1:
        a, c = (0.1, 1.0) if "." in name and last == "weight" else (0.05, 0.0)
    else:
        a, c = gain * math.sqrt(3 / (math.prod(shape[1:]) if fan_in is None else fan_in)), 0.0
    return fill(f"{model}/{name}", shape, a, c)


def inputs(model: str, shape: Sequence[int], name: str = "x") -> NDArray[np.float32]:
    """Input `name` of `model`: uniform in [-1, 1). Depends on the batch, as the shape does."""
    return fill(f"{model}/{name}", shape, 1.0, 0.0)


def labels(model: str, shape: Sequence[int], classes: int, name: str = "y") -> NDArray[np.int64]:
    """Labels of `model`: integers in [0, classes)."""
    return np.random.default_rng(zlib.crc32(f"{model}/{name}".encode())).integers(0, classes, tuple(shape))

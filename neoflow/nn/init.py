"""Initial values of parameters: functions (shape, generator) -> float32 array, drawn when a parameter is first needed.

The generator comes from whoever trains, so one seed fixes every parameter; `filled` ignores it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from neoflow import fill
from neoflow.boundary import publish
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Parameter

Init = Callable[[tuple[int, ...], np.random.Generator], NDArray]

__all__ = [
    "Init",
    "constant",
    "counter",
    "fan_in",
    "filled",
    "initial_value",
    "normal",
    "ones",
    "seeded",
    "uniform",
    "zeros",
]


def constant(value: float) -> Init:
    """Every element `value`."""
    return lambda shape, generator: np.full(shape, value, np.float32)


zeros = constant(0.0)
ones = constant(1.0)


def counter(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray:
    """Where a counter of steps begins that masks follow from: anywhere below 2^31, so that two layers differ."""
    return generator.integers(0, 2**31 - 1, shape)


def uniform(low: float, high: float) -> Init:
    """Uniform in [low, high)."""
    return lambda shape, generator: generator.uniform(low, high, shape).astype(np.float32)


def normal(deviation: float = 1.0, mean: float = 0.0) -> Init:
    """Normal with the given standard deviation."""
    return lambda shape, generator: generator.normal(mean, deviation, shape).astype(np.float32)


def fan_in(gain: float = 1.0, fan: int | None = None) -> Init:
    """Uniform with variance gain^2 / fan, which keeps the variance of what a linear map gives.

    fan: elements summed for one output; by default the product of all extents but the first.
    Source: He et al., Delving Deep into Rectifiers, 2015, equation 10 (gain sqrt 2 before a relu).
    """

    def draw(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray:
        bound = gain * math.sqrt(3 / (math.prod(shape[1:]) if fan is None else fan))
        return generator.uniform(-bound, bound, shape).astype(np.float32)

    return draw


def seeded(init: Init, seed: int) -> Init:
    """`init` with a generator of its own: the same values whatever the training's seed."""
    return lambda shape, generator: init(shape, np.random.default_rng(seed))


def filled(model: str, name: str, fan: int | None = None, gain: float = 1.0) -> Init:
    """The uniform fill of `neoflow.fill`: the same values in every framework."""
    return lambda shape, generator: fill.parameter(model, name, shape, fan, gain)


def initial_value(parameter: Parameter, generator: np.random.Generator | None = None) -> NDArray:
    """The first value of a parameter in its own dtype: its array, what its function draws, or zeros.

    generator: None means one of the parameter's own, seeded by its name.
    """
    init = parameter.init
    if callable(init):
        generator = generator or np.random.default_rng(zlib.crc32(parameter.name.encode()))
        init = init(parameter.shape, generator)
    value = np.zeros(parameter.shape) if init is None else np.asarray(init)
    return np.array(np.broadcast_to(value, parameter.shape), dt.NUMPY[parameter.dtype], order="C")


publish(globals(), __all__)

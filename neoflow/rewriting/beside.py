"""Programs beside each other: what a call of each takes, in turns, so that all see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

from neoflow.dtype import is_float
from neoflow.expr.tensor import Placeholder
from neoflow.runtime.device import Device, Memory
from neoflow.runtime.function import Function

ROUNDS, MOST_ROUNDS = 5, 60
"""The fewest, and the most."""
BLOCK = 0.002
"""Seconds of calls in a round, a call at least."""
LEAST = 0.25
"""Seconds that are spent at least, unless rounds are enough before: five of short calls are over in one burst of
another process, and of nasrnn, 1.7 times as fast, nothing was taken for it."""


def in_turns(functions: Sequence[Function], device: Device, seconds: float, seed: int = 0) -> tuple[float, ...]:
    """Seconds of a call of each, the lower quartile of its rounds: other work only adds to them. Every other round goes
    the other way round, since the slices in which a core is shared may keep step with the rounds. A turn begins with a
    call that is not timed: a program that is called again and again finds its own weights in the caches, and not those
    of the other one. Of programs of the same inputs, whose parameters nobody else uses."""
    arrays = drawn(functions[0].inputs, device, seed)
    calls = []
    for f in functions:
        f(*arrays)
        device.synchronize()
        begun = time.perf_counter()
        f(*arrays)
        device.synchronize()
        calls.append(max(1, int(BLOCK / max(time.perf_counter() - begun, 1e-7))))
    times: list[list[float]] = [[] for _ in functions]
    end = time.monotonic() + max(seconds, LEAST)
    while len(times[0]) < ROUNDS or (time.monotonic() < end and len(times[0]) < MOST_ROUNDS):
        turns = [*zip(functions, calls, times, strict=True)]
        for f, count, found in turns if len(times[0]) % 2 else reversed(turns):
            f(*arrays)
            device.synchronize()
            begun = time.perf_counter()
            for _ in range(count):
                f(*arrays)
            device.synchronize()
            found.append((time.perf_counter() - begun) / count)
    return tuple(statistics.quantiles(found, n=4)[0] for found in times)


def drawn(inputs: Sequence[Placeholder], device: Device, seed: int = 0) -> list[Memory]:
    """Something to call a program with, where the device is: what is timed is no way there. What is floating is drawn
    from a normal distribution, whole numbers are zero: a place in any table."""
    chance, found = np.random.default_rng(seed), []
    for t in inputs:
        array: Memory = device.allocate(t.shape, t.dtype)
        device.copy(array, chance.standard_normal(t.shape) if is_float(t.dtype) else np.zeros(t.shape))
        found.append(array)
    return found

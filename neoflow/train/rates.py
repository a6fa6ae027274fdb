"""Learning rates of a run: a schedule's, each judged before the step that takes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neoflow.errors import ConfigError

Schedule = Callable[[int], float]


class Rates:
    """The learning rate at each step: what a schedule gives, or a constant, or None where the optimizer has its own.

    The rate of the first step is asked for at once, so that a schedule that gives none is found before anything runs.
    """

    def __init__(self, schedule: Schedule | None, constant: float | None, step: int):
        if schedule is not None and not callable(schedule):
            raise ConfigError(f"a schedule is a function of the step, not {schedule!r}")
        self._schedule, self._constant = schedule, constant
        self._first = step, self._asked(step)

    def at(self, step: int) -> float | None:
        """The rate at step n = 0, 1, ... Raises `ConfigError` when the schedule gives no learning rate."""
        return self._first[1] if step == self._first[0] else self._asked(step)

    def _asked(self, step: int) -> float | None:
        if self._schedule is None:
            return self._constant
        value: Any = self._schedule(step)
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value) and value >= 0):
            raise ConfigError(f"the schedule gives {value!r} at step {step}; a learning rate is a number, at least 0")
        return float(value)

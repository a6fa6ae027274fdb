"""What a cost model learns from: each knob as a number, and what the schedule makes of the problem."""

from __future__ import annotations

import math
from dataclasses import astuple, fields

import numpy as np
from numpy.typing import NDArray

from neoflow.loops.knob import MASK, NUMBER, WORD, Knob
from neoflow.loops.problem import Measures
from neoflow.loops.schedule import KnobValue, Schedule
from neoflow.loops.template import TEMPLATES, Problem
from neoflow.target import Target

SHARED = (*(f"log {f.name}" for f in fields(Measures)), "threads", "vector_bytes", "log l2_bytes")
"""The features that every template ends with."""


def feature_names(template: str) -> tuple[str, ...]:
    """Names of the features of a template's schedules, in order: those of its knobs as declared, then `SHARED`."""
    return tuple(name for k in TEMPLATES[template].knobs for name in _names(k)) + SHARED


def features(problem: Problem, schedule: Schedule, target: Target) -> NDArray[np.float64]:
    """The features of a legal schedule: amounts by their logarithm, a word as a 1 among zeros, a mask by its bits."""
    row = TEMPLATES[schedule.template]
    measures = astuple(row.measures(problem, target, schedule))
    values = [v for k in row.knobs for v in _values(k, schedule[k.name])]
    values += [math.log2(1 + m) for m in measures]
    values += [target.threads, target.vector_bytes, math.log2(target.l2_bytes)]
    return np.array(values, np.float64)


def _names(knob: Knob) -> tuple[str, ...]:
    if knob.kind is WORD:
        return tuple(f"{knob.name} is {word}" for word in knob.words)
    return (f"log {knob.name}" if knob.kind is NUMBER else knob.name,)


def _values(knob: Knob, value: KnobValue) -> tuple[float, ...]:
    if knob.kind is WORD:
        return tuple(float(value == word) for word in knob.words)
    if knob.kind is MASK:
        return (float(int(value).bit_count()),)
    return (math.log2(int(value)) if knob.kind is NUMBER else float(value),)

"""In chunks of how many steps linear recurrences of matrices go, where that pays: by an estimate of both forms.

Step by step a step moves all of a state, and what is asked of states reads those of all steps. In chunks it is
contractions, and a few loops of as many turns as a chunk has steps, or as there are chunks. Of both each compute counts
as a kernel, but for those that lie in memory as what they read does.

Measured with linear attention, 2 heads of 64, on a core of an Intel Xeon beside others: a step takes 0.9 us where
states stay in the cache, 3.6 us and more where each is kept; 0.03 to 0.06 us where a state has 16 to 256 numbers.
Time in chunks over time step by step, forward and with gradients, of 2048 steps (`python -m benchmarks.chunks`, one
thread): 0.17 and 0.17 without a decay, 0.11 and 0.24 with one of each head, 0.64 and 0.62 with one of each channel.
"""

from __future__ import annotations

from collections.abc import Iterable

from neoflow.expr.close import define
from neoflow.expr.recurrence import Looped, Run, Stacked
from neoflow.expr.tensor import Compute, Tensor, topological
from neoflow.graph import contiguous_offset
from neoflow.graph.chunked import Group
from neoflow.graph.chunks import NotInChunks, Step
from neoflow.graph.cost import is_worth, moved, seconds, told
from neoflow.roofs import STATED
from neoflow.verdict import Verdict

LENGTHS = (8, 16, 32, 64, 128)
"""Steps of a chunk that are tried."""
LEAST = 0.1
"""Part of the time that has to be saved."""
TURN = 5e-8
"""Seconds from one kernel to the next inside of a loop, measured."""
CACHED = 1 << 21
"""Bytes of what steps keep, from which on it goes to memory: twice as many move as are written there."""


def length_of(group: Group) -> int | Verdict:
    """Of a group of recurrences; or why it goes step by step."""
    if not all(step.adds_products for step in group.steps.values()):
        return Verdict(False, "what a step adds is no product of tensors that are smaller than its state")
    now = step_by_step(group)
    found: dict[int, float] = {}
    why = "its steps are few"
    for length in LENGTHS:
        if 2 * length > group.length:
            break
        try:
            found[length] = in_chunks(group, length)
        except NotInChunks as error:
            why = str(error)
    if not found:
        return Verdict(False, why)
    best = min(found, key=found.__getitem__)
    if not is_worth(now, found[best], LEAST):
        return Verdict(False, f"in chunks of {best} steps it takes {told(now, found[best])}")
    return best


def step_by_step(group: Group) -> float:
    """Seconds of steps one after the other, and of what is asked of all their states."""
    total = sum(_seconds(a.as_it_is) for a in group.asked)
    for step in group.steps.values():
        total += step.recurrence.steps * _turn(_written(step))
    return total + sum(_kept(t) for t in group.known if isinstance(t, Stacked) and t.run in group.steps)


def in_chunks(group: Group, length: int) -> float:
    """Seconds of what stands for it in chunks. Raises `NotInChunks`."""
    made = topological(list(group.in_chunks(length).values()))
    return _all(t for t in made if t not in group.known)


def _all(tensors: Iterable[Tensor]) -> float:
    """Seconds of computes and of loops."""
    total = 0.0
    runs: dict[Run, None] = {}
    for t in tensors:
        if isinstance(t, Compute):
            total += _seconds(t)
        elif isinstance(t, Looped):
            runs[t.run] = None
            total += _kept(t) if isinstance(t, Stacked) else 0.0
    for run in runs:
        body = topological(list(run.recurrence.then))
        total += run.recurrence.steps * sum(_turn(t) for t in body if isinstance(t, Compute))
    return total


def _seconds(t: Compute) -> float:
    return 0.0 if contiguous_offset(t.definition) is not None else seconds(t.definition)


def _turn(t: Compute) -> float:
    return seconds(t.definition) - STATED.start + TURN


def _kept(t: Stacked) -> float:
    """Seconds in which what is kept of all steps is written."""
    if t.nbytes <= CACHED:
        return moved(t.nbytes) / 2
    return 2 * t.nbytes / STATED.levels[-1].gb_s / 1e9


def _written(step: Step) -> Compute:
    """A step as one kernel."""
    return define(step.then.shape, step.axes, step.inside.at(step.then, step.axes), step.then.name)

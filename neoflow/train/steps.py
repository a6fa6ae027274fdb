"""A step at work: one batch, or several whose gradients are added up, whole or incomplete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.precision import mixed_precision
from neoflow.runtime.function import Function
from neoflow.train.diagnosis import LARGEST, diagnose
from neoflow.train.feed import Batch, Fed, Feed, on_host
from neoflow.train.objective import Objective, Program

Compile = Callable[[str, Callable[[], Program]], Function]
"""The function of a program, by the program's name; it is compiled when it is first asked for."""


@dataclass(frozen=True)
class Stepped:
    """What a step gave: the means of the loss and the metrics over its samples."""

    values: dict[str, float]
    samples: int


@dataclass
class Begun:
    """The call of a step that has begun and that its run does not count yet, and how often its function had run."""

    function: Function | None = None
    runs: int = 0

    @property
    def is_made(self) -> bool:
        """Whether that call was made, so that the parameters are a step ahead of the count."""
        return self.function is not None and self.function.runs != self.runs


def run_step(
    objective: Objective,
    compiled: Compile,
    batches: Sequence[Batch],
    lr: float | None,
    step: int,
    begun: Begun,
    count: Callable[[Stepped], None],
    coming: Callable[[], Sequence[Batch]] | None = None,
) -> Stepped:
    """Run the batches of one step; the parameters change with the last of them, after which `count` is called.

    count: moves the run past the step, and sets `begun.function` to None in the same instant. So an exception from
    outside, whenever it comes, leaves parameters and count of one step: a step that was made is counted.
    coming: gives the batches of the step after this one while a GPU runs this one; they are uploaded then.
    Raises `RuntimeFault` when a loss is not finite, with the step and the first tensor that went bad.
    """
    names, feed = ("loss", *objective.metrics), objective.feed
    found: list[_Part] = []

    def take(results: Sequence[np.ndarray], fed: Fed) -> Stepped:
        """The step so far, with what its next batch gave."""
        values = {
            n: float(r[: fed.valid].mean() if r.ndim else r) for n, r in zip(names, on_host(results), strict=True)
        }
        if not abs(values["loss"]) <= LARGEST:
            begun.function = None  # such a step changes nothing
            computed = mixed_precision(objective.loss, objective.precision)
            raise RuntimeFault(diagnose(step, values["loss"], computed, feed.inputs, fed.arrays))
        return _means([*found, (values, fed.valid)])

    for batch in batches[:-1]:
        fed = feed.prepare(batch)
        function = _function(compiled, "gathering", objective.gather, fed.valid < feed.size)
        done = take(function(*step_arrays(objective, function, fed, lr, _count(found))), fed)
        found = [(done.values, done.samples)]
    fed = feed.prepare(batches[-1])
    function = _function(compiled, "step", objective.step, fed.valid < feed.size)
    arrays = step_arrays(objective, function, fed, lr, _count(found))
    begun.function, begun.runs = function, function.runs
    try:
        if coming is None:
            results = function(*arrays)
        else:
            results = function.run_beside(partial(_bring, function, feed, coming), *arrays)
        done = take(results, fed)
        count(done)
    except RuntimeFault:
        raise
    except BaseException:  # from outside
        if begun.is_made:
            count(take(function.results(), fed))
        raise
    return done


def _bring(function: Function, feed: Feed, coming: Callable[[], Sequence[Batch]]) -> None:
    """Have the next batch on the device, where it is one that this function takes next."""
    batches = coming()
    with suppress(RuntimeFault):  # of what is no batch its own step tells
        if len(batches) == 1:
            fed = feed.prepare(batches[0])
            function.bring(fed.arrays if fed.valid == feed.size else ())


_Part = tuple[dict[str, float], int]
"""Means, and of how many samples."""


def _count(found: Sequence[_Part]) -> int:
    return sum(samples for _, samples in found)


def _means(found: Sequence[_Part]) -> Stepped:
    """Means over the samples of all parts of a step."""
    total = _count(found)
    if len(found) == 1:
        return Stepped(*found[0])
    return Stepped({n: sum(values[n] * samples for values, samples in found) / total for n in found[0][0]}, total)


def _function(compiled: Compile, name: str, make: Callable[[bool], Program], is_partial: bool) -> Function:
    return compiled(f"{name} of incomplete batches" if is_partial else name, partial(make, is_partial))


def step_arrays(objective: Objective, function: Function, fed: Fed, lr: float | None, gathered: int = 0) -> list[Any]:
    """What a function of a step is called with; gathered: the samples of the step before this batch."""
    feed = objective.feed
    known = {objective.gathered: gathered, objective.count: fed.valid, **dict.fromkeys(objective.rates, lr)}
    extra = function.inputs[len(feed.inputs) :]
    values = (feed.weights(fed) if t is objective.weights else known[t] for t in extra)
    return [*fed.arrays, *(np.asarray(v, dt.NUMPY[t.dtype]) for t, v in zip(extra, values, strict=True))]

"""Programs that are compiled to be tried, on parameters of their own: what they give, and what a call of each takes.
And what looks for faster graphs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from neoflow import config, tuning
from neoflow.building import load
from neoflow.code import Handed
from neoflow.devices import device
from neoflow.errors import NeoflowError, RuntimeFault
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.kernel import Kernel
from neoflow.measure import Measurer
from neoflow.persisting import Loops
from neoflow.rewriting import PREPARED, in_turns, left_out, optimizer_for, seconds_of
from neoflow.runtime.device import Device
from neoflow.runtime.executor import Loaded
from neoflow.runtime.function import Compilation, Function
from neoflow.runtime.records import Module
from neoflow.runtime.store import ParameterStore
from neoflow.target import Target
from neoflow.tune import Limits

if TYPE_CHECKING:
    from neoflow.rewriting.optimizing import Optimizer
    from neoflow.superopt import Rule

INSTANCES = 3
"""Of a whole program that is timed: each has parameters of its own."""
TRIED = 1.0
"""Seconds of turns in which a recurrence is timed beside what another library makes of it."""


class Runnable(Compilation, Protocol):
    """A compilation with what is to be loaded of it; see `pipeline.Compiled`."""

    @property
    def target(self) -> Target: ...

    @property
    def kernels(self) -> tuple[Kernel, ...]: ...

    @property
    def modules(self) -> tuple[Module, ...]: ...

    @property
    def loops(self) -> Loops: ...

    @property
    def foreign(self) -> tuple[Handed, ...]: ...


Program = TypeVar("Program", bound=Runnable)


def loaded_on(place: Device, c: Runnable) -> list[Loaded]:
    """The kernels on a device, then what another library computes. Raises `CodegenError`, `RuntimeFault`."""
    found = load(c.kernels, c.modules, place, config.load())
    if c.foreign:
        from neoflow.runtime.handed import load_handed  # imported here: few programs have any

        found += load_handed(c.foreign, place)
    return found


def alone(c: Runnable) -> Function:
    """A program on parameters of its own."""
    place = device(c.target)
    wholes = c.loops.loaded(place)  # or a GPU's loops would go turn by turn
    return Function(c, loaded_on(place, c), ParameterStore(place), place, c.target.threads, wholes=wholes)


def judge(optimizer: Optimizer, written: Runnable, tried: Runnable, again: Callable[[], Runnable]) -> None:
    """Time what was found for a whole program beside it as it is written, on parameters of their own; where that is not
    much faster with a change of many kernels, what is found without it too. again: compiles what is found then."""
    _time(optimizer, written, tried)
    while optimizer.goes_otherwise():
        tried = again()
        if optimizer.has_found:
            _time(optimizer, written, tried)
        optimizer.keep_faster()


def _time(optimizer: Optimizer, written: Runnable, tried: Runnable) -> None:
    """Each in the middle of a few instances, as far as there is time for more than one: where parameters lie in memory
    is chance, and counts."""
    place, times = device(written.target), list[tuple[float, ...]]()
    try:
        while len(times) < INSTANCES and (optimizer.left > 0 or not times):
            pair = [alone(written), alone(tried)]
            times.append(in_turns(pair, place, optimizer.left / (INSTANCES - len(times))))
        optimizer.judge([statistics.median(each) for each in zip(*times, strict=True)])
    except NeoflowError as error:
        optimizer.refuse(f"it could not be timed: {error.message}")


def faster(usual: Program, other: Program) -> Program:
    """Of two programs that give the same the other one, unless the usual one is timed here and takes no longer."""
    try:
        own, found = in_turns([alone(usual), alone(other)], device(usual.target), TRIED)
    except NeoflowError:  # of a device that is not here
        return other
    return other if found < own else usual


@dataclass(frozen=True)
class Trials:
    """compile: makes a program of outputs, inputs and updates for the target, in which foreign calls stay what they
    are; see `pipeline._compiled`."""

    target: Target
    compile: Callable[..., Runnable]

    def refusal(self) -> str | None:
        """Why another library can compute nothing for the target here; None where it can be tried."""
        if self.target.device == "cpu":
            return None
        from neoflow.runtime.handed import refusal  # imported here: few programs have any

        try:
            return refusal("torch", device(self.target))
        except RuntimeFault as absent:
            return f"what is called is measured beside ours, and that cannot be here: {absent.message}"

    def function(self, outputs: Sequence[Tensor], inputs: Sequence[Placeholder]) -> Function:
        """A program of this machine."""
        return alone(self.compile(outputs, inputs, None, self.target, "fp32", None, None))

    def values(self, outputs: Sequence[Tensor], feeds: Mapping[Placeholder, np.ndarray]) -> list[np.ndarray]:
        """What a program gives."""
        return [np.asarray(a) for a in self.function(outputs, list(feeds))(*feeds.values())]

    def beside(
        self, ours: Sequence[Tensor], theirs: Sequence[Tensor], inputs: Sequence[Placeholder]
    ) -> tuple[float, float]:
        """Seconds of a call of each of two programs, in turns."""
        pair = [self.function(outputs, inputs) for outputs in (ours, theirs)]
        own, other = in_turns(pair, device(self.target), TRIED)
        return own, other


def optimizer_of(
    target: Target,
    optimize: float | None,
    measurer: Measurer | None = None,
    prepares: bool = True,
    rules: Sequence[Rule] = (),
    seed: int = 0,
) -> Optimizer | None:
    """What searches for faster graphs with what this machine knows of kernels; see `optimizer_for`."""
    without, folder = left_out(), config.load().cache_dir
    known = tuning.known_seconds(target, folder)
    measure = None if measurer is None else tuning.default_seconds(target, measurer)
    is_prepared = prepares and target.device == "cpu" and PREPARED not in without
    may_last = tuning.unmeasured(target, folder) if is_prepared else None
    return optimizer_for(target, optimize, without, rules, seed, known, measure, is_prepared, may_last)


def measured_within(target: Target, optimize: float | None) -> Limits | None:
    """Within what kernels are measured for a search for faster graphs; None where there is no time for it."""
    seconds = seconds_of(optimize)
    return Limits(seconds=seconds) if seconds is not None and seconds >= MEASURED and target.device == "cpu" else None


MEASURED = 10.0
"""Seconds of `optimize` from which kernels are measured: the workers that do take two to come up."""

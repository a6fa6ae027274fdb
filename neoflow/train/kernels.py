"""The kernels of a run's step: better ones as they are found, or those that a file says."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neoflow.errors import ConfigError, ScheduleError
from neoflow.loops import Schedule
from neoflow.loops.template import schedule_from_json
from neoflow.pipeline import Compiled, adopt
from neoflow.runtime.files import refuse_unwritable, write_atomically
from neoflow.runtime.function import Function
from neoflow.train.dynamic import SHARE, Exploration, Swap
from neoflow.tune import Limits
from neoflow.tuning import SearchCurve

log = logging.getLogger("neoflow")

MODES = ("static", "dynamic")
VERSION = 1
"""Of a pin file."""


@dataclass(frozen=True)
class SwapRecord:
    """A kernel that took another's place before step `step`, counted from 0."""

    step: int
    swap: Swap

    def __str__(self) -> str:
        return f"step {self.step}: {self.swap}"


class Kernels:
    """What a run's step is made of. In mode "dynamic" another process searches while it runs, with `share` of the
    cores' time and within `limits`; what is better is swapped in between two steps.

    pin: a file. Where it is there it says the schedules and nothing is searched for: a repetition to the bit. Else it
    is written when the run ends, with the schedules of then. Raises `ConfigError` for what is none of this.
    """

    def __init__(self, mode: str, share: float, limits: Limits | None, pin: str | os.PathLike | None, seed: int):
        if mode not in MODES:
            raise ConfigError(f"Trainer mode {mode!r} is none of {', '.join(MODES)}")
        if not 0 < share <= 1:
            raise ConfigError(f"tune_share={share} is not above 0 and at most 1")
        if mode == "dynamic" and limits is not None and not limits.has_search:
            raise ConfigError('mode "dynamic" searches while it runs: tune=0 leaves no time for it; use mode "static"')
        self.mode, self._share, self._limits, self._seed = mode, share, limits, seed
        self._pin = None if pin is None else Path(pin)
        self._exploration: Exploration | None = None
        self._function: Function | None = None
        self.curves: tuple[SearchCurve, ...] = ()
        """of the searches, when the run is over"""

    def begin(self, function: Function) -> None:
        """A run begins that calls this function."""
        self._function = function
        if self._pin is not None and not self._pin.exists():
            refuse_pin(self._pin)
        if self._pin is not None and self._pin.exists():
            adopt(function, read_pin(self._pin, function))
        elif self.mode == "dynamic":
            self._exploration = Exploration(function, self._limits, self._share, self._seed)

    def between(self, step: int) -> list[SwapRecord]:
        """Between two steps: adopt what is better. `step` is the next one."""
        if self._exploration is None:
            return []
        found = [SwapRecord(step, swap) for swap in self._exploration.take()]
        for record in found:
            log.info("%s", record)
        return found

    def end(self) -> None:
        """The run is over."""
        if self._exploration is not None:
            self._exploration.close()
            self.curves = self._exploration.curves
            self._exploration = None
        if self._pin is not None and not self._pin.exists() and self._function is not None:
            write_pin(self._pin, self._function)

    @property
    def told(self) -> str:
        """How far the search is; "" where there is none."""
        return "" if self._exploration is None else self._exploration.told


def refuse_pin(path: Path) -> None:
    """Raise `ConfigError` when a file cannot be written: before a run, not after it."""
    try:
        refuse_unwritable(path)
    except OSError as error:
        raise ConfigError(f"the schedules cannot be pinned in {path}: {error.strerror or error}") from None


def write_pin(path: Path, function: Function) -> None:
    """Write the schedules of a function's kernels. Raises `ConfigError` when that cannot be done."""
    compiled = function.compiled
    if not isinstance(compiled, Compiled):
        raise ConfigError("there are no schedules to pin: the function was not compiled by neoflow here")
    kernels = {k.subgraph.digest: json.loads(k.schedule.to_json()) for k in compiled.kernels}
    said = {"version": VERSION, "target": str(compiled.target), "kernels": kernels}
    try:
        write_atomically(path, json.dumps(said, indent=1).encode())
    except OSError as error:
        raise ConfigError(f"the schedules cannot be pinned in {path}: {error.strerror or error}") from None


def read_pin(path: Path, function: Function) -> Mapping[str, Schedule]:
    """The schedules of a file for every kernel of a function. Raises `ConfigError` when it is of another program or
    machine, or none."""
    compiled = function.compiled
    if not isinstance(compiled, Compiled):
        raise ConfigError(f"{path} pins kernels, and the function was not compiled by neoflow here")
    try:
        said = json.loads(path.read_bytes())
        version, target, kernels = said["version"], said["target"], dict(said["kernels"])
        if version != VERSION:
            raise ConfigError(f"{path} pins schedules in version {version!r}; this neoflow reads {VERSION}")
        if target != str(compiled.target):
            raise ConfigError(f"{path} pins schedules for {target}, the program is for {compiled.target}")
        missing = [k.symbol for k in compiled.kernels if k.subgraph.digest not in kernels]
        if missing:
            raise ConfigError(f"{path} is of another program: {len(missing)} kernels are not in it")
        found = {k.subgraph.digest: kernels[k.subgraph.digest] for k in compiled.kernels}
        return {digest: schedule_from_json(json.dumps(schedule)) for digest, schedule in found.items()}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, RecursionError, ScheduleError) as error:
        raise ConfigError(f"{path} pins no schedules: {error}") from None


__all__ = ["MODES", "SHARE", "Kernels", "SwapRecord", "read_pin", "write_pin"]

"""The best epoch of a run: which it was, what the parameters were then, and when nothing better is to be expected."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from neoflow.errors import ConfigError
from neoflow.expr.tensor import Parameter
from neoflow.runtime.store import STORE
from neoflow.train.checkpoint import Position, load_checkpoint, save_checkpoint
from neoflow.train.records import EpochRecord

_SIGN = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True)
class EarlyStopping:
    """Stop a run when a value of its epochs has not become better for a while: `fit(..., early_stopping=...)`.

    monitor: a mean of an epoch by the name it is shown under: "loss", a metric, or one of the validation's,
    "validation loss". mode: "min" when smaller is better, "max". patience: after so many epochs without a better value
    the run stops; None: never, and only the best epoch is kept. min_delta: what is better by no more than this is not
    better. restore: at the end of the run the parameters, and all else a step changes, are again what they were after
    the best epoch. Where the trainer has a checkpoint folder the best epoch is in its folder `best`.
    """

    monitor: str = "validation loss"
    patience: int | None = 3
    mode: str = "min"
    min_delta: float = 0.0
    restore: bool = False

    def __post_init__(self) -> None:
        if self.mode not in _SIGN:
            raise ConfigError(f"early stopping has the mode {self.mode!r}; it is 'min' or 'max'")
        if self.patience is not None and (isinstance(self.patience, bool) or not self.patience >= 1):
            raise ConfigError(f"early stopping has the patience {self.patience!r}; it is at least 1 epoch, or None")
        if not self.min_delta >= 0:
            raise ConfigError(f"early stopping has the min_delta {self.min_delta!r}; it is at least 0")

    def check(self, names: Collection[str]) -> None:
        """Raise `ConfigError` unless the epochs will have the value that is watched."""
        if self.monitor not in names:
            hint = "; give fit a validation" if self.monitor.startswith("validation ") else ""
            raise ConfigError(f"early stopping watches {self.monitor!r}; an epoch has {', '.join(names)}{hint}")

    def is_better(self, value: float, best: float) -> bool:
        """Whether a value is better than the best before it; one that is not a number never is."""
        sign = _SIGN[self.mode]
        return sign * value < sign * best - self.min_delta if math.isfinite(best) else math.isfinite(value)


@dataclass(frozen=True)
class Best:
    """The best epoch so far, 0 when there is none; how many epochs have passed since."""

    epoch: int = 0
    value: float = math.nan
    waited: int = 0


class Watch:
    """Early stopping at work in one run. What it knows is a part of the run's position: a resumed run goes on."""

    def __init__(self, rule: EarlyStopping, parameters: Iterable[Parameter], folder: Path | None, position: Position):
        self.rule, self.parameters = rule, tuple(parameters)
        self.folder = None if folder is None else folder / "best"
        self.best = self._read(position.watched)
        self._values: dict[Parameter, np.ndarray] = {}

    def judge(self, record: EpochRecord, position: Position) -> Position:
        """Take note of an epoch, and keep its parameters where it is the best; the position with what is known now."""
        value = record.values[self.rule.monitor]
        if self.rule.is_better(value, self.best.value):
            self.best = Best(record.epoch, value)
        else:
            self.best = replace(self.best, waited=self.best.waited + 1)
        position = replace(position, watched=self._written())
        if self.best.waited == 0:
            self._keep(position)
        return position

    @property
    def is_over(self) -> bool:
        """Whether enough epochs have passed."""
        return self.rule.patience is not None and self.best.waited >= self.rule.patience

    def restore(self) -> None:
        """Set everything to what it was after the best epoch, where that is asked for and there is one."""
        if not self.rule.restore or not self.best.epoch:
            return
        if self.folder is not None:
            load_checkpoint(self.folder, self.parameters)
        for p, value in self._values.items():
            STORE.set(p, value)

    def _keep(self, position: Position) -> None:
        if self.folder is not None:
            save_checkpoint(self.folder, self.parameters, position)
        elif self.rule.restore:
            self._values = {p: STORE.get(p) for p in self.parameters}

    def _key(self, name: str) -> str:
        """What another rule has noted under another name is of no account here."""
        return f"{name} by {self.rule.mode} {self.rule.monitor}"

    def _read(self, watched: Mapping[str, float]) -> Best:
        epoch, value, waited = (watched.get(self._key(f.name)) for f in fields(Best))
        if epoch is None or value is None or waited is None:
            return Best()
        return Best(int(epoch), value, int(waited))

    def _written(self) -> dict[str, float]:
        if not self.best.epoch:
            return {}
        return {self._key(f.name): float(getattr(self.best, f.name)) for f in fields(Best)}

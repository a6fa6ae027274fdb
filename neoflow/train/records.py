"""What a run tells: of a step, of an epoch, of the whole call of `fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neoflow.text import html


@dataclass(frozen=True)
class StepRecord:
    """One step: `step` and `epoch` count from 0; `values` has "loss", before the update, and the metrics.

    samples: how many the step was made from; fewer than others where the last batch of an epoch is incomplete.
    """

    step: int
    epoch: int
    values: Mapping[str, float]
    lr: float | None
    seconds: float
    samples: int = 0


@dataclass(frozen=True)
class EpochRecord:
    """Means over one epoch, `epoch` counting from 1; `validation` is empty where there was none."""

    epoch: int
    training: Mapping[str, float]
    validation: Mapping[str, float]
    seconds: float

    @property
    def values(self) -> dict[str, float]:
        """All means by the names they are shown under: "loss", "validation loss", ..."""
        return {**self.training, **{f"validation {k}": v for k, v in self.validation.items()}}


@dataclass
class History:
    """What one call of `fit` did.

    stopped: "finished", "interrupted" (Ctrl-C), "steps" (the limit of steps) or "early" (nothing got better).
    losses: of each step. first_step: seconds from the start of the call to the end of its first step. best: the epoch
    with the best value of what early stopping watches.
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    stopped: str = "finished"
    seconds: float = 0.0
    first_step: float = 0.0
    best: int | None = None

    def __repr__(self) -> str:
        loss = f"loss {self.losses[0]:.4g} -> {self.losses[-1]:.4g}, " if self.losses else ""
        best = "" if self.best is None else f"best epoch {self.best}, "
        counts = f"{len(self.losses)} steps, {len(self.epochs)} epochs"
        return f"<History {counts}, {loss}{best}{self.seconds:.1f} s, {self.stopped}>"

    def _repr_html_(self) -> str:
        """As notebooks show it: its epochs."""
        names = list(self.epochs[0].values) if self.epochs else []
        rows = [(e.epoch, *(e.values.get(n, "") for n in names), e.seconds) for e in self.epochs]
        return html.table(repr(self), ("epoch", *names, "seconds"), rows)

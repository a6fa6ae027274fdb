"""`Limits`: when a search ends."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.errors import ConfigError, shown

TRIALS, SECONDS, PATIENCE = "trials", "seconds", "patience"
ROUNDING = 16.0
"""F(2x2, 3x3) and the gradient's F(3x3, 2x2) have 7 and 9, F(4x4, 3x3) 256."""


@dataclass(frozen=True)
class Limits:
    """When a search ends, by whichever comes first; None is no limit.

    trials: candidates measured. seconds: since it began. patience: candidates measured since the best became better.
    rounding: of a program; how many times larger than a plain sum's the roundings of an algorithm for contractions may
    be (docs/numbers.md): the default lets in Winograd's F(2x2, 3x3), 256 F(4x4, 3x3), 1 neither.
    Raises `ConfigError` for what is not positive.
    """

    trials: int | None = None
    seconds: float | None = None
    patience: int | None = None
    rounding: float = ROUNDING

    def __post_init__(self) -> None:
        for name, value in (
            (TRIALS, self.trials),
            (SECONDS, self.seconds),
            (PATIENCE, self.patience),
            ("rounding", self.rounding),
        ):
            if value is not None and not value > 0:
                raise ConfigError(f"limits of a search: {name}={shown(value)} must be positive, or None for no limit")

    def reached(self, trials: int, seconds: float, since_best: int) -> str | None:
        """Why a search ends that has made so many trials in so many seconds, so many since its best; None: it goes
        on."""
        if self.trials is not None and trials >= self.trials:
            return f"{TRIALS}: {trials} of {self.trials} candidates were measured"
        if self.seconds is not None and seconds >= self.seconds:
            return f"{SECONDS}: {seconds:.1f} of {self.seconds:.1f} seconds have gone by"
        if self.patience is not None and since_best >= self.patience:
            return f"{PATIENCE}: the last {since_best} candidates were not better than the best one"
        return None

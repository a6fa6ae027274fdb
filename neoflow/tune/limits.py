"""`Limits`: when a search ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neoflow.errors import ConfigError, shown

TRIALS, SECONDS, PATIENCE = "trials", "seconds", "patience"
ROUNDING = 16.0
"""F(2x2, 3x3) and the gradient's F(3x3, 2x2) have 7 and 9, F(4x4, 3x3) 256."""


@dataclass(frozen=True)
class Limits:
    """When a search ends, by whichever comes first; None is no limit.

    trials: candidates measured. seconds: since it began; 0: there is no search, and what is known within `rounding` is
    taken. patience: candidates measured since the best became better.
    rounding: of a program; how many times larger than a plain sum's the roundings of an algorithm for contractions may
    be (docs/numbers.md): the default lets in Winograd's F(2x2, 3x3), 256 F(4x4, 3x3), 1 neither. What a search has
    chosen counts in later compilations that allow as much.
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
            is_none = name == SECONDS and value == 0
            if value is not None and not value > 0 and not is_none:
                raise ConfigError(f"limits of a search: {name}={shown(value)} must be positive, or None for no limit")

    @property
    def has_search(self) -> bool:
        """Whether anything is searched for."""
        return self.seconds != 0

    @property
    def without_search(self) -> Limits:
        """The same roundings allowed, and what is known taken."""
        return replace(self, trials=None, seconds=0, patience=None)

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

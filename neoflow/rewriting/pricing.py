"""Operations of many steps as one, or one after the other: which of them, under a limit to memory.

One contraction for all steps takes less time than a chain of them, and what it reads or gives is alive all at once.
Without a limit memory costs nothing. Under a limit that a program does not keep to with everything in memory, it is
also made with a price for each byte that waits: those of the choices go back to chains that gain least a byte, more of
them the higher the price is, up to all. Each of these programs is brought into the limit by computing again what there
is no room for, and the one that takes least time is taken: so a byte costs what the plan pays for it.

The prices follow from the graph and not from the limit, and nothing counts as faster than everything together: more
memory is never slower by the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from neoflow.errors import ConfigError
from neoflow.graph import BATCHES, Editor, Pass, Site, Timed, priced
from neoflow.graph.engine import first
from neoflow.recompute import DoesNotFit, Fitted
from neoflow.runtime.memory import amount
from neoflow.trace import Trace

if TYPE_CHECKING:
    from neoflow.measure import Measurer
    from neoflow.rewriting.optimizing import Optimizer
    from neoflow.tune import Limits

OVER_TIME = "over time"
MOST = 3
"""Prices that are tried besides none and all."""
ABOVE = 1.0 + 1e-6
"""By so much more than what speaks for a choice is the price that goes against it."""


@dataclass(eq=False)
class Price:
    """What a byte costs that waits for the last of many steps, in seconds; and what was chosen at that: for each choice
    that makes bytes wait, the price from which on it would not be."""

    seconds: float = 0.0
    chosen: list[float] = field(default_factory=list)

    def of(self, row: Pass) -> Pass:
        """A pass at this price."""
        return priced(row, self.seconds) if self.seconds else row

    def choose(self, editor: Editor, legal: Iterator[Site]) -> Site | None:
        """The first legal place, which is noted."""
        site = first(editor, legal)
        if site is not None and isinstance(site.rewrite, BATCHES):
            verdict = site.rewrite.legal(editor, site.match)
            if isinstance(verdict, Timed) and verdict.price < math.inf:
                self.chosen.append(verdict.price)
        return site

    def __str__(self) -> str:
        if self.seconds == math.inf:
            return "nothing that makes bytes wait"
        return "whatever takes less time" if not self.seconds else f"a byte that waits at {self.seconds * 1e9:.3g} ns"


class Made(Protocol):
    """A compilation under a limit to memory."""

    @property
    def fitted(self) -> Fitted | None: ...

    @property
    def trace(self) -> Trace: ...


M = TypeVar("M", bound=Made)


@dataclass(frozen=True, eq=False)
class _Way(Generic[M]):
    """A program at a price, or why it does not fit."""

    price: Price
    made: M | None
    refusal: DoesNotFit | None

    @property
    def least(self) -> int:
        return 0 if self.refusal is None else self.refusal.least

    @property
    def whole(self) -> float:
        """Seconds with everything kept."""
        return self.refusal.seconds if self.refusal is not None else self._fitted.before

    @property
    def seconds(self) -> float:
        return math.inf if self.refusal is not None else self._fitted.after

    @property
    def _fitted(self) -> Fitted:
        assert self.made is not None and self.made.fitted is not None
        return self.made.fitted

    @property
    def is_whole(self) -> bool:
        return self.refusal is None and not self._fitted.again

    def __str__(self) -> str:
        text = f"{self.price}, {len(self.price.chosen)} choices: "
        if self.refusal is not None:
            return text + f"does not fit, the least that works is {amount(self.least)}"
        f = self._fitted
        return text + (
            f"{1e3 * f.after:.4g} ms by the estimate, {amount(f.plan.nbytes)}, {amount(f.whole)} with everything kept, "
            f"{len(f.again)} kernels run again"
        )


@dataclass(frozen=True, eq=False)
class OverTime(Generic[M]):
    """ways: all that were tried, the one first in which nothing has a price; best: that of the least time that fits."""

    ways: tuple[_Way[M], ...]
    best: _Way[M]

    @property
    def made(self) -> M:
        assert self.best.made is not None
        return self.best.made

    @property
    def count(self) -> str:
        """How many choices are what they would be without a limit."""
        together, was = len(self.best.price.chosen), len(self.ways[0].price.chosen)
        return f"{together} of {was} operations of many steps that make bytes wait are one"

    @property
    def summary(self) -> str:
        if len(self.ways) == 1:
            return f"everything fits: {self.count}"
        return f"{self.count}, in the fastest of {len(self.ways)} programs"

    def __str__(self) -> str:
        return "\n".join(f"{way}{', taken' if way is self.best else ''}" for way in self.ways)


def in_memory(
    make: Callable[..., M],
    limits: Limits | None,
    measurer: Measurer | None,
    begun: float,
    memory: int | None = None,
    optimizer: Optimizer | None = None,
    measures: Limits | None = None,
) -> M:
    """What `make` makes of all this; where there is a limit to memory, at the price at which it takes least time by the
    estimate with the schedules it has before a search.

    make: takes a `price`, too, and raises `DoesNotFit`. Raises `ConfigError` that says the least that works.
    """
    asked = partial(make, limits, measurer, begun, memory, optimizer=optimizer, measures=measures)
    if memory is None:
        return asked()
    found = cheapest(lambda price: make(None, None, begun, memory, optimizer=optimizer, price=price))
    if limits is None and measures is None:
        return _told(found.made, found)
    return _told(asked(price=Price(found.best.price.seconds)), found)


def _told(made: M, found: OverTime[M]) -> M:
    """A program, and in its record what was compared."""
    if found.ways[0].price.chosen:
        made.trace.run(OVER_TIME, lambda: found, lambda f: f.summary)
    return made


def cheapest(make: Callable[[Price], M]) -> OverTime[M]:
    """The program of the least time by the estimate that fits, of those that `make` makes at different prices, which
    raises `DoesNotFit`. Raises `ConfigError` that says the least that works."""
    usual = _made(make, Price())
    ways = [usual]
    if not usual.is_whole:
        ways += [_made(make, Price(p)) for p in prices(usual.price.chosen)]
    best = min(ways, key=lambda way: (max(way.seconds, usual.whole), way.least))
    if best.refusal is not None:
        raise ConfigError(best.refusal.message + ("" if best is usual else f"; in it {OverTime((usual,), best).count}"))
    return OverTime(tuple(ways), best)


def prices(chosen: Sequence[float]) -> list[float]:
    """Prices at which some of these choices are not made, few at first, and all; no more than `MOST` besides all."""
    different = sorted(set(chosen))
    if not different:
        return []
    steps = different[:-1]
    count = min(MOST, len(steps))
    return [*(ABOVE * steps[(n + 1) * len(steps) // (count + 1)] for n in range(count)), math.inf]


def _made(make: Callable[[Price], M], price: Price) -> _Way[M]:
    try:
        return _Way(price, make(price), None)
    except DoesNotFit as refusal:
        return _Way(price, None, refusal)

"""`Coming`: the batches of the steps that come, the next of them looked at while a step still runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Window(Generic[T]):
    """The batches of one step, none where the epoch is over, and where the data stood after them."""

    batches: list[T]
    place: dict[str, int] | None


class Coming(Generic[T]):
    """Windows of `count` batches of an epoch, in order. place: where the data stand."""

    def __init__(self, batches: Iterator[T], count: int, place: Callable[[], dict[str, int] | None]):
        self._batches, self._count, self._place = batches, count, place
        self._seen: Window[T] | BaseException | None = None

    def take(self) -> Window[T]:
        """The next window. Raises what the data raise."""
        found, self._seen = self._seen, None
        if isinstance(found, BaseException):
            raise found
        return self._next() if found is None else found

    def look(self) -> list[T]:
        """The batches that `take` gives next; what the data raise it raises then, and there are none."""
        if self._seen is None:
            try:
                self._seen = self._next()
            except BaseException as error:  # a step is under way: it is finished and counted first
                self._seen = error
        return self._seen.batches if isinstance(self._seen, Window) else []

    def _next(self) -> Window[T]:
        batches = list(itertools.islice(self._batches, self._count))
        return Window(batches, self._place())

"""Streams of a GPU in software: each does what it is given in order, and waits for moments of the others.

When nothing says which goes first, it is the worst one: uploads, and what another library does, go as late as they may,
so that a step that does not wait for them sees what was there before; or as early, so that they meet a step that still
reads.
"""

from collections.abc import Callable

MAIN, UPLOADS, OTHERS = 0, 1, 2
"""Steps, what is brought for them, and what other libraries do."""


class Streams:
    """A moment of a stream: how much it had been given."""

    def __init__(self, late_uploads: bool, late_others: bool = True):
        self._early = {UPLOADS: not late_uploads, OTHERS: not late_others}
        self._given: tuple[list[Callable[[], None]], ...] = ([], [], [])
        self._done = [0, 0, 0]
        self._busy: set[int] = set()
        self._later: list[Callable[[], None]] = []

    def moment(self, stream: int) -> int:
        return len(self._given[stream])

    def put(self, stream: int, action: Callable[[], None]) -> None:
        self._given[stream].append(action)
        if self._early.get(stream):
            self.run(stream, self.moment(stream))

    def wait(self, stream: int, other: int, moment: int) -> None:
        """What is put into a stream from now on waits for the other's moment."""
        self._given[stream].append(lambda: self.run(other, moment))

    def is_done(self, stream: int, moment: int) -> bool:
        return self._done[stream] >= moment

    def run(self, stream: int, moment: int) -> None:
        """Do what a stream has been given up to a moment.

        Somebody's finalizer may come in the middle of an action: nothing of the same stream goes before its end.
        """
        if stream in self._busy:
            return
        self._busy.add(stream)
        try:
            while self._done[stream] < moment:
                at = self._done[stream]
                action, self._given[stream][at] = self._given[stream][at], _nothing
                self._done[stream] = at + 1
                action()
        except BaseException:
            self._forget()
            raise
        finally:
            self._busy.remove(stream)
        while self._later and not self._busy:
            self._later.pop(0)()

    def _forget(self) -> None:
        """What comes after a fault is never done: a GPU's context ends with it."""
        for given, done in zip(self._given, self._done, strict=True):
            given[done:] = [_nothing] * (len(given) - done)

    def finish(self) -> None:
        """Do all of the main stream; of the others what that waits for."""
        self.run(MAIN, self.moment(MAIN))

    def after_all(self, action: Callable[[], None]) -> None:
        """Once all streams have done what they were given; not in the middle of an action."""

        def last() -> None:
            self.finish_all()
            action()

        if self._busy:
            self._later.append(last)
        else:
            last()

    def finish_all(self) -> None:
        for stream in (MAIN, UPLOADS, OTHERS):
            self.run(stream, self.moment(stream))


def _nothing() -> None:
    pass

"""Two streams of a GPU in software: each does what it is given in order, and waits for moments of the other.

When nothing says which goes first, it is the worst one: uploads go as late as they may, so that a step that does not
wait for them sees what was there before; or as early, so that they meet a step that still reads.
"""

from collections.abc import Callable

MAIN, UPLOADS = 0, 1


class Streams:
    """A moment of a stream: how much it had been given."""

    def __init__(self, late_uploads: bool):
        self.late_uploads = late_uploads
        self._given: tuple[list[Callable[[], None]], ...] = ([], [])
        self._done = [0, 0]

    def moment(self, stream: int) -> int:
        return len(self._given[stream])

    def put(self, stream: int, action: Callable[[], None]) -> None:
        self._given[stream].append(action)
        if stream == UPLOADS and not self.late_uploads:
            self.run(UPLOADS, self.moment(UPLOADS))

    def wait(self, stream: int, other: int, moment: int) -> None:
        """What is put into a stream from now on waits for the other's moment."""
        self._given[stream].append(lambda: self.run(other, moment))

    def run(self, stream: int, moment: int) -> None:
        """Do what a stream has been given up to a moment."""
        while self._done[stream] < moment:
            at = self._done[stream]
            action, self._given[stream][at] = self._given[stream][at], _nothing
            self._done[stream] = at + 1
            action()

    def finish(self) -> None:
        """Do all of the main stream; of the other one what that waits for."""
        self.run(MAIN, self.moment(MAIN))

    def finish_all(self) -> None:
        self.finish()
        self.run(UPLOADS, self.moment(UPLOADS))


def _nothing() -> None:
    pass

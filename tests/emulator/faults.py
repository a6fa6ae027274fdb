"""What a kernel did wrong, and where."""

from dataclasses import dataclass

KINDS = (
    "none",
    "barrier",
    "warp",
    "uninitialised",
    "race",
    "bounds",
    "alignment",
    "copy",
    "arithmetic",
)
"""As in `runtime/machine.h`: a barrier not all threads come to; lanes that do not come to what their warp does; a read
of what nothing was written to; two accesses in no order; an access outside; an address no multiple of the size; a touch
of what an asynchronous copy still brings; a division by zero."""


class SourceError(Exception):
    """The machine cannot run this source: g++ or `source.py` says why."""


class NoCompiler(Exception):
    """There is no g++ on this machine."""


@dataclass(eq=False)
class Fault(Exception):
    """A kernel's fault: what of `KINDS`, whose, at which address and element (where it has one), the line."""

    kind: str
    kernel: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    line: int
    address: int
    word: str
    text: str
    code: str

    def __str__(self) -> str:
        where = f" ({self.word})" if self.word else ""
        line = f"\n  line {self.line}: {self.code}" if self.line else ""
        return f"{self.kind}: {self.kernel}, block {self.block}, thread {self.thread}: {self.text}{where}{line}"

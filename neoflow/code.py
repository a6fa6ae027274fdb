"""`Code`: what the compiled form of a kernel is called by."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar  # annotations are no text: each would be compiled, as a package is loaded

from neoflow.arguments import misfit
from neoflow.boundary import public
from neoflow.errors import TextError
from neoflow.plain import plain

T = TypeVar("T")


class Entry(NamedTuple):
    """One phase of a kernel: the C function `void symbol(void **pointers, int thread, int begin, int end)`.

    It does the tasks from `begin` to `end` out of `tasks`; pieces of them may run side by side where `is_parallel`.

    On a GPU it is `__global__ void symbol(T *pointer, ...)`, launched with `tasks` blocks of `threads` threads, each
    block with `shared_bytes` of dynamic shared memory.
    """

    symbol: str
    tasks: int
    is_parallel: bool
    threads: int = 1
    shared_bytes: int = 0


class Workspace(NamedTuple):
    """Scratch of a kernel: `nbytes` shared by all of its tasks, or so many for each thread."""

    nbytes: int
    is_shared: bool

    def total(self, threads: int) -> int:
        """Bytes for so many threads, whose pieces begin at lines of the cache."""
        return self.nbytes if self.is_shared else threads * self.per_thread

    def room(self, threads: int, turns: int) -> tuple[int, int]:
        """Bytes where so many turns of a loop go side by side, and the distance of two turns' pieces: what is shared is
        shared within a turn."""
        if turns == 1 or not self.is_shared:
            return self.total(threads), 0
        return turns * self.per_thread, self.per_thread

    @property
    def per_thread(self) -> int:
        """The distance of two threads' pieces."""
        return -(-self.nbytes // 64) * 64


class Fault(NamedTuple):
    """What a kernel finds wrong: an index read from data is outside an extent of value `value`; None: of its output."""

    value: int | None
    extent: int


class Code(NamedTuple):
    """How a compiled kernel is called: its entries one after the other, each with the same pointers.

    Pointers: the inputs, the outputs, each workspace, and, where it can fail, a word (int32) that becomes the number of
    a fault, counted from 1. A fault leaves outputs undefined and never reads or writes outside of a buffer.
    """

    entries: tuple[Entry, ...]
    workspaces: tuple[Workspace, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of its functions, in order."""
        return tuple(e.symbol for e in self.entries)

    def to_json(self) -> str:
        """Canonical JSON."""
        return json.dumps(plain(self), sort_keys=True)

    @staticmethod
    @public
    def from_json(text: str) -> "Code":
        """The code that `to_json` gave. Raises `TextError` for anything else."""
        try:
            data: Mapping[str, Any] = json.loads(text)
            return Code(
                tuple(_row(Entry, e) for e in data["entries"]),
                tuple(_row(Workspace, w) for w in data["workspaces"]),
                tuple(_row(Fault, f) for f in data["faults"]),
            )
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise TextError(f"how a kernel is called is not written here: {error}", 1, 1) from None


class Handed(NamedTuple):
    """What another library computes in the place of a kernel: a call of Python's between the kernels of a plan.

    implementation: its name. attributes: what it is told besides tensors. inputs, outputs: their shapes and dtypes.
    ticket: what a call and its gradients have in common. slopes: the inputs that gradients are by, of a call that has
    some: what these need is kept.
    """

    implementation: str
    attributes: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    ticket: int
    slopes: tuple[int, ...] = ()

    @property
    def code(self) -> Code:
        """How it is called: as a kernel is, with a word that stays 1 where it fails."""
        entry = Entry(f"{self.implementation} {self.ticket}", 1, False)
        return Code((entry,), (), (Fault(None, 0),))


def _row(kind: type[T], data: Mapping[str, Any]) -> T:
    """The value of a class with these fields. Raises `TypeError`."""
    row = kind(**data)
    found = misfit(kind, (), data)
    if found is not None:
        raise TypeError(found)
    return row


def kernel_symbol(key: str) -> str:
    """The name that the functions of the kernel of a key begin with."""
    return f"nf_{key[:16]}"

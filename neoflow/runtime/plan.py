"""`Plan`: an ordered list of kernel calls over buffers, as pure data."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple  # annotations are no text: each would be compiled, as a package is loaded

from neoflow import dtype as dt
from neoflow.boundary import public
from neoflow.code import Code
from neoflow.runtime.device import ALIGNMENT
from neoflow.runtime.memory import amount

PARTS = {"parameters": ("parameter",), "constants": ("constant",), "inputs and outputs": ("input", "output")}
"""What is beside temporaries: the kinds of its buffers."""


class Buffer(NamedTuple):
    """Dense row-major memory. kind: `input` and `output` change at every call, `parameter` and `constant` last,
    `temporary` is at `offset` bytes in the arena, `view` is at `offset` bytes in the buffer of number `base`, `scratch`
    at `offset` bytes in the scratch of kernels that a plan has adopted."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    offset: int = 0
    base: int = -1

    @property
    def nbytes(self) -> int:
        """Of its elements."""
        return math.prod(self.shape) * dt.itemsize(self.dtype)


class Call(NamedTuple):
    """Kernel number `kernel` on the buffers with these numbers: inputs, outputs; then its workspaces."""

    kernel: int
    arguments: tuple[int, ...]
    workspaces: tuple[int, ...]
    name: str


class Moving(NamedTuple):
    """The buffer of number `buffer`, a view: in turn n of its loop it begins `step` * ((n + ahead) % period) bytes
    further."""

    buffer: int
    step: int
    period: int
    ahead: int


class Repeated(NamedTuple):
    """The calls from number `first` on, `count` of them, which run `turns` times, one after the other; side by side
    where it `is_apart`: no turn needs another one."""

    first: int
    count: int  # type: ignore[assignment]  # `tuple.count` gives way: files of packages call it so
    turns: int
    moving: tuple[Moving, ...]
    is_apart: bool = False

    def holds(self, other: "Repeated") -> bool:
        """Whether all calls of another loop are among its own."""
        return self.first <= other.first and other.first + other.count <= self.first + self.count


class Plan(NamedTuple):
    """kernels: how each distinct kernel is called. inputs, outputs, parameters: buffer numbers in the user's order.
    constants: those of the graph's constants, in its order.

    saves: (source, target) buffers copied before the first kernel: outputs that are inputs or parameters themselves,
    and old values of parameters that become new ones of others. copies: after the last kernel, in order: updates
    that could not be made in place, and outputs returned twice.
    arena_bytes: memory of all temporaries; live_bytes: the largest live set, which no plan of this order undercuts.
    scratch_bytes: what kernels adopted since it was made need beside that, one after the other in the same memory.
    prepared: so many calls, the first ones, make what depends on parameters alone that no call changes: what others
    read of it has memory that nothing else uses, so that these need not run again while the parameters stay.
    loops: what runs several times, those inside of others before them.
    together: groups of calls that need nothing of each other, and run as one launch: the first of each, and how many.
    """

    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    kernels: tuple[Code, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parameters: tuple[int, ...]
    saves: tuple[tuple[int, int], ...]
    copies: tuple[tuple[int, int], ...]
    arena_bytes: int
    live_bytes: int
    constants: tuple[int, ...] = ()
    scratch_bytes: int = 0
    prepared: int = 0
    loops: tuple[Repeated, ...] = ()
    together: tuple[tuple[int, int], ...] = ()

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of all that there is in memory while it runs, by what they are for."""
        found = {"temporaries": self.arena_bytes + self.scratch_bytes}
        for name, kinds in PARTS.items():
            found[name] = sum(b.nbytes for b in self.buffers if b.kind in kinds)
        return found

    @property
    def nbytes(self) -> int:
        """The sum of its `parts`."""
        return sum(self.parts.values())

    @property
    def memory(self) -> str:
        """Its `parts` in words."""
        return ", ".join(f"{name} {amount(nbytes)}" for name, nbytes in self.parts.items() if nbytes)

    def adopting(self, codes: Mapping[int, Code], threads: int) -> "Plan":
        """The plan with other code for some of its kernels, by their numbers; every buffer that is there stays so."""
        kernels = tuple(codes.get(n, code) for n, code in enumerate(self.kernels))
        buffers, spaces, scratch = list(self.buffers), {}, self.scratch_bytes
        moving: dict[int, Moving] = {}
        for n, code in codes.items():
            turns, found = self._side_by_side(n), []
            end = scratch if turns > 1 else 0  # beside what others go through meanwhile
            for w in code.workspaces:
                nbytes, distance = w.room(threads, turns)
                if distance:
                    moving[len(buffers)] = Moving(len(buffers), distance, turns, 0)
                found.append(len(buffers))
                buffers.append(Buffer("workspace", (nbytes,), "int8", "scratch", end))
                end += -(-nbytes // ALIGNMENT) * ALIGNMENT
            spaces[n], scratch = tuple(found), max(scratch, end)
        calls = tuple(c._replace(workspaces=spaces.get(c.kernel, c.workspaces)) for c in self.calls)
        loops = tuple(self._going_on(a, calls, moving) if a.is_apart else a for a in self.loops)
        apart = {c for c, call in enumerate(calls) if spaces.get(call.kernel)}  # others may be in the same scratch
        together = tuple((a, n) for a, n in self.together if apart.isdisjoint(range(a, a + n)))
        changed = self._replace(buffers=tuple(buffers), calls=calls, kernels=kernels, loops=loops, together=together)
        return changed._replace(scratch_bytes=scratch)

    def _side_by_side(self, kernel: int) -> int:
        """How many turns of a loop go through a kernel at a time, at most."""
        apart = [a for a in self.loops if a.is_apart]
        calls = [n for n, c in enumerate(self.calls) if c.kernel == kernel]
        return max((a.turns for a in apart for n in calls if a.first <= n < a.first + a.count), default=1)

    def _going_on(self, loop: Repeated, calls: Sequence[Call], moving: Mapping[int, Moving]) -> Repeated:
        """A loop with what moves of the workspaces of calls that it has now."""
        given = {w for c in calls[loop.first : loop.first + loop.count] for w in c.workspaces}
        return loop._replace(moving=(*loop.moving, *(m for number, m in moving.items() if number in given)))

    def to_text(self) -> str:
        """The plan as `from_text` reads it back."""
        from neoflow.text import write_record  # imported here: a plan that is run is not printed

        return write_record(self, "plan")

    @classmethod
    @public
    def from_text(cls, text: str) -> "Plan":
        """The plan that `to_text` wrote. Raises `TextError`."""
        from neoflow.text import read_record

        return read_record(cls, text, "plan")

    def __str__(self) -> str:
        lines = [
            f"{len(self.calls)} calls of {len(self.kernels)} kernels, arena {self.arena_bytes} bytes "
            f"(largest live set {self.live_bytes})"
        ]
        lines += [f"save {self.buffers[a].name} -> {self.buffers[b].name}" for a, b in self.saves]
        for call in self.calls:
            arguments = ", ".join(f"{self.buffers[b].name}@{self.place(b)}" for b in call.arguments)
            lines.append(f"k{call.kernel} {call.name}({arguments})")
        lines += [
            f"calls {a.first} to {a.first + a.count - 1} run {a.turns} times{', side by side' * a.is_apart}"
            for a in self.loops
        ]
        lines += [f"calls {a} to {a + n - 1} run together" for a, n in self.together]
        lines += [f"copy {self.buffers[a].name} -> {self.buffers[b].name}" for a, b in self.copies]
        return "\n".join(lines)

    def place(self, number: int) -> str:
        buffer = self.buffers[number]
        return f"{buffer.offset}" if buffer.kind == "temporary" else buffer.kind

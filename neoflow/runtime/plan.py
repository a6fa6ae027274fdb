"""`Plan`: an ordered list of kernel calls over buffers, as pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neoflow.boundary import public
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor
from neoflow.graph import Graph
from neoflow.kernel import Code
from neoflow.partition import KernelCall, View, can_overwrite
from neoflow.runtime.memory import ALIGNMENT, Lifetime, lower_bound, place
from neoflow.text import read_record, write_record


@dataclass(frozen=True)
class Buffer:
    """Dense row-major memory. kind: `input` and `output` change at every call, `parameter` and `constant` last,
    `temporary` is at `offset` bytes in the arena, `view` is at `offset` bytes in the buffer of number `base`, `scratch`
    at `offset` bytes in the scratch of kernels that a plan has adopted."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    offset: int = 0
    base: int = -1


@dataclass(frozen=True)
class Call:
    """Kernel number `kernel` on the buffers with these numbers: inputs, outputs; then its workspaces."""

    kernel: int
    arguments: tuple[int, ...]
    workspaces: tuple[int, ...]
    name: str


@dataclass(frozen=True)
class Plan:
    """kernels: how each distinct kernel is called. inputs, outputs, parameters: buffer numbers in the user's order.
    constants: those of the graph's constants, in its order.

    saves: (source, target) buffers copied before the first kernel: outputs that are inputs or parameters themselves,
    and old values of parameters that become new ones of others. copies: after the last kernel, in order: updates
    that could not be made in place, and outputs returned twice.
    arena_bytes: memory of all temporaries; live_bytes: the largest live set, which no plan of this order undercuts.
    scratch_bytes: what kernels adopted since it was made need beside that, one after the other in the same memory.
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

    def adopting(self, codes: Mapping[int, Code], threads: int) -> Plan:
        """The plan with other code for some of its kernels, by their numbers; every buffer that is there stays so."""
        kernels = tuple(codes.get(n, code) for n, code in enumerate(self.kernels))
        buffers, spaces, scratch = list(self.buffers), {}, self.scratch_bytes
        for n, code in codes.items():
            end, found = 0, []
            for w in code.workspaces:
                found.append(len(buffers))
                buffers.append(Buffer("workspace", (w.total(threads),), "int8", "scratch", end))
                end += -(-w.total(threads) // ALIGNMENT) * ALIGNMENT
            spaces[n], scratch = tuple(found), max(scratch, end)
        calls = tuple(replace(c, workspaces=spaces.get(c.kernel, c.workspaces)) for c in self.calls)
        return replace(self, buffers=tuple(buffers), calls=calls, kernels=kernels, scratch_bytes=scratch)

    def to_text(self) -> str:
        """The plan as `from_text` reads it back."""
        return write_record(self, "plan")

    @classmethod
    @public
    def from_text(cls, text: str) -> Plan:
        """The plan that `to_text` wrote. Raises `TextError`."""
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
        lines += [f"copy {self.buffers[a].name} -> {self.buffers[b].name}" for a, b in self.copies]
        return "\n".join(lines)

    def place(self, number: int) -> str:
        buffer = self.buffers[number]
        return f"{buffer.offset}" if buffer.kind == "temporary" else buffer.kind


class _Planner:
    def __init__(
        self,
        graph: Graph,
        calls: tuple[KernelCall, ...],
        in_place: frozenset[Parameter],
        views: Mapping[Tensor, View],
        kernels: Mapping[str, Code],
        threads: int,
    ):
        self.graph = graph
        self.calls = calls
        self.views = views
        self.in_place = in_place
        self.kernels = kernels
        self.threads = threads
        self.workspaces: list[tuple[int, ...]] = []
        self.buffers: list[Buffer] = []
        self.of: dict[Tensor, int] = {}
        self.saves: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int]] = []

    def buffer(self, t: Tensor, kind: str) -> int:
        self.buffers.append(Buffer(t.name, t.shape, t.dtype, kind))
        return len(self.buffers) - 1

    def run(self) -> Plan:
        graph = self.graph
        for x in graph.inputs:
            self.of[x] = self.buffer(x, "input")
        for p in graph.parameters:
            self.of[p] = self.buffer(p, "parameter")
        for c in graph.constants:
            self.of[c] = self.buffer(c, "constant")
        for p, value in graph.updates:
            if p in self.in_place:
                self.of[value] = self.of[p]
        outputs = [self.output(t) for t in graph.outputs]
        self.share_memory()
        for t, v in self.views.items():
            self.of[t] = len(self.buffers)
            offset = v.offset * dt.itemsize(t.dtype)
            self.buffers.append(Buffer(t.name, t.shape, t.dtype, "view", offset, self.of[v.base]))
        late = [(p, v) for p, v in graph.updates if p not in self.in_place]
        for p, value in late:
            source = self.of[value]
            if isinstance(value, Placeholder) and any(value is q for q, _ in graph.updates):
                kept = self.buffer(value, "output")
                self.saves.append((source, kept))
                source = kept
            self.copies.append((source, self.of[p]))
        numbers = {digest: n for n, digest in enumerate(self.kernels)}
        calls = tuple(
            Call(numbers[c.subgraph.digest], tuple(self.of[t] for t in (*c.inputs, *c.outputs)), spaces, c.name)
            for c, spaces in zip(self.calls, self.workspaces, strict=True)
        )
        return Plan(
            tuple(self.buffers),
            calls,
            tuple(self.kernels.values()),
            tuple(self.of[t] for t in graph.inputs),
            tuple(outputs),
            tuple(self.of[p] for p in graph.parameters),
            tuple(self.saves),
            tuple(self.copies),
            self.arena_bytes,
            self.live_bytes,
            tuple(self.of[c] for c in graph.constants),
        )

    def output(self, t: Tensor) -> int:
        """The buffer returned for a root; what is returned twice, or is not computed, is copied."""
        if t in self.of:
            number = self.buffer(t, "output")
            (self.copies if isinstance(t, Compute) else self.saves).append((self.of[t], number))
            return number
        self.of[t] = self.buffer(t, "output")
        return self.of[t]

    def share_memory(self) -> None:
        """Lifetimes of the temporaries, chained where an output may overwrite a dying input, then offsets."""
        last: dict[Tensor, int] = {}
        for n, call in enumerate(self.calls):
            for t in call.inputs:
                last[self.views[t].base if t in self.views else t] = n
        for t in self.graph.roots:
            last[t] = len(self.calls)
        slots: list[Lifetime] = []
        slot_of: dict[Tensor, int] = {}
        for n, call in enumerate(self.calls):
            taken: set[int] = set()
            for t in call.outputs:
                if t in self.of:
                    continue
                end = last.get(t, n)
                donor = next(
                    (
                        s
                        for s in dict.fromkeys(call.inputs)
                        if s in slot_of
                        and not any(i in self.views and self.views[i].base is s for i in call.inputs)
                        and last[s] == n
                        and slot_of[s] not in taken
                        and s.nbytes == t.nbytes
                        and s.dtype == t.dtype
                        and can_overwrite(call, s, t)
                    ),
                    None,
                )
                if donor is None:
                    slot_of[t] = len(slots)
                    slots.append(Lifetime(t.nbytes, n, end))
                else:
                    slot = slot_of[t] = slot_of[donor]
                    slots[slot] = Lifetime(slots[slot].nbytes, slots[slot].first, end)
                taken.add(slot_of[t])
        spaces = [[w.total(self.threads) for w in self.kernels[c.subgraph.digest].workspaces] for c in self.calls]
        first = len(slots)
        slots += [Lifetime(nbytes, n, n) for n, sizes in enumerate(spaces) for nbytes in sizes]
        offsets, self.arena_bytes = place(slots)
        self.live_bytes = lower_bound(slots)
        for t, slot in slot_of.items():
            self.of[t] = len(self.buffers)
            self.buffers.append(Buffer(t.name, t.shape, t.dtype, "temporary", offsets[slot]))
        for sizes in spaces:
            numbers = range(len(self.buffers), len(self.buffers) + len(sizes))
            self.workspaces.append(tuple(numbers))
            for nbytes in sizes:
                self.buffers.append(Buffer("workspace", (nbytes,), "int8", "temporary", offsets[first]))
                first += 1


def make_plan(
    graph: Graph,
    calls: tuple[KernelCall, ...],
    in_place: frozenset[Parameter],
    views: Mapping[Tensor, View],
    kernels: Mapping[str, Code],
    threads: int,
) -> Plan:
    """Buffers and calls for a graph divided into kernels, in the order given; `in_place` parameters are overwritten.

    kernels: by the digest of its subgraph, how each is called, by at most `threads` threads.
    """
    return _Planner(graph, calls, in_place, views, kernels, threads).run()

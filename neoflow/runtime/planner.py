"""From a graph divided into kernels to its `Plan`: buffers by lifetime, updates in place, copies."""

from __future__ import annotations

from collections.abc import Mapping

from neoflow import dtype as dt
from neoflow.code import Code
from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor
from neoflow.graph import Graph
from neoflow.partition import HandedCall, KernelCall, Loop, View, can_overwrite
from neoflow.runtime.memory import Lifetime, lower_bound, place
from neoflow.runtime.plan import Buffer, Call, Moving, Plan, Repeated


class _Planner:
    def __init__(
        self,
        graph: Graph,
        calls: tuple[KernelCall, ...],
        in_place: frozenset[Parameter],
        views: Mapping[Tensor, View],
        kernels: Mapping[str, Code],
        threads: int,
        prepared: int,
        loops: tuple[Loop, ...],
        together: tuple[tuple[int, int], ...],
    ):
        self.prepared, self.loops, self.together = prepared, loops, together
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
        outputs = [self.output(t) for t in graph.outputs if not self.is_led_out(t)]
        self.share_memory()
        for t, v in self.views.items():
            self.of[t] = len(self.buffers)
            offset = v.offset * dt.itemsize(t.dtype)
            self.buffers.append(Buffer(t.name, t.shape, t.dtype, "view", offset, self.of[v.base]))
        for at, t in enumerate(graph.outputs):
            if self.is_led_out(t):
                outputs.insert(at, self.buffer(t, "output"))
                self.copies.append((self.of[t], outputs[at]))
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
            prepared=self.prepared,
            loops=tuple(self.repeated(loop) for loop in self.loops),
            together=self.together,
        )

    def apart(self, n: int) -> Loop | None:
        """The loop whose turns go side by side that a call is in."""
        return next((a for a in self.loops if a.is_apart and a.first <= n < a.first + a.count), None)

    def repeated(self, loop: Loop) -> Repeated:
        moving = [
            Moving(self.of[t], m.step * dt.itemsize(t.dtype), m.period, m.ahead)
            for t, m in loop.motions.items()
            if t in self.of
        ]
        for n in range(loop.first, loop.first + loop.count) if loop.is_apart else ():
            spaces = self.kernels[self.calls[n].subgraph.digest].workspaces
            for number, w in zip(self.workspaces[n], spaces, strict=True):
                if distance := w.room(self.threads, loop.turns)[1]:
                    moving.append(Moving(number, distance, loop.turns, 0))
        return Repeated(loop.first, loop.count, loop.turns, tuple(moving), loop.is_apart)

    def is_led_out(self, t: Tensor) -> bool:
        """Whether a root is what a loop has left in its memory."""
        return isinstance(t, Placeholder) and t in self.views

    def output(self, t: Tensor) -> int:
        """The buffer returned for a root; what is returned twice, or is not computed, is copied."""
        if t in self.of:
            number = self.buffer(t, "output")
            (self.copies if isinstance(t, Compute) else self.saves).append((self.of[t], number))
            return number
        self.of[t] = self.buffer(t, "output")
        return self.of[t]

    def kept(self) -> set[Tensor]:
        """What is prepared and read afterwards: it is there at every call."""
        made = {t for call in self.calls[: self.prepared] for t in call.outputs}
        read = {t for call in self.calls[self.prepared :] for t in call.inputs}
        return made & {self.views[t].base if t in self.views else t for t in read}

    def base(self, t: Tensor) -> Tensor:
        return self.views[t].base if t in self.views else t

    def lasting(self, first: dict[Tensor, int], last: dict[Tensor, int]) -> set[Tensor]:
        """What is there in every turn of a loop; its lifetime is made that of the loop, at least."""
        found: set[Tensor] = set()
        for loop in self.loops:
            end = loop.first + loop.count - 1
            moved = {self.views[t].base for t in loop.motions if t in self.views}
            for t in first:
                is_touched = first[t] <= end and last[t] >= loop.first
                if is_touched and (t in moved or first[t] < loop.first or last[t] > end):
                    first[t], last[t] = min(first[t], loop.first), max(last[t], end)
                    found.add(t)
        return found

    def moments(self) -> list[int]:
        """When each call runs: those of a group when its first one does."""
        found = list(range(len(self.calls)))
        for first, count in self.together:
            found[first : first + count] = [first] * count
        return found

    def beside(self, n: int) -> set[Tensor]:
        """What the calls that run together with call n read and write."""
        group = next(((a, count) for a, count in self.together if a <= n < a + count), (n, 1))
        others = (c for m, c in enumerate(self.calls[group[0] : sum(group)], group[0]) if m != n)
        return {self.base(t) for c in others for t in (*c.inputs, *c.outputs)}

    def share_memory(self) -> None:
        """Lifetimes of the temporaries, chained where an output may overwrite a dying input, then offsets."""
        begun: dict[Tensor, int] = {}
        last: dict[Tensor, int] = {}
        moment = self.moments()
        for n, call in zip(moment, self.calls, strict=True):
            for t in map(self.base, (*call.inputs, *call.outputs)):  # of a whole, what is written last counts too
                begun.setdefault(t, n)
                last[t] = n
        through = self.lasting(begun, last)
        for t in (*map(self.base, self.graph.roots), *self.kept()):
            last[t] = len(self.calls)
        slots: list[Lifetime] = []
        slot_of: dict[Tensor, int] = {}
        taken: set[int] = set()
        for at, (n, call) in enumerate(zip(moment, self.calls, strict=True)):
            if n == at:  # of a group the first
                taken = set()
            beside = self.beside(at)
            for t in call.outputs:
                is_part = t in self.views
                t = self.views[t].base if is_part else t
                if t in self.of or t in slot_of:
                    continue
                end = last.get(t, n)
                donor = next(
                    (
                        s
                        for s in (() if is_part or t in through else donors(call, t, self.views))
                        if s in slot_of and s not in through and last[s] == n and slot_of[s] not in taken
                        if s not in beside
                    ),
                    None,
                )
                if donor is None:
                    slot_of[t] = len(slots)
                    slots.append(Lifetime(t.nbytes, min(n, begun[t]), end))
                else:
                    slot = slot_of[t] = slot_of[donor]
                    slots[slot] = Lifetime(slots[slot].nbytes, slots[slot].first, end)
                taken.add(slot_of[t])
        spaces: list[list[int]] = []
        first = len(slots)
        for n, call in enumerate(self.calls):
            loop = self.apart(n)
            turns, begin, end = (
                (1, moment[n], moment[n]) if loop is None else (loop.turns, loop.first, loop.first + loop.count - 1)
            )
            rooms = [w.room(self.threads, turns) for w in self.kernels[call.subgraph.digest].workspaces]
            spaces.append([nbytes for nbytes, _ in rooms])
            slots += [Lifetime(nbytes, begin, end) for nbytes, _ in rooms]
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


def donors(call: KernelCall, t: Tensor, views: Mapping[Tensor, View]) -> list[Tensor]:
    """The inputs of a kernel in whose memory its output t may lie, where nothing reads them afterwards."""
    if isinstance(call, HandedCall):
        return []
    viewed = {views[i].base for i in call.inputs if i in views}
    return [
        s
        for s in dict.fromkeys(call.inputs)
        if s not in viewed and s.nbytes == t.nbytes and s.dtype == t.dtype and can_overwrite(call, s, t)
    ]


def make_plan(
    graph: Graph,
    calls: tuple[KernelCall, ...],
    in_place: frozenset[Parameter],
    views: Mapping[Tensor, View],
    kernels: Mapping[str, Code],
    threads: int,
    prepared: int = 0,
    loops: tuple[Loop, ...] = (),
    together: tuple[tuple[int, int], ...] = (),
) -> Plan:
    """Buffers and calls for a graph divided into kernels, in the order given; `in_place` parameters are overwritten.

    kernels: by the digest of its subgraph, how each is called, by at most `threads` threads. prepared: how many of the
    first calls need not run at every call of the program (`partition.prepared_first`). loops: over these calls, see
    `partition.flattened`. together: see `partition.grouped`.
    """
    return _Planner(graph, calls, in_place, views, kernels, threads, prepared, loops, together).run()

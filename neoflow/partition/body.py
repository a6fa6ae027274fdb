"""The body of a recurrence as calls of kernels, and where its values lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from neoflow.expr.close import define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Read
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Last, Looped, Run
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Constant, Definition, Parameter, Placeholder, Tensor
from neoflow.graph import Graph
from neoflow.graph.kept_rows import KeptRow, kept_row
from neoflow.partition.calls import Call, Decision, KernelCall, Motion, Partition, View
from neoflow.partition.levels import Divide, in_levels, is_ordered
from neoflow.partition.order import order_calls
from neoflow.partition.prepared import prepared_first
from neoflow.partition.strands import Strands
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.verdict import Verdict

ROWS = "rows_in_place"
"""What decisions about what a step changes a row of are called."""


@remembered
def _copying(definition: Definition) -> Subgraph:
    """The kernel that writes a tensor of a definition's shape and type somewhere else."""
    value = Value(definition.shape, definition.body.dtype)
    return Subgraph((value,), (Node(definition, (0,)),), (1,))


def copy_of(t: Tensor) -> KernelCall:
    """A call that writes the elements of t to a new tensor."""
    source = Placeholder(t.shape, t.dtype, t.name, t.where)
    axes = unnamed_axes(t.shape, t.where)
    made = define(t.shape, axes, Read(source, axes), t.name)
    copy = Compute(made.definition, (t,), f"{t.name} copied", made.axis_names, t.where)
    return KernelCall(_copying(made.definition), (t,), (copy,), copy.name)


def _own(bound: Mapping[Tensor, Tensor]) -> Callable[[Tensor], Tensor | None]:
    """What a body reads for a tensor, see `replaced`: of what follows from nothing a copy, for another run of the same
    recurrence writes it elsewhere."""
    copies: dict[Tensor, Tensor] = {}
    made: set[Tensor] = set()

    def instead(t: Tensor) -> Tensor | None:
        if isinstance(t, Compute) and t not in made and all(isinstance(i, Constant) for i in t.inputs):
            if t not in copies:
                copies[t] = Compute(t.definition, t.inputs, t.name, t.axis_names, t.where)
                made.add(copies[t])
            return copies[t]
        return bound.get(t)

    return instead


class Body:
    """The body of a run as calls, and where its values lie.

    bound: what the calls read in the place of a placeholder of the recurrence, which other runs have too. fixed,
    slices: those of them that stand for inputs of the run. rings: memory of what is carried, by its number;
    stacks: of what is kept of every turn. first: by ring the first value and its place.

    Of a run in strands it is the body of one: they go side by side through the same memory, each through its part of
    every value, by the motions in `apart`; what a turn forgets each has for itself, in `own_memory`.
    """

    def __init__(
        self,
        run: Run,
        kept: Sequence[Tensor],
        divide: Divide,
        strands: Strands | None = None,
        in_place: bool = True,
    ):
        r = self.recurrence = run.recurrence if strands is None else strands.recurrence
        self.run, self.strands = run, 1 if strands is None else strands.count
        self.name = r.then[0].name if r.then else (kept[0].name if kept else "")
        sources = run.by_placeholder if strands is None else strands.sources
        stays = [p for p in r.fixed if strands is not None and p in strands.apart]
        shared: dict[Tensor, Tensor] = {
            p: Parameter(p.shape, p.dtype, p.name, p.where, init=None) for p in r.fixed if p not in stays
        }
        own = {p: Placeholder(p.shape, p.dtype, p.name, p.where) for p in (*r.carried, *r.slices, *stays)}
        self.bound = dict(shared)
        for p, q in own.items():
            self.bound[p] = q
        self.parted = {own[p] for p in own if strands is not None and p in strands.apart}
        self.decisions: list[Decision] = []
        self.rows = self._kept_rows(kept) if strands is None and in_place else {}
        asked = [*r.then, *(kept if strands is None else strands.kept)]
        graph, cut = self._divided(asked, tuple(own.values()), divide)
        self.fixed = {self.bound[p]: sources[p] for p in r.fixed}
        self.slices = {own[p]: sources[p] for p in r.slices}
        self.own: set[Tensor] = {*(own[c] for c in r.carried), *(whole for _, whole in self.rows.values())}
        self.parts = [t for t in graph.order if isinstance(t, (Compute, Constant))]
        calls, _ = order_calls(graph, cut)
        calls, count = prepared_first(graph, calls, cut.views)
        self.before, self.cut = list(calls[:count]), replace(cut, calls=())
        self.views: dict[Tensor, View] = {}
        self.motions: dict[Tensor, Motion] = {}
        self.apart: dict[Tensor, Motion] = {p: Motion(p.size, self.strands) for p in self.parted}
        self.own_memory: list[Placeholder] = []
        self._lay(list(calls[count:]), graph.outputs, kept)
        if self.strands > 1:
            self._give_memory()

    def _kept_rows(self, kept: Sequence[Tensor]) -> dict[int, tuple[KeptRow, Placeholder]]:
        """By number what is carried of which a step writes a row in place, and what stands for it afterwards."""
        found: dict[int, tuple[KeptRow, Placeholder]] = {}
        for n, c in enumerate(self.recurrence.carried):
            row = kept_row(self.run, n, kept)
            if isinstance(row, KeptRow):
                found[n] = row, Placeholder(c.shape, c.dtype, c.name, c.where)
                row = Verdict(True, "a step writes it in place")
            if row is not None:
                self.decisions.append(Decision(ROWS, f"a row of {self.recurrence.then[n].name}", row))
        return found

    def _divided(
        self, asked: Sequence[Tensor], own: tuple[Placeholder, ...], divide: Divide
    ) -> tuple[Graph, Partition]:
        """The body as kernels: what reads the rows that are there comes after those that write one of them."""
        then = self.recurrence.then
        wholes: dict[Tensor, Tensor] = {then[n]: whole for n, (_, whole) in self.rows.items()}
        asked = [self.rows[n][0].new if n in self.rows else t for n, t in enumerate(asked)]
        roots = replaced(asked, _own({**self.bound, **wholes}))
        inputs = (*own, *(whole for _, whole in self.rows.values()))
        written = {whole: n for n, (_, whole) in self.rows.items()}
        graph, cut = divide(Graph(inputs, tuple(roots), ()))
        cut = replace(cut, aliases={**cut.aliases, **{w: graph.outputs[n] for w, n in written.items()}})
        return (graph, cut) if is_ordered(cut) else in_levels(inputs, roots, written, divide)

    def _lay(self, calls: list[Call], roots: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
        r = self.recurrence
        back = r.is_reversed
        for s in self.slices:
            size = self._whole(s)
            self.motions[s] = Motion(-size if back else size, r.steps)
        count = len(r.carried)
        before = {id(self.bound[c]): n for n, c in enumerate(r.carried)}
        after = {id(t): n for n, t in reversed([*enumerate(roots[:count])]) if t.inputs and n not in self.rows}
        made = roots[count:]
        lags = self._lags(roots[:count])
        long = {lags[n][0] for t in made for n in (before.get(id(t)), after.get(id(t))) if n is not None}
        self.rings: dict[int, Tensor] = {}
        self.first: dict[int, tuple[Tensor, int]] = {}
        self.last: dict[int, int] = {}
        deepest = {m: max(lag for of, lag in lags if of == m) for m, _ in lags}
        targets: list[tuple[Tensor, View, Motion]] = []
        at: dict[int, tuple[int, int]] = {}
        """by number, from which element on a stack of it, and of what it is then, begins in a long ring"""
        for n, (of, lag) in sorted(enumerate(lags), key=lambda a: a[1][1]):
            if n in self.rows:
                targets.append((roots[n], *self._row(n)))
                continue
            c, own, deep = r.carried[n], self.bound[r.carried[n]], deepest[of]
            size = c.size * self.strands
            places = deep + (r.steps + 1 if of in long else 2)
            if n == of:
                self.rings[n] = self._memory((places,), c, "carried")
            ring = self.rings[n] = self.rings[of]
            ahead = deep - lag
            if of in long:
                step = -size if back else size
                start = (r.steps + lag) * size if back else ahead * size
                self.views[own], self.motions[own] = View(ring, start), Motion(step, places)
                target = View(ring, start + step, True), Motion(step, places)
                self.last[n] = start + r.steps * step
                at[n] = ((lag + 1) * size, lag * size) if back else (start, start + step)
            else:
                start = ahead * size
                self.views[own], self.motions[own] = View(ring, 0), Motion(size, places, ahead)
                target = View(ring, 0, True), Motion(size, places, ahead + 1)
                self.last[n] = size * ((r.steps + ahead) % places)
            if n == of:
                targets.append((roots[n], *target))
            self.first[n] = (self.run.inputs[n], start)
        self.stacks: dict[Tensor, Tensor] = {}
        self.kept_at: dict[Tensor, tuple[Tensor, int]] = {}
        by_root: dict[Tensor, Tensor] = {}
        for t, root in zip(kept, made, strict=True):
            known = before.get(id(root), after.get(id(root)))
            if known is not None:
                self.kept_at[t] = self.rings[known], at[known][id(root) not in before]
            elif root in self.slices:
                self.kept_at[t] = self.slices[root], 0
            elif root in by_root:
                self.kept_at[t] = by_root[root], 0
            else:
                stack = self.stacks[t] = by_root[root] = self._memory((r.steps,), root, "stacked")
                start, step = ((r.steps - 1) * t.size, -t.size) if back else (0, t.size)
                targets.append((root, View(stack, start, True), Motion(step, r.steps)))
                self.kept_at[t] = stack, 0
        self._write(calls, targets)

    def _row(self, n: int) -> tuple[View, Motion]:
        """Where a row of what is carried is written, which has one place."""
        r, c, (row, whole) = self.recurrence, self.recurrence.carried[n], self.rows[n]
        ring = self.rings[n] = self._memory((1,), c, "carried")
        self.views[whole], self.last[n], self.first[n] = View(ring, 0), 0, (self.run.inputs[n], 0)
        size = c.size // c.shape[0]
        at = row.first + (r.steps - 1 if r.is_reversed else 0)
        return View(ring, at * size, True), Motion(-size if r.is_reversed else size, r.steps)

    def _lags(self, then: Sequence[Tensor]) -> list[tuple[int, int]]:
        """By number of what is carried: which one it was how many steps ago, (itself, 0) for most.

        h, g = f(h, g), h    ->    g is h of one step ago: one ring holds both
        """
        before = {self.bound[c]: n for n, c in enumerate(self.recurrence.carried)}
        was = {n: before[t] for n, t in enumerate(then) if t in before and n not in self.rows}
        found = {n: (n, 0) for n in range(len(then)) if n not in was}
        while ready := [n for n in was if n not in found and was[n] in found]:
            for n in ready:
                of, lag = found[was[n]]
                found[n] = (n, 0) if (of, lag + 1) in found.values() else (of, lag + 1)
        return [found.get(n, (n, 0)) for n in range(len(then))]

    def _write(self, calls: list[Call], targets: Sequence[tuple[Tensor, View, Motion]]) -> None:
        """Let each target be written where it is to lie: by its kernel, or by a copy."""
        bound = {v.base for v in self.cut.views.values()} | set(self.cut.views) | set(self.cut.wholes)
        free = {t for c in calls if isinstance(c, KernelCall) for t in c.outputs} - bound
        for made, view, motion in targets:
            if made in free:
                free.discard(made)
            else:
                copy = copy_of(made)
                calls.insert(self._before_readers(calls, view), copy)
                made = copy.outputs[0]
            self.views[made], self.motions[made] = view, motion
            self.apart[made] = Motion(made.size, self.strands)
        self.calls = tuple(calls)

    def _before_readers(self, calls: Sequence[Call], written: View) -> int:
        """Where in the calls a row is written: before whoever reads what it is one of. Other targets come last."""
        wholes = {w for n, (_, w) in self.rows.items() if self.rings[n] is written.base}
        views = self.cut.views
        reading = [
            n for n, c in enumerate(calls) if any((views[t].base if t in views else t) in wholes for t in c.inputs)
        ]
        return min(reading, default=len(calls))

    def _give_memory(self) -> None:
        """Let each strand have what else its calls write in a part of its own."""
        for made in (t for c in self.calls for t in c.outputs):
            base = self.cut.views[made].base if made in self.cut.views else made
            if base not in self.views:
                self.own_memory.append(self._memory((), base, "of strands"))
                self.views[base], self.apart[base] = View(self.own_memory[-1], 0, True), Motion(base.size, self.strands)

    def _memory(self, places: tuple[int, ...], t: Tensor, what: str) -> Placeholder:
        """Memory for so many values, or one, of all strands."""
        strands = (self.strands,) if self.strands > 1 else ()
        return Placeholder((*places, *strands, *t.shape), t.dtype, f"{t.name} {what}", t.where)

    def _whole(self, p: Tensor) -> int:
        """The elements of what a placeholder stands for, of all strands."""
        return p.size * (self.strands if p in self.parted else 1)

    def start(self, p: Placeholder) -> int:
        """The element of the input of a slice where that of the first turn begins."""
        return (self.recurrence.steps - 1) * self._whole(p) if self.recurrence.is_reversed else 0

    def place(self, t: Looped) -> tuple[Tensor, int]:
        """Where what leads out lies: in which memory, from which element on."""
        if isinstance(t, Last):
            return self.rings[t.number], self.last[t.number]
        return self.kept_at[t.of]

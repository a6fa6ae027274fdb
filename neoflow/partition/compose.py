"""From a graph with recurrences to kernel calls and loops over them.

    levels     what has no recurrence before it; what these need; what follows from them; ...
    a level    a graph of its own, rewritten and divided like any other; what it reads of others are placeholders, that
               are views of what the others store
    a run      its body, rewritten and divided alike, and the memory it goes through:

        x[t]         the slice of a turn           a view that moves through x
        h[t]         what is carried               a view that moves through a ring: of two places, or, where every
        h[t + 1]     what it is then               turn's is kept, of one more than there are turns
        h[t - 1]     what h was a turn ago         a view one place behind in the same ring
        y[t]         what is kept of every turn    a view that moves through a stack
        w            what is fixed                 a view that stays; what follows from it alone is done before

Source: the loops of a plan follow Halide's stores and folded storage (Ragan-Kelley and others, 2013, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from neoflow.expr.close import define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Read
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Last, Looped, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Constant, Definition, Parameter, Placeholder, Tensor, topological
from neoflow.graph import Graph, contiguous_offset
from neoflow.graph.fission import split_steps
from neoflow.partition.calls import Call, Decision, KernelCall, LoopCall, Motion, Partition, View
from neoflow.partition.looped import carried_along, settled
from neoflow.partition.order import order_calls
from neoflow.partition.prepared import prepared_first
from neoflow.partition.strands import Strands
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.verdict import Verdict

Divide = Callable[[Graph], tuple[Graph, Partition]]
"""Rewrites a graph without recurrences, and divides it."""
Split = Callable[[Run, Sequence[Tensor]], Strands | Verdict]
"""The strands of a run of which these tensors are kept of every turn, see `strands_of`."""
STRANDS = "strands"
"""What decisions about them are called."""


@dataclass(frozen=True)
class Whole(Graph):
    """A graph of several parts: what it needs besides its roots is `parts`, those of all levels and bodies."""

    parts: tuple[Tensor, ...] = ()

    @cached_property
    def order(self) -> tuple[Tensor, ...]:
        return self.parts


def compose(
    graph: Graph,
    divide: Divide,
    inner: Divide | None = None,
    split: Split | None = None,
    block: Callable[[Graph], Graph] | None = None,
) -> tuple[Graph, Partition]:
    """Divide a graph, whatever is in it. Of one without recurrences this is `divide`. inner: divides bodies, whose
    parameters are what is fixed in all turns. split: into strands that threads go through side by side. block: puts
    blocks of steps side by side, where that pays."""
    if runs_of(graph.order):
        graph = split_steps(graph).graph
        graph = graph if block is None else block(graph)
    if not runs_of(graph.order):
        return divide(graph)
    return _Composer(graph, divide, inner or divide, split).run()


class _Composer:
    """stands: the placeholder that stands for a tensor of another level. views, wholes, aliases: see `Partition`."""

    def __init__(self, graph: Graph, divide: Divide, inner: Divide, split: Split | None):
        self.graph, self.divide, self.inner, self.split = graph, divide, inner, split
        self.stands: dict[Tensor, Placeholder] = {}
        self.calls: list[Call] = []
        self.views: dict[Tensor, View] = {}
        self.wholes: dict[Tensor, tuple[Compute, ...]] = {}
        self.aliases: dict[Tensor, Tensor] = {}
        self.decisions: list[Decision] = []
        self.parts: dict[Tensor, None] = {}
        self.level = levels(graph)
        self.kept: dict[Run, dict[Tensor, None]] = {}
        """by run: the tensors of its body that are kept of every turn"""
        for t in graph.order:
            if isinstance(t, Looped):
                self.kept.setdefault(t.run, {})
                if isinstance(t, Stacked):
                    self.kept[t.run][t.of] = None

    def run(self) -> tuple[Graph, Partition]:
        graph = self.graph
        top = max(self.level.values())
        runs: dict[int, list[Run]] = {}
        for t in graph.order:
            if isinstance(t, Looped) and t.run not in runs.setdefault(self.level[t], []):
                runs[self.level[t]].append(t.run)
        final: tuple[Tensor, ...] = ()
        for level in range(top + 1):
            for run in runs.get(level, ()):
                self.loop(run)
            roots = list(graph.roots) if level == top else []
            crossing = dict.fromkeys(self.crossing(level))
            within = {t: place for t in crossing if (place := self.within(t)) is not None}
            stored = dict.fromkeys(t for t in crossing if t not in within)
            stored |= dict.fromkeys(t for t, _ in within.values() if isinstance(t, Compute) and self.level[t] == level)
            made = self.part([*roots, *stored], level)
            if level == top:
                final, made = made[: len(roots)], made[len(roots) :]
            for t, value in zip(stored, made, strict=True):
                self.stand_for(t, value)
            for t, (base, offset) in within.items():
                self.stand_for(t, self.known(base), offset)
        count = len(graph.outputs)
        updates = tuple((p, v) for (p, _), v in zip(graph.updates, final[count:], strict=True))
        stands = set(self.stands.values())
        whole = Whole(graph.inputs, final[:count], updates, tuple(t for t in self.parts if t not in stands))
        return whole, Partition(
            tuple(self.calls), settled(self.views), tuple(self.decisions), self.wholes, self.aliases
        )

    # -------------------------------------------------------------------------------------------------------- levels

    def crossing(self, level: int) -> Iterable[Compute]:
        """The computes of a level that others read, or runs, or whoever calls."""
        if level < max(self.level.values()):
            yield from (t for t in self.graph.roots if isinstance(t, Compute) and self.level[t] == level)
        for t in self.graph.order:
            for i in t.inputs:
                if (
                    isinstance(i, Compute)
                    and self.level[i] == level
                    and (isinstance(t, Looped) or self.level[t] > level)
                ):
                    yield i

    def within(self, t: Compute) -> tuple[Tensor, int] | None:
        """What has the elements of t in their order, and from which on: they need not be stored for another level."""
        base: Tensor = t
        at = 0
        while isinstance(base, Compute) and self.level[base] == self.level[t]:
            offset = contiguous_offset(base.definition)
            if offset is None:
                break
            base, at = base.inputs[0], at + offset
        return None if base is t or isinstance(base, Constant) or t in self.graph.roots else (base, at)

    def part(self, roots: Sequence[Tensor], level: int) -> tuple[Tensor, ...]:
        """Divide the computes of a level; what the roots have become."""

        def instead(t: Tensor) -> Tensor | None:
            if isinstance(t, Looped) or (isinstance(t, Compute) and self.level[t] < level):
                return self.stand(t)
            return None

        over = replaced(list(roots), instead)
        if not any(isinstance(t, Compute) for t in over):
            self.parts.update(dict.fromkeys(over))
            return tuple(over)
        read = [t for t in topological(over) if isinstance(t, Placeholder) and not isinstance(t, Parameter)]
        graph, cut = self.divide(Graph(tuple(read), tuple(over), ()))
        self.take(cut)
        self.parts.update(dict.fromkeys(graph.order))
        return graph.outputs

    def take(self, cut: Partition) -> None:
        self.calls += cut.calls
        self.views.update(cut.views)
        self.wholes.update(cut.wholes)
        self.aliases.update(cut.aliases)
        self.decisions += cut.decisions

    def stand(self, t: Tensor) -> Placeholder:
        """What a graph reads in the place of t."""
        if t not in self.stands:
            self.stands[t] = Placeholder(t.shape, t.dtype, t.name, t.where)
        return self.stands[t]

    def stand_for(self, t: Tensor, value: Tensor, offset: int = 0) -> None:
        """Let what stands for t be a view of what was stored for it."""
        p = self.stand(t)
        self.views[p] = View(value, offset)
        self.aliases[p] = value

    def known(self, t: Tensor) -> Tensor:
        """What calls read in the place of t."""
        return self.stand(t) if t in self.stands or isinstance(t, Looped) else t

    # ---------------------------------------------------------------------------------------------------------- runs

    def loop(self, run: Run) -> None:
        """The calls of a run, and what stands for what leads out of it."""
        self.parts.update(dict.fromkeys(t for t in run.inputs if not t.inputs))
        kept = list(self.kept[run])
        body = _Body(run, kept, self.inner, self.parted(run, kept))
        views: dict[Tensor, View] = {p: View(self.known(t), 0) for p, t in body.fixed.items()}
        views |= {p: View(self.known(t), body.start(p)) for p, t in body.slices.items()}
        self.aliases.update({p: v.base for p, v in views.items()})
        self.take(body.cut)
        self.views.update(views)
        self.parts.update(dict.fromkeys(body.parts))
        first = [self.copied(self.known(t), View(body.rings[n], at)) for n, (t, at) in body.first.items()]
        self.calls += [*first, *body.before]
        self.views.update(body.views)
        motions = carried_along(self.views, body.motions)
        inside = {t for c in body.calls for t in c.outputs}
        read = dict.fromkeys(t for c in body.calls for t in c.inputs if t not in inside)
        inputs = [*(c.outputs[0] for c in first), *(t for t in read if t not in body.own)]
        memory = (*dict.fromkeys(body.rings.values()), *body.stacks.values(), *body.own_memory)
        loop = LoopCall(body.calls, run.recurrence.steps, motions, tuple(inputs), memory, f"loop {body.name}")
        if body.strands > 1:
            apart = carried_along(self.views, body.apart)
            loop = replace(loop, calls=(loop,), turns=body.strands, motions=apart, is_apart=True)
        self.calls.append(loop)
        for t in self.graph.order:
            if isinstance(t, Looped) and t.run is run:
                base, offset = body.place(t)
                self.stand_for(t, self.known(base), offset)

    def parted(self, run: Run, kept: Sequence[Tensor]) -> Strands | None:
        """The strands of a run where it goes in some."""
        if self.split is None:
            return None
        found = self.split(run, kept)
        verdict = found if isinstance(found, Verdict) else Verdict(True, f"{found.count} parts, each alone")
        names = ", ".join(c.name for c in run.recurrence.carried)
        self.decisions.append(Decision(STRANDS, f"loop over {run.recurrence.steps} steps of {names}", verdict))
        return None if isinstance(found, Verdict) else found

    def copied(self, t: Tensor, view: View) -> KernelCall:
        call = copy_of(t)
        self.views[call.outputs[0]] = replace(view, is_part=True)
        return call


def levels(graph: Graph) -> dict[Tensor, int]:
    """How many runs are behind one another before a tensor; a compute is on the last level where it is in time for all
    that read it."""
    soonest: dict[Tensor, int] = {}
    for t in graph.order:
        soonest[t] = max((soonest[i] for i in t.inputs), default=0) + isinstance(t, Looped)
    top = max(soonest.values())
    latest: dict[Tensor, int] = {}
    for t in reversed(graph.order):
        own = soonest[t] if isinstance(t, Looped) else latest.get(t, top)
        latest[t] = own
        for i in t.inputs:
            latest[i] = min(latest.get(i, top), own - 1 if isinstance(t, Looped) else own)
    return {t: soonest[t] if isinstance(t, Looped) else latest[t] for t in graph.order}


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


class _Body:
    """The body of a run as calls, and where its values lie.

    bound: what the calls read in the place of a placeholder of the recurrence, which other runs have too. fixed,
    slices: those of them that stand for inputs of the run. rings: memory of what is carried, by its number;
    stacks: of what is kept of every turn. first: by ring the first value and its place.

    Of a run in strands it is the body of one: they go side by side through the same memory, each through its part of
    every value, by the motions in `apart`; what a turn forgets each has for itself, in `own_memory`.
    """

    def __init__(self, run: Run, kept: Sequence[Tensor], divide: Divide, strands: Strands | None = None):
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
        roots = replaced([*r.then, *(kept if strands is None else strands.kept)], _own(self.bound))
        graph, cut = compose(Graph(tuple(own.values()), tuple(roots), ()), divide)
        self.fixed = {self.bound[p]: sources[p] for p in r.fixed}
        self.slices = {own[p]: sources[p] for p in r.slices}
        self.own: set[Tensor] = {own[c] for c in r.carried}
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

    def _lay(self, calls: list[Call], roots: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
        r = self.recurrence
        back = r.is_reversed
        for s in self.slices:
            size = self._whole(s)
            self.motions[s] = Motion(-size if back else size, r.steps)
        count = len(r.carried)
        before = {id(self.bound[c]): n for n, c in enumerate(r.carried)}
        after = {id(t): n for n, t in reversed([*enumerate(roots[:count])]) if t.inputs}
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

    def _lags(self, then: Sequence[Tensor]) -> list[tuple[int, int]]:
        """By number of what is carried: which one it was how many steps ago, (itself, 0) for most.

        h, g = f(h, g), h    ->    g is h of one step ago: one ring holds both
        """
        before = {self.bound[c]: n for n, c in enumerate(self.recurrence.carried)}
        was = {n: before[t] for n, t in enumerate(then) if t in before}
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
                calls.append(copy_of(made))
                made = calls[-1].outputs[0]
            self.views[made], self.motions[made] = view, motion
            self.apart[made] = Motion(made.size, self.strands)
        self.calls = tuple(calls)

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

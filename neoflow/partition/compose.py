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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from neoflow.expr.foreign import Called, Foreign, Given, calls_of
from neoflow.expr.recurrence import Looped, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor, topological
from neoflow.graph import Graph, contiguous_offset
from neoflow.graph.fission import split_steps
from neoflow.partition.body import Body, copy_of
from neoflow.partition.calls import Call, Decision, KernelCall, LoopCall, Partition, View
from neoflow.partition.handed import handed_call
from neoflow.partition.levels import Divide, Whole
from neoflow.partition.looped import carried_along, settled
from neoflow.partition.strands import Strands
from neoflow.verdict import Verdict

Split = Callable[[Run, Sequence[Tensor]], Strands | Verdict]
"""The strands of a run of which these tensors are kept of every turn, see `strands_of`."""
LEADS = (Looped, Given)
"""What is computed by no kernels of its level."""
STRANDS = "strands"
"""What decisions about them are called."""


def compose(
    graph: Graph,
    divide: Divide,
    inner: Divide | None = None,
    split: Split | None = None,
    block: Callable[[Graph], Graph] | None = None,
    in_place: bool = True,
) -> tuple[Graph, Partition]:
    """Divide a graph, whatever is in it. Of one without recurrences this is `divide`. inner: divides bodies, whose
    parameters are what is fixed in all turns. split: into strands that threads go through side by side. block: puts
    blocks of steps side by side, where that pays. in_place: whether a step writes a row of what it carries in place."""
    if runs_of(graph.order):
        graph = split_steps(graph).graph
        graph = graph if block is None else block(graph)
    if not (runs_of(graph.order) or calls_of(graph.order)):
        return divide(graph)
    return _Composer(graph, divide, inner or divide, split, in_place).run()


class _Composer:
    """stands: the placeholder that stands for a tensor of another level. views, wholes, aliases: see `Partition`."""

    def __init__(self, graph: Graph, divide: Divide, inner: Divide, split: Split | None, in_place: bool):
        self.in_place = in_place
        self.graph, self.divide, self.inner, self.split = graph, divide, inner, split
        self.stands: dict[Tensor, Placeholder] = {}
        self.calls: list[Call] = []
        self.views: dict[Tensor, View] = {}
        self.wholes: dict[Tensor, tuple[Compute, ...]] = {}
        self.aliases: dict[Tensor, Tensor] = {}
        self.decisions: list[Decision] = []
        self.parts: dict[Tensor, None] = {}
        self.level = levels(graph)
        self.tickets: dict[Foreign, int] = {}
        """by foreign call that is no gradient: what it and its gradients have in common"""
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
        foreign = calls_of(graph.order)
        for t in graph.order:
            if isinstance(t, Looped) and t.run not in runs.setdefault(self.level[t], []):
                runs[self.level[t]].append(t.run)
        final: tuple[Tensor, ...] = ()
        for level in range(top + 1):
            for run in runs.get(level, ()):
                self.loop(run)
            for called in foreign:
                if any(self.level.get(t) == level for t in called.results):
                    self.hand(called, foreign)
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
                    and (isinstance(t, LEADS) or self.level[t] > level)
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
            if isinstance(t, LEADS) or (isinstance(t, Compute) and self.level[t] < level):
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
        return self.stand(t) if t in self.stands or isinstance(t, LEADS) else t

    # ---------------------------------------------------------------------------------------------------------- runs

    def loop(self, run: Run) -> None:
        """The calls of a run, and what stands for what leads out of it."""
        self.parts.update(dict.fromkeys(t for t in run.inputs if not t.inputs))
        kept = list(self.kept[run])
        body = Body(run, kept, self.inner_body, self.parted(run, kept), self.in_place)
        views: dict[Tensor, View] = {p: View(self.known(t), 0) for p, t in body.fixed.items()}
        views |= {p: View(self.known(t), body.start(p)) for p, t in body.slices.items()}
        self.aliases.update({p: v.base for p, v in views.items()})
        self.take(body.cut)
        self.decisions += body.decisions
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

    def hand(self, called: Called, others: Sequence[Called]) -> None:
        """The call of another library's implementation, and what stands for its results."""
        f = called.foreign
        ticket = self.tickets.setdefault(f.forward or f, len(self.tickets))
        back = [dict(o.foreign.attributes)["wanted"] for o in others if o.foreign.forward is f]
        slopes = tuple(sorted({int(n) for text in back for n in text.split()}))
        self.parts.update(dict.fromkeys(t for t in called.inputs if not t.inputs))
        memory = tuple(Placeholder(t.shape, t.dtype, t.name, t.where) for t in called.results)
        self.calls.append(handed_call(called, tuple(map(self.known, called.inputs)), memory, ticket, slopes))
        for t, there in zip(called.results, memory, strict=True):
            self.stand_for(t, there)

    def inner_body(self, graph: Graph) -> tuple[Graph, Partition]:
        return compose(graph, self.inner, in_place=self.in_place)

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
        soonest[t] = max((soonest[i] for i in t.inputs), default=0) + isinstance(t, LEADS)
    top = max(soonest.values())
    latest: dict[Tensor, int] = {}
    for t in reversed(graph.order):
        own = soonest[t] if isinstance(t, LEADS) else latest.get(t, top)
        latest[t] = own
        for i in t.inputs:
            latest[i] = min(latest.get(i, top), own - 1 if isinstance(t, LEADS) else own)
    return {t: soonest[t] if isinstance(t, LEADS) else latest[t] for t in graph.order}

"""Graphs with recurrences in chunks of steps: which they are, what is asked of their states, and what stands for it.

See `chunks` for what is written in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.expr.close import define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.foreign import Given
from neoflow.expr.ir import Axis, Expr, Read, Reduce, rewrite, substitute
from neoflow.expr.normal import opened
from neoflow.expr.recurrence import Last, Looped, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Compute, Placeholder, Tensor, tensor_of
from neoflow.graph.apart import apart, parts
from neoflow.graph.chunks import Chunks, NotInChunks, Step, Term, is_pointwise, reads_any, sum_of, terms_of, total_of
from neoflow.graph.fission import split_steps
from neoflow.graph.graph import Graph
from neoflow.graph.inline import Inliner, TooLong
from neoflow.verdict import Verdict

LONG = "a step is a long expression"
MOST_STATES = 2
"""States in one product: each is two or more sums of its own."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A sum of products with states: what is asked of them.

    body: what is summed over `over` at each point of `axes`, reads of states in it. terms: its products.
    """

    tensor: Compute
    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    body: Expr
    terms: tuple[Term, ...]
    runs: frozenset[Run]

    @cached_property
    def as_it_is(self) -> Compute:
        """The same over states of all steps."""
        return define(self.tensor.shape, self.axes, Reduce("sum", self.over, self.body), self.tensor.name)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that are asked for together, of one number of steps, and all that is asked of them."""

    steps: dict[Run, Step]
    asked: tuple[Asked, ...]
    lasts: tuple[Last, ...]
    known: frozenset[Tensor]
    """all that is in the graph"""

    @property
    def length(self) -> int:
        return next(iter(self.steps)).recurrence.steps

    def in_chunks(self, length: int) -> dict[Tensor, Tensor]:
        """What stands for what is asked, in chunks of so many steps. Raises `NotInChunks`."""
        chunks = {run: Chunks(step, length) for run, step in self.steps.items()}
        found: dict[Tensor, Tensor] = {a.tensor: _Writer(a, chunks).result() for a in self.asked}
        return found | {t: chunks[t.run].chain.last(0, t.name) for t in self.lasts}


class _Writer:
    """What is asked of states, in chunks."""

    def __init__(self, asked: Asked, chunks: dict[Run, Chunks]):
        self.asked, self.name = asked, asked.tensor.name
        self.places = {run.stacked(of): (c, of) for run, c in chunks.items() for of in (c.step.carried, c.step.then)}

    def result(self) -> Tensor:
        a = self.asked
        parts: list[tuple[int, Expr]] = []
        by_time: dict[Axis, list[Term]] = {}
        for sign, factors in a.terms:
            times = {e.indices[0] for e in factors if isinstance(e, Read) and e.source in self.places}
            if not times:
                parts.append((sign, sum_of(factors, a.axes, a.over, self.name, a.tensor.dtype)))
            else:
                (time,) = times
                assert isinstance(time, Axis)
                by_time.setdefault(time, []).append((sign, factors))
        for time, terms in by_time.items():
            parts.append((1, Read(self.chunked(time, terms), a.axes)))
        return define(a.tensor.shape, a.axes, total_of(parts), self.name, a.tensor.where)

    def chunked(self, time: Axis, terms: Sequence[Term]) -> Tensor:
        """The sum of these terms, whose states are those of steps `time`."""
        a = self.asked
        any_chunks = next(iter(self.places.values()))[0]
        count, length = any_chunks.count, any_chunks.length
        chunk, place = unnamed_axes((count, length), None)

        def parted(axes: Iterable[Axis]) -> tuple[Axis, ...]:
            return tuple(p for x in axes for p in ((chunk, place) if x is time else (x,)))

        axes, over = parted(a.axes), parted(a.over)
        parts: list[tuple[int, Expr]] = []
        for sign, factors in terms:
            others = [e for e in factors if not (isinstance(e, Read) and e.source in self.places)]
            own = [any_chunks.split(e, time, chunk, place) if time in e.free else e for e in others]
            if not any(time in e.free for e in others):
                own += any_chunks.last(a.tensor.dtype, chunk, place)
            found: list[Term] = [(sign, tuple(own))]
            for e in factors:
                if isinstance(e, Read) and e.source in self.places:
                    chunks, of = self.places[tensor_of(e)]
                    written = chunks.state(of is chunks.step.then, e.indices[1:], chunk, place)
                    found = [(s * r, (*f, *g)) for s, f in found for r, g in written]
            parts += [(s, sum_of(f, axes, over, self.name, a.tensor.dtype)) for s, f in found]
        t: Tensor = define(tuple(x.extent for x in axes), axes, total_of(parts), self.name)
        if time not in frozenset(a.axes):
            return t
        shape = tuple(count * length if x is time else x.extent for x in a.axes)
        t = reshape(t, shape)
        if shape != a.tensor.shape:
            own_axes = unnamed_axes(a.tensor.shape, None)
            t = define(a.tensor.shape, own_axes, Read(t, own_axes), self.name)
        return t


class _Look:
    """What is asked of the states of those runs that may go in chunks, and why others may not."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.refused: dict[Run, str] = {}
        self.steps: dict[Run, Step] = {}
        for run in runs_of(graph.order):
            try:
                self.steps[run] = Step(run)
            except (NotInChunks, TooLong) as error:
                self.refused[run] = str(error) or LONG
        while True:
            self.moving: dict[Tensor, frozenset[Run]] = {}
            self.asked: list[Asked] = []
            bad = self._look()
            if not bad:
                break
            self.refused |= bad
            self.steps = {r: s for r, s in self.steps.items() if r not in bad}

    def _look(self) -> dict[Run, str]:
        """The runs that may not, and why."""
        bad: dict[Run, str] = {}
        inliner = Inliner(self._is_written)
        for t in self.graph.order:
            read = frozenset[Run]().union(*(self.moving.get(i, frozenset()) for i in t.inputs))
            if isinstance(t, (Looped, Given)):
                bad |= dict.fromkeys(read, "another loop is given its states of all steps")
                if isinstance(t, Stacked) and t.run in self.steps:
                    self.moving[t] = frozenset({t.run})
            elif read and is_pointwise(t):
                self.moving[t] = read
            elif read:
                assert isinstance(t, Compute)
                try:
                    self.asked.append(self._asked(t, read, inliner))
                except (NotInChunks, TooLong) as error:
                    bad |= dict.fromkeys(read, str(error) or LONG)
        for t in self.graph.roots:
            bad |= dict.fromkeys(self.moving.get(t, ()), f"{t.name} is asked for of every step")
        return bad

    def _is_written(self, t: Compute) -> bool:
        """Whether it is written into what reads it: what states lead to, and what has fewer axes than its tensor."""
        if not is_pointwise(t):
            return False
        body = t.definition.body
        return (
            t in self.moving
            or isinstance(body, Read)
            or any(a.extent > 1 and a not in body.free for a in t.definition.axes)
        )

    def _asked(self, t: Compute, runs: frozenset[Run], inliner: Inliner) -> Asked:
        body = opened(t.definition.body, t.inputs)
        if not (isinstance(body, Reduce) and body.op == "sum"):
            raise NotInChunks(f"{t.name} is no sum of products with its states")
        axes = unnamed_axes(t.shape, None)
        over = unnamed_axes([a.extent for a in body.axes], None)
        inner = substitute(body.body, dict(zip((*t.definition.axes, *body.axes), (*axes, *over), strict=True)))
        inner = rewrite(inliner.expression(inner), self._stated)
        states = {run.stacked(of) for run in runs for of in (self.steps[run].carried, self.steps[run].then)}
        terms = terms_of(inner, lambda e: reads_any(e, states))
        for _, factors in terms:
            of = [e for e in factors if reads_any(e, states)]
            plain = [e for e in of if isinstance(e, Read) and e.source in states]
            if len(plain) < len(of) or len(of) > MOST_STATES:
                raise NotInChunks(f"{t.name} is no sum of products with its states")
            times = {e.indices[0] for e in plain}
            if len(times) > 1 or not all(isinstance(i, Axis) for i in times):
                raise NotInChunks(f"{t.name} reads states of several steps")
            if any(i.free & time.free for e in plain for time in times for i in e.indices[1:]):
                raise NotInChunks(f"{t.name} reads states at places that move with the steps")
        return Asked(t, axes, over, inner, tuple(terms), runs)

    def _stated(self, e: Expr) -> Expr | None:
        """What a step computes, over its states."""
        if not isinstance(e, Read) or not isinstance(e.source, Stacked) or e.source.run not in self.steps:
            return None
        return self.steps[e.source.run].at(e.source.of, e.indices[0], e.indices[1:])

    def groups(self) -> list[Group]:
        """Runs that are asked for together."""
        sets: list[frozenset[Run]] = [frozenset({r}) for r in self.steps]
        for asked in self.asked:
            meet = [s for s in sets if s & asked.runs]
            sets = [s for s in sets if not s & asked.runs] + [frozenset().union(*meet)]
        lasts = [t for t in self.graph.order if isinstance(t, Last)]
        known = frozenset(self.graph.order)
        found = []
        for runs in sets:
            steps = {r: s for r, s in self.steps.items() if r in runs}
            of = tuple(a for a in self.asked if a.runs & runs)
            found.append(Group(steps, of, tuple(t for t in lasts if t.run in runs), known))
        return found


@dataclass(frozen=True)
class Chunked:
    """A graph after it, and of each group of recurrences how it goes in chunks, or why in none."""

    graph: Graph
    found: tuple[tuple[str, Verdict], ...] = ()

    @property
    def summary(self) -> str:
        return f"{sum(v.ok for _, v in self.found)} of {len(self.found)} loops in chunks"

    def __str__(self) -> str:
        return "\n".join(f"{what}: {verdict}" for what, verdict in self.found)


def chunked(graph: Graph, length: Callable[[Group], int | Verdict]) -> Chunked:
    """The graph with those recurrences that can in chunks of as many steps as `length` says of each group.

    graph: of `split_steps`. What is asked of states in the steps is looked at outside of them; where they do not go in
    chunks it stays there.
    """
    found: list[tuple[str, Verdict]] = []
    can: set[Placeholder] = set()
    for run in runs_of(graph.order):
        for part in parts(run):
            try:
                can.add(Step(part).carried)
            except (NotInChunks, TooLong) as error:
                found.append((_told([part]), Verdict(False, str(error) or LONG)))
    if not can:
        return Chunked(graph, tuple(found))
    look = _Look(_outside(graph, can))
    found += [(_told([u]), Verdict(False, why)) for u, why in look.refused.items() if can & set(u.recurrence.carried)]
    lengths: dict[Placeholder, int] = {}
    for group in look.groups():
        verdict = length(group)
        if isinstance(verdict, Verdict):
            found.append((_told(group.steps), verdict))
            continue
        count = -(-group.length // verdict)
        text = f"{count} chunks of {verdict} steps, what is asked of states by contractions"
        found.append((_told(group.steps), Verdict(True, text)))
        lengths |= {step.carried: verdict for step in group.steps.values()}
    if not lengths:
        return Chunked(graph, tuple(found))
    look = _Look(_outside(graph, lengths))  # the others are as they were
    instead: dict[Tensor, Tensor] = {}
    for group in look.groups():
        every = [step.carried for step in group.steps.values()]
        if all(c in lengths for c in every):
            instead |= group.in_chunks(lengths[every[0]])
            for c in every:
                del lengths[c]
    if lengths:
        why = Verdict(False, "what is asked of its states leads to other loops where those stay as they are")
        return Chunked(graph, tuple((what, why if v.ok else v) for what, v in found))
    made = look.graph.with_roots(replaced(look.graph.roots, instead.get))
    return Chunked(split_steps(made).graph, tuple(found))


def _outside(graph: Graph, which: Collection[Placeholder]) -> Graph:
    """The graph in which what is asked of these states is outside of the steps, and their loops carry nothing else."""
    whole = [r.recurrence for r in runs_of(graph.order) if any(c in which for c in r.recurrence.carried)]
    return apart(split_steps(graph, whole).graph, which)


def _told(runs: Iterable[Run]) -> str:
    every = [run.recurrence for run in runs]
    return f"loop over {every[0].steps} steps of {', '.join(c.name for r in every for c in r.carried)}"

"""Activations that lie otherwise: what one operator hands to the next, in blocks of a dimension or with its dimensions
swapped, written so by what computes it and read so by all that read it.

    y[o, p] = sum[c](x[c, p] * w[o, c]);  z[o, p] = sum[r](y[o, 2 * p + r] * v[o, r])
        ->  y'[o // 16, p, o % 16] = sum[c](x[c, p] * w[o, c])                                     *blocked*
            z[o, p] = sum[r](y'[o // 16, 2 * p + r, o % 16] * v'[o // 16, r, o % 16])

    y[i, j] = exp(x[i, j]);  t[j, i] = y[i, j];  z[j, i] = sum[r](t[j, i + r] * w[r])
        ->  y'[j, i] = exp(x[i, j]);  z[j, i] = sum[r](y'[j, i + r] * w[r])                        *swapped*

Tensors that are computed of each other point by point lie alike: one *stream*. The layouts of all streams are chosen
together (`joint.choose`): each sum and each map costs what its default schedule is estimated to take at the layouts of
all that it reads and writes. What reads one layout and writes another converts by that, so there are no conversions
to place, and none is left where producer and consumer agree. Parameters stay; what reads them along the lanes of what
it writes reads a packed copy beside, which is prepared where no call changes them.
Source: layout transformation and tensor swapping, section 4.3 of NeoFlow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Read, Scatter
from neoflow.expr.tensor import Compute, Definition, Parameter, Tensor
from neoflow.expr.traits import form_axes
from neoflow.graph import Graph, Layout, is_contraction, points, reads_at_own_point
from neoflow.graph.laid import Beside, lay
from neoflow.graph.transposes import fold_transposes
from neoflow.partition import Partition, Subgraph, cost_of
from neoflow.rewriting import judging
from neoflow.rewriting.joint import Factor, choose, cost_at, cost_with, margin
from neoflow.rewriting.judging import CLOCK, RIVALS, Rival, is_prepared
from neoflow.rewriting.living import Living
from neoflow.rewriting.measured import At, Things, measured_factors
from neoflow.rewriting.orders import Lies, cycles_in, packed_once, taken
from neoflow.roofs import STATED
from neoflow.target import Target
from neoflow.trace import tick
from neoflow.verdict import Verdict

BLOCKED, SWAPPED = "blocked activations", "swapping"
"""Names of the two: in blocks of a dimension, and with dimensions in another order."""
CLEARLY = 0.95
"""Of the estimated cycles of all that reads or writes a stream, what they take at most when it lies otherwise. Of eight
convolutions of one sample the estimate was within 0.8 and 1.3 of the gain that was measured."""
ROOM = 0.8
"""Of its estimated cycles, what a contraction takes at its multiply-adds alone when there is nothing to be gained."""
MOST_ASKED = 48
"""Definitions of contractions that are looked at, those of the most products: each takes some 20 ms a layout."""
MOST = 3
"""Layouts that are chosen from for a stream, beside the plain one."""
LEAST = 1 << 14
"""Elements of a tensor from which it may lie otherwise: less is in the cache of a core however it lies. What the own
caches of all cores do not hold stays too: memory takes as long in any order."""

STEP = 0.8
"""`CLEARLY` in a step that changes parameters, whose kernels are fused forward and backward: no estimate knows how they
would in another order. In a training step of MobileNet, four samples, the sums over a channel and what reads them are
kernels that go by rows: with two of its streams otherwise it took 1.75 times as long. Such kernels stay."""
WORTH = 0.01
"""Of the estimated cycles of all that reads or writes streams, what another choice of which nothing was measured has to
save at least to be tried: it takes a division into kernels."""

Known = Callable[[Subgraph], float | None]
"""Seconds of a kernel, where they were measured."""
Labels = tuple[int, ...]


def nobody(_: Subgraph) -> None:
    """`Known` where nothing was measured."""


@dataclass(frozen=True)
class Flowing(Living):
    """A graph with activations that lie otherwise; said: of each stream that might. kind: of layouts."""

    kind: str = BLOCKED

    @property
    def summary(self) -> str:
        count = sum(v.ok for _, v in self.said)
        what = "lie in blocks" if self.kind == BLOCKED else "lie with their dimensions swapped"
        if not self.said:
            asks = "in blocks" if self.kind == BLOCKED else "with its dimensions swapped"
            return f"nothing is read or written that would take less {asks}"
        if not count:
            return f"none of {len(self.said)} streams of activations {what.replace('lie', 'lies')}"
        gain = f"{self.before / 1e6:.2f} to {self.after / 1e6:.2f} million cycles"
        return f"{count} of {len(self.said)} streams of activations {what}: their kernels from {gain}, estimated"


@dataclass(frozen=True, eq=False)
class Stream:
    """Tensors that lie alike, of one shape, and the layouts they may have; the first one is as it is."""

    name: str
    members: tuple[Compute, ...]
    layouts: tuple[Layout | None, ...]


def flow(
    graph: Graph,
    kind: str,
    target: Target,
    cut: Callable[[Graph], Partition],
    known: Known,
    lasts: bool = False,
    looks: bool = False,
) -> Flowing:
    """The graph with activations `BLOCKED` or `SWAPPED` where that clearly takes less by the estimate.

    cut: divides a graph into kernels. known: what kernels took that were measured; these stay as they are, unless those
    that they would become were measured too, and took less. lasts: whether operands that stay are packed once
    afterwards (`layouts`). looks: whether rivals are looked for.
    """
    given, graph = graph, fold_transposes(graph) if kind == SWAPPED else graph
    readers = _readers(graph)
    streams = [s for s in _streams(graph, kind, readers, target) if len(s.layouts) > 1]
    if not streams:
        return Flowing(given, kind=kind)
    problem = _Problem(graph, tuple(streams), target)
    factors, plain = problem.factors(), (0,) * len(streams)
    margins = problem.margins(factors)
    chosen = choose(problem.counts, [*factors, *margins])
    said = problem.said(factors, chosen.labels)
    found, labels = Flowing(given, tuple(said), kind=kind, is_exact=chosen.is_exact), plain
    if any(chosen.labels):
        before, after = cost_at(factors, plain), cost_at(factors, chosen.labels)
        laid_out = problem.laid(chosen.labels)
        gain = (before - after) / CLOCK / target.threads
        refused = _refused(cut(given), cut(laid_out), gain, problem.changed, known)
        if refused is None:
            found, labels = Flowing(laid_out, tuple(said), before, after, chosen.is_exact, kind=kind), chosen.labels
        else:
            said = [(name, Verdict(False, f"{v.reason}; {refused}") if v.ok else v) for name, v in said]
            found = replace(found, said=tuple(said))
    return replace(found, rivals=_rivals(problem, given, cut, chosen.labels, labels, known, lasts)) if looks else found


def _rivals(
    problem: _Problem,
    given: Graph,
    cut: Callable[[Graph], Partition],
    wanted: Labels,
    now: Labels,
    known: Known,
    lasts: bool,
) -> tuple[Rival, ...]:
    """What else may be chosen. Where kernels were measured: by what these took, by the estimate alone, and nothing;
    else what is chosen where contractions cost what they take once what stays is packed."""
    others: list[Labels] = []
    if known is not nobody and (factors := _by_times(problem, cut(problem.graph), known, lasts, now)) is not None:
        others = [choose(problem.counts, factors).labels, wanted, (0,) * len(now)]
    elif wanted != now:
        plain = problem.factors()
        others = [wanted] if cost_at(plain, wanted) <= judging.GUESSED * cost_at(plain, now) else []
    elif any(now) and lasts and (found := _packed_at_last(problem, now)) is not None:
        others = [found]
    those = [labels for labels in dict.fromkeys(others) if labels != now][:RIVALS]
    graphs = [(labels, problem.laid(labels) if any(labels) else given) for labels in those]
    return tuple(Rival(f"{sum(map(bool, labels))} of {len(labels)} streams lie so", g) for labels, g in graphs)


def _by_times(problem: _Problem, cut: Partition, known: Known, lasts: bool, now: Labels) -> list[Factor] | None:
    """What kernels cost by the labels of their streams, where any was measured with other labels than those of now."""

    def estimate(t: Compute, at: At) -> float:
        asked = problem.asked(t)
        return 0.0 if asked is None else _cost(problem, asked, 1, lasts, tuple(at[n] for n in asked.things))

    def lies(t: Compute, at: At) -> Lies:
        """Copies beside, and what is packed once."""
        asked = problem.asked(t)
        if asked is None:
            return (None,) * len(t.inputs)
        own, read = problem.orders(asked, at)
        if lasts and own is None and not any(read) and is_contraction(t.definition):
            return packed_once(t.definition, tuple(c is False for c in asked.copied), problem.target)
        return taken(t.definition, own, read, asked.copied, problem.target)[1]

    layouts = [s.layouts for s in problem.streams]
    things = Things(problem.home, layouts, lambda t: problem.asked(t) is not None, estimate, lies)
    return measured_factors(things, cut, known, problem.target, now)


def _packed_at_last(problem: _Problem, usual: Labels) -> Labels | None:
    """What is chosen where contractions cost what they take once what stays is packed; None where that is not clearly
    less than the usual choice.

    What lies as it is written by the last choice is not asked again: packed, it would only become cheaper, so no other
    choice is better for it.
    """
    plain, packed = problem.factors(), problem.factors(lasts=True)
    margins = problem.margins(plain)
    again: set[int] = set()
    labels = usual
    while True:
        again |= {k for k, f in enumerate(plain) if any(labels[n] for n in f.things)}
        factors = [b if k in again else a for k, (a, b) in enumerate(zip(plain, packed, strict=True))]
        labels = choose(problem.counts, [*factors, *margins]).labels
        if all(k in again or not any(labels[n] for n in f.things) for k, f in enumerate(plain)):
            break
    differ = {n for n, (a, b) in enumerate(zip(usual, labels, strict=True)) if a != b}
    near = [f for f in factors if not differ.isdisjoint(f.things)]
    now, then = cost_at(near, usual), cost_at(near, labels)
    is_clear = then <= judging.CLEARLY * now and now - then >= WORTH * cost_at(factors, usual)
    return labels if differ and is_clear else None


@dataclass(frozen=True, eq=False)
class _Problem:
    """The streams of a graph, and what their layouts cost."""

    graph: Graph
    streams: tuple[Stream, ...]
    target: Target

    @cached_property
    def home(self) -> dict[Tensor, int]:
        return {t: n for n, s in enumerate(self.streams) for t in s.members}

    @cached_property
    def changed(self) -> frozenset[Tensor]:
        return frozenset(p for p, _ in self.graph.updates)

    @property
    def counts(self) -> list[int]:
        return [len(s.layouts) for s in self.streams]

    def factors(self, lasts: bool = False) -> list[Factor]:
        """What computes cost that read or write streams, by their labels; those that are alike are asked once."""
        counts = Counter(self._asked.values())
        return [Factor(a.things, partial(_cost, self, a, n, lasts)) for a, n in counts.items()]

    def asked(self, t: Compute) -> _Asked | None:
        """What a compute costs by; None where it costs the same however streams lie, as what goes along with its own
        does."""
        return self._asked.get(t)

    @cached_property
    def _asked(self) -> dict[Compute, _Asked]:
        return {t: asked for t in self.graph.nodes if (asked := self._asked_by(t)) is not None}

    def _asked_by(self, t: Compute) -> _Asked | None:
        own, read = self.home.get(t), tuple(self.home.get(i) for i in t.inputs)
        if (own is None and all(n is None for n in read)) or isinstance(t.definition.body, Scatter):
            return None
        if own is not None and all(
            _goes_along(t, k, i) if n == own else n is None and i.size < t.size
            for k, (n, i) in enumerate(zip(read, t.inputs, strict=True))
        ):
            return None
        copied = tuple(i in self.changed if isinstance(i, Parameter) else None for i in t.inputs)
        return _Asked(t.definition, own, read, copied)

    def orders(self, asked: _Asked, at: At) -> tuple[Layout | None, Lies]:
        """In which orders it writes and reads with the streams at these labels."""
        lies = {n: self.streams[n].layouts[at[n]] for n in asked.things}
        own = None if asked.own is None else lies[asked.own]
        return own, tuple(None if n is None else lies[n] for n in asked.read)

    def margins(self, factors: Sequence[Factor]) -> list[Factor]:
        """What a stream has to save to lie otherwise."""
        clearly = min(STEP, CLEARLY) if self.changed and CLEARLY < 1 else CLEARLY
        plain = {f: f.cost((0,) * len(f.things)) for f in factors}
        numbers = range(len(self.streams))
        shares = [sum(cost / len(f.things) for f, cost in plain.items() if n in f.things) for n in numbers]
        return [margin(n, (1 - clearly) * share) for n, share in enumerate(shares)]

    def said(self, factors: Sequence[Factor], labels: Labels) -> list[tuple[str, Verdict]]:
        """Of each stream how it lies, or why as it is."""
        said = list[tuple[str, Verdict]]()
        for n, (stream, label) in enumerate(zip(self.streams, labels, strict=True)):
            layout, rest = stream.layouts[label], len(stream.members) - 1
            now = cost_with(factors, n, labels, 0)
            if layout is None:
                offered = " or ".join(str(x) for x in stream.layouts[1:])
                least = min(cost_with(factors, n, labels, k) for k in range(1, len(stream.layouts)))
                verdict = Verdict(False, f"its kernels would take {least:.0f} cycles, not {now:.0f}, as {offered}")
            else:
                then = cost_with(factors, n, labels, label)
                verdict = Verdict(True, f"lies as {layout}, with {rest} more: {now:.0f} to {then:.0f} cycles")
            said.append((stream.name, verdict))
        return said

    def laid(self, labels: Labels) -> Graph:
        """The graph with its streams so."""
        layouts: dict[Tensor, Layout] = {}
        for s, n in zip(self.streams, labels, strict=True):
            layouts.update({t: x for t in s.members if (x := s.layouts[n]) is not None})
        return lay(self.graph, layouts, _beside(self.graph, layouts, self.changed, self.target))[0]


def _refused(usual: Partition, other: Partition, gain: float, changed: Collection[Tensor], known: Known) -> str | None:
    """Why kernels stay as they are cut: they were measured, and those they would become were not, or took no less; or
    these move so much more, since less of it is one kernel, that it takes what is gained. gain: seconds."""
    calls = [[c for c in cut.calls if not is_prepared(c, changed)] for cut in (usual, other)]
    kernels = {c.subgraph.digest: c.subgraph for found in calls for c in found}
    first, second = (Counter(c.subgraph.digest for c in found) for found in calls)
    was, will = first - second, second - first
    took = {d: known(kernels[d]) for d in was | will}
    if any(took[d] is not None for d in was):
        if None in took.values():
            return "but its kernels were measured as they are"
        now, then = (sum(n * (took[d] or 0.0) for d, n in found.items()) for found in (was, will))
        return None if then < now else f"but its kernels took {then * 1e6:.0f} us so and {now * 1e6:.0f} as they are"
    if rows := sum(n for d, n in was.items() if kernels[d].rows is not None):
        return f"but {rows} of its kernels go by rows, as these lie"
    now, then = (sum(n * cost_of(kernels[d]).seconds(STATED) for d, n in found.items()) for found in (was, will))
    if then - now < gain:
        return None
    told = f"but less would be one kernel: {then * 1e6:.0f} us by what they move and do, not {now * 1e6:.0f}"
    return f"{told}, for {gain * 1e6:.0f} that the layouts save"


# --------------------------------------------------------------------------------------------------- what there is


def _readers(graph: Graph) -> dict[Tensor, list[Compute]]:
    found: dict[Tensor, list[Compute]] = {}
    for t in graph.nodes:
        for i in dict.fromkeys(t.inputs):
            found.setdefault(i, []).append(t)
    return found


def _streams(graph: Graph, kind: str, readers: Mapping[Tensor, list[Compute]], target: Target) -> list[Stream]:
    """What may lie otherwise, and how: what is returned or kept from call to call stays, with all that is of it point
    by point."""
    joined: dict[Compute, Compute] = {t: t for t in graph.nodes}

    def head(t: Compute) -> Compute:
        while joined[t] is not t:
            joined[t] = t = joined[joined[t]]
        return t

    for t in graph.nodes:
        for n, i in enumerate(t.inputs):
            if isinstance(i, Compute) and _goes_along(t, n, i):
                joined[head(i)] = head(t)
    groups: dict[Compute, list[Compute]] = {}
    for t in graph.nodes:
        groups.setdefault(head(t), []).append(t)
    fixed = {head(t) for t in graph.roots if isinstance(t, Compute)}
    fixed |= {head(t) for t in graph.nodes if isinstance(t.definition.body, Scatter)}
    most = target.l2_bytes * target.threads
    large = [g for h, g in groups.items() if h not in fixed and len(g[0].shape) > 1]
    large = [g for g in large if g[0].size >= LEAST and g[0].nbytes <= most]
    asked = _asked(large, readers) if kind == BLOCKED else frozenset()
    found = []
    for members in large:
        tick()
        wanted: dict[Layout, None] = {}
        forms = {a.ident for m in members for a in form_axes(m.definition.body)}  # written out, not gone along
        for t in dict.fromkeys((*members, *(r for m in members for r in readers.get(m, ())))):
            for layout in _offered(t, members, kind, asked, target):
                if layout.dimension not in forms and layout.fits(members[0].shape).ok:
                    wanted[layout] = None
        found.append(Stream(members[0].name, tuple(members), (None, *tuple(wanted)[:MOST])))
    return found


def _goes_along(t: Compute, slot: int, i: Tensor) -> bool:
    """Whether a compute reads a slot at its own point alone, and adds nothing up."""
    if t.shape != i.shape or t.definition.has_reduction or isinstance(t.definition.body, Scatter):
        return False
    return all(reads_at_own_point(r, t.shape) for r in t.definition.reads if r.slot == slot)


def _asked(groups: Iterable[Sequence[Compute]], readers: Mapping[Tensor, list[Compute]]) -> frozenset[Definition]:
    """The contractions that are looked at."""
    near = {t.definition for g in groups for m in g for t in (m, *readers.get(m, ())) if is_contraction(t.definition)}
    return frozenset(sorted(near, key=lambda d: (-points(d), d.digest))[:MOST_ASKED])


def _offered(
    t: Compute, members: Sequence[Compute], kind: str, asked: Collection[Definition], target: Target
) -> Iterator[Layout]:
    """How a compute would rather read or write a stream."""
    own = frozenset(members)
    if kind == SWAPPED:
        for read in t.definition.reads if t not in own else ():
            if t.inputs[read.slot] in own and (order := _swapped(read, t.shape)) is not None:
                yield order
        return
    if not t.definition.has_reduction or not dt.is_float(t.dtype) or not _has_room(t.definition, asked, target):
        return
    lanes = target.lanes(t.dtype)
    for d in sorted(_lane_dimensions(t, own)):
        rank = len(members[0].shape)
        if d < rank - 1:
            yield Layout(tuple(range(d)), d, tuple(range(d + 1, rank)), lanes)
        else:
            yield Layout(tuple(range(d - 1)), d, (d - 1,), lanes)


def _swapped(read: Read, shape: Sequence[int]) -> Layout | None:
    """The order of dimensions in which neighbours of what is written read neighbours; None where they do, or no
    dimension goes along with them."""
    along = [[a.ident for a in i.free if a.ident < len(shape)] for i in read.indices]
    places = {idents[0]: d for d, idents in enumerate(along) if len(idents) == 1}
    own = [d for d, n in enumerate(shape) if n > 1]
    extents = read.source.shape
    if not own or (last := places.get(own[-1])) is None or all(n == 1 for n in extents[last + 1 :]):
        return None
    order = list(dict.fromkeys(places[d] for d in own if d in places))
    rest = [d for d in range(len(extents)) if d not in order]
    return Layout((*rest, *order[:-1]), last, (), 1)


def _has_room(definition: Definition, asked: Collection[Definition], target: Target) -> bool:
    """Whether a sum may take clearly less in another layout."""
    if not is_contraction(definition):
        return len(definition.reads) > 1
    if definition not in asked:
        return False
    least = points(definition) / target.lanes(definition.body.dtype) / target.fma_units
    return least < ROOM * cycles_in(definition, None, (None,) * len(definition.slots), target)


def _lane_dimensions(t: Compute, own: Collection[Compute]) -> set[int]:
    """The dimensions of a stream that a sum goes through together with a side of one free dimension, as weights are:
    channels."""
    definition = t.definition
    free = {a.ident for a in definition.axes}
    found: set[int] = set()
    for side in definition.reads:
        along = {a for i in side.indices for a in i.free}
        lanes = {a for a in along if a.ident in free}
        if t.inputs[side.slot] in own or len(lanes) != 1:
            continue
        if t in own:
            found |= {a.ident for a in lanes}
        for read in definition.reads:
            if t.inputs[read.slot] in own:
                found |= {d for d, i in enumerate(read.indices) if isinstance(i, Axis) and i in along}
    return {d for d in found if d < len(t.shape) or t not in own}


# ---------------------------------------------------------------------------------------------------- what it costs


@dataclass(frozen=True)
class _Asked:
    """Computes that are alike: the streams that they write and read, by slot, and of each slot, None where it reads no
    parameter, whether the program changes that."""

    definition: Definition
    own: int | None
    read: tuple[int | None, ...]
    copied: tuple[bool | None, ...]

    @property
    def things(self) -> tuple[int, ...]:
        return tuple(sorted({n for n in (self.own, *self.read) if n is not None}))


def _cost(problem: _Problem, asked: _Asked, count: int, lasts: bool, labels: Labels) -> float:
    """Estimated cycles of so many computes that are alike, with their streams at these labels."""
    tick()
    own, read = problem.orders(asked, dict(zip(asked.things, labels, strict=True)))
    return count * taken(asked.definition, own, read, asked.copied, problem.target, lasts)[0]


def _beside(graph: Graph, layouts: Mapping[Tensor, Layout], changed: Collection[Tensor], target: Target) -> Beside:
    """The copies of parameters that computes read whose streams lie so."""
    found: dict[tuple[Compute, int], Layout] = {}
    for t in graph.nodes:
        own, read = layouts.get(t), tuple(layouts.get(i) for i in t.inputs)
        if (own is None and not any(read)) or isinstance(t.definition.body, Scatter):
            continue
        copied = tuple(i in changed if isinstance(i, Parameter) else None for i in t.inputs)
        for n, copy in enumerate(taken(t.definition, own, read, copied, target)[1]):
            if copy is not None:
                found[t, n] = copy
    return found

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

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Read, Scatter
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Parameter, Tensor
from neoflow.expr.traits import form_axes
from neoflow.graph import Graph, Layout, is_contraction, points, reads_at_own_point
from neoflow.graph.cost import read_bytes
from neoflow.graph.laid import Beside, lay
from neoflow.graph.transposes import fold_transposes
from neoflow.loops import costs, default_schedule, problem_of
from neoflow.loops.nest import input_reads, is_data_dependent, stride
from neoflow.loops.problem import NestProblem
from neoflow.partition import Partition, Subgraph, cost_of
from neoflow.partition.calls import Call
from neoflow.rewriting.joint import Factor, choose, cost_with, margin
from neoflow.rewriting.living import BYTES_A_CYCLE, Living, cycles_of, kernel_of, laid_definition
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

OPERATION, ALIGNED, LOADED, SHUFFLED, APART = 1.0, 0.5, 2.0, 4.0, 1.2
"""Cycles of a vector for what is done with it, and for each read of whole lines, of what lies side by side across them,
and in steps of 2 to 4; of each element that lies further apart. Fitted to depthwise convolutions, pooling and padding
of one sample that read and write either order, on a Xeon with AVX-512: of two orders of a kernel that convert nothing
the ratio was within 0.85 and 1.15 of what was measured but for one of 1.4 that was 2.7, conversions within 0.8 and 2.7
of it."""
NEAR, FAR = 6.0, 4.0
"""Bytes a cycle that a core moves meanwhile, of what its own cache holds and of more."""

CLOCK = 2.5e9
"""Cycles a second, of what is stated of a machine."""
STEP = 0.8
"""`CLEARLY` in a step that changes parameters, whose kernels are fused forward and backward: no estimate knows how they
would in another order. In a training step of MobileNet, four samples, the sums over a channel and what reads them are
kernels that go by rows: with two of its streams otherwise it took 1.75 times as long. Such kernels stay."""

Known = Callable[[Subgraph], float | None]
"""Seconds of a kernel, where they were measured."""


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


def flow(graph: Graph, kind: str, target: Target, cut: Callable[[Graph], Partition], known: Known) -> Flowing:
    """The graph with activations `BLOCKED` or `SWAPPED` where that clearly takes less by the estimate.

    cut: divides a graph into kernels. known: what kernels took that were measured; these stay as they are, unless those
    that they would become were measured too, and took less.
    """
    given, graph = graph, fold_transposes(graph) if kind == SWAPPED else graph
    readers = _readers(graph)
    streams = [s for s in _streams(graph, kind, readers, target) if len(s.layouts) > 1]
    if not streams:
        return Flowing(given, kind=kind)
    home: dict[Tensor, int] = {t: n for n, s in enumerate(streams) for t in s.members}
    changed = frozenset(p for p, _ in graph.updates)
    factors = _factors(graph, streams, home, changed, target)
    clearly = min(STEP, CLEARLY) if changed and CLEARLY < 1 else CLEARLY
    plain = {f: f.cost((0,) * len(f.things)) for f in factors}
    shares = [sum(cost / len(f.things) for f, cost in plain.items() if n in f.things) for n in range(len(streams))]
    margins = [margin(n, (1 - clearly) * share) for n, share in enumerate(shares)]
    chosen = choose([len(s.layouts) for s in streams], [*factors, *margins])
    labels, said = list(chosen.labels), list[tuple[str, Verdict]]()
    for n, (stream, label) in enumerate(zip(streams, labels, strict=True)):
        layout, rest = stream.layouts[label], len(stream.members) - 1
        if layout is None:
            offered = " or ".join(str(x) for x in stream.layouts[1:])
            least = min(cost_with(factors, n, labels, k) for k in range(1, len(stream.layouts)))
            now = cost_with(factors, n, labels, 0)
            verdict = Verdict(False, f"its kernels would take {least:.0f} cycles, not {now:.0f}, as {offered}")
        else:
            now, then = cost_with(factors, n, labels, 0), cost_with(factors, n, labels, label)
            verdict = Verdict(True, f"lies as {layout}, with {rest} more: {now:.0f} to {then:.0f} cycles")
        said.append((stream.name, verdict))
    layouts: dict[Tensor, Layout] = {}
    for s, n in zip(streams, labels, strict=True):
        layouts.update({t: x for t in s.members if (x := s.layouts[n]) is not None})
    if not layouts:
        return Flowing(given, tuple(said), kind=kind, is_exact=chosen.is_exact)
    laid_out, _ = lay(graph, layouts, _beside(graph, layouts, changed, target))
    before = sum(plain.values())
    after = sum(f.cost(tuple(labels[n] for n in f.things)) for f in factors)
    refused = _refused(cut(given), cut(laid_out), (before - after) / CLOCK / target.threads, changed, known)
    if refused is not None:
        said = [(name, Verdict(False, f"{v.reason}; {refused}") if v.ok else v) for name, v in said]
        return Flowing(given, tuple(said), kind=kind, is_exact=chosen.is_exact)
    return Flowing(laid_out, tuple(said), before, after, chosen.is_exact, kind)


def _refused(usual: Partition, other: Partition, gain: float, changed: Collection[Tensor], known: Known) -> str | None:
    """Why kernels stay as they are cut: they were measured, and those they would become were not, or took no less; or
    these move so much more, since less of it is one kernel, that it takes what is gained. gain: seconds."""
    calls = [[c for c in cut.calls if not _is_prepared(c, changed)] for cut in (usual, other)]
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


def _is_prepared(call: Call, changed: Collection[Tensor]) -> bool:
    """Whether a kernel reads nothing but parameters that stay: it is run once."""
    return bool(call.inputs) and all(isinstance(i, Parameter) and i not in changed for i in call.inputs)


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
    return least < ROOM * _cycles(definition, None, (None,) * len(definition.slots), target)


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


def _factors(
    graph: Graph, streams: Sequence[Stream], home: Mapping[Tensor, int], changed: Collection[Tensor], target: Target
) -> list[Factor]:
    """What computes cost that read or write streams, by their labels; those that are alike are asked once. What goes
    along with its stream costs the same however that lies."""
    counts: dict[tuple[Definition, int | None, tuple[int | None, ...], tuple[bool | None, ...]], int] = {}
    for t in graph.nodes:
        own, read = home.get(t), tuple(home.get(i) for i in t.inputs)
        if (own is None and all(n is None for n in read)) or isinstance(t.definition.body, Scatter):
            continue
        if own is not None and all(
            _goes_along(t, k, i) if n == own else n is None and i.size < t.size
            for k, (n, i) in enumerate(zip(read, t.inputs, strict=True))
        ):
            continue
        copied = tuple(i in changed if isinstance(i, Parameter) else None for i in t.inputs)
        key = t.definition, own, read, copied
        counts[key] = counts.get(key, 0) + 1
    found = []
    for (definition, own, read, copied), count in counts.items():
        those = tuple(sorted({n for n in (own, *read) if n is not None}))
        found.append(Factor(those, partial(_cost, streams, those, definition, own, read, copied, count, target)))
    return found


def _cost(
    streams: Sequence[Stream],
    those: tuple[int, ...],
    definition: Definition,
    own: int | None,
    read: tuple[int | None, ...],
    copied: tuple[bool | None, ...],
    count: int,
    target: Target,
    labels: tuple[int, ...],
) -> float:
    """Estimated cycles of so many computes of a definition, with the streams at these labels."""
    tick()
    at = {n: streams[n].layouts[label] for n, label in zip(those, labels, strict=True)}
    mine = None if own is None else at[own]
    lies = tuple(None if n is None else at[n] for n in read)
    return count * _taken(definition, mine, lies, copied, target)[0]


def _taken(
    definition: Definition,
    own: Layout | None,
    read: tuple[Layout | None, ...],
    copied: tuple[bool | None, ...],
    target: Target,
) -> tuple[float, tuple[Layout | None, ...]]:
    """The cycles of a compute that reads and writes in these orders, and the copies of parameters that it reads then,
    by slot. copied: of each slot, None where it reads no parameter, whether the program changes it."""
    copies: tuple[Layout | None, ...] = (None,) * len(read)
    if own is not None and definition.has_reduction:
        copies = tuple(
            None if is_changed is None or read[n] is not None else _copy(definition, n, own)
            for n, is_changed in enumerate(copied)
        )
    cycles = _cycles(definition, own, tuple(c or r for c, r in zip(copies, read, strict=True)), target)
    for slot, copy, is_changed in zip(definition.slots, copies, copied, strict=True):
        if copy is not None and is_changed:
            cycles += 2 * math.prod(slot.shape) * dt.itemsize(slot.dtype) / BYTES_A_CYCLE
    return cycles, copies


def _copy(definition: Definition, slot: int, own: Layout) -> Layout | None:
    """The order of what is read in a slot in which it lies along the lanes of what is written: of the one dimension
    that they have in common."""
    if own.width == 1:
        return None
    reads = [r for r in definition.reads if r.slot == slot]
    lane = own.dimension
    if len(reads) != 1 or not all(i.free <= {i} for i in reads[0].indices):
        return None
    at = [d for d, i in enumerate(reads[0].indices) if isinstance(i, Axis) and i.ident == lane]
    if len(at) != 1:
        return None
    rest = tuple(d for d in range(len(reads[0].indices)) if d != at[0])
    layout = Layout((), at[0], rest, own.width)
    return layout if layout.fits(definition.slots[slot].shape).ok else None


def _beside(graph: Graph, layouts: Mapping[Tensor, Layout], changed: Collection[Tensor], target: Target) -> Beside:
    """The copies of parameters that computes read whose streams lie so."""
    found: dict[tuple[Compute, int], Layout] = {}
    for t in graph.nodes:
        own, read = layouts.get(t), tuple(layouts.get(i) for i in t.inputs)
        if (own is None and not any(read)) or isinstance(t.definition.body, Scatter):
            continue
        copied = tuple(i in changed if isinstance(i, Parameter) else None for i in t.inputs)
        for n, copy in enumerate(_taken(t.definition, own, read, copied, target)[1]):
            if copy is not None:
                found[t, n] = copy
    return found


def _cycles(definition: Definition, own: Layout | None, read: tuple[Layout | None, ...], target: Target) -> float:
    if is_contraction(definition) and (found := cycles_of(definition, own, read, target)) < math.inf:
        return found
    return swept(laid_definition(definition, own, read), target)


@remembered
def swept(definition: Definition, target: Target) -> float:
    """Estimated cycles of one core for a map, or for a sum that is no contraction: of the vectors of its default
    schedule for what they read and do, and of what goes through memory once."""
    kernel = kernel_of(definition)
    schedule, problem = default_schedule(kernel, target), problem_of(kernel)
    moved = sum(read_bytes(definition)) + math.prod(definition.shape) * dt.itemsize(definition.body.dtype)
    memory = moved / (NEAR if moved <= target.l2_bytes else FAR)
    if not isinstance(problem, NestProblem) or schedule.template not in ("map", "reduction"):
        return points(definition) + memory
    knobs = dict(schedule.knobs)
    nest, lanes = problem.fused(knobs), int(knobs["lanes"])
    along = nest.reduction.axes if nest.reduction is not None and knobs.get("lane") == "reduced" else nest.axes
    extent = along[-1].extent if along else 1
    each, apart = OPERATION, 0.0
    for e in (nest.reduction.body,) if nest.reduction is not None else tuple(v for _, _, v in nest.outputs):
        for read in dict.fromkeys(input_reads(e)):
            step = None if is_data_dependent(read) or not along else stride(read.indices[0], along[-1])
            if step is None or abs(step) > 4:
                apart += lanes * (costs.PACK_TURNED if knobs.get("turn") else APART)
            elif step != 0:
                terms, first = affine.linear(read.indices[0])
                whole = all(n % lanes == 0 for a, n in terms.items() if a is not along[-1]) and first % lanes == 0
                each += SHUFFLED if abs(step) > 1 else ALIGNED if whole else LOADED
    vectors = points(definition) / extent * math.ceil(extent / lanes)
    return max(vectors * each, memory) + vectors * apart

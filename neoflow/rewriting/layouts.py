"""Which operands of contractions are packed once for all kernels that read them, and how these lie then.

The kernels are cut and scheduled as if nothing were packed beside: the schedule of each says what it packs for itself,
and in which order. For each tensor the layouts are chosen together, of all sets that its kernels ask for the one of the
fewest bytes moved; then the kernels that read them are scheduled again, and what they do not read in place, or would
take longer with, stays as it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Parameter, Tensor
from neoflow.graph import FEW, Derivation, Graph, Layout, Wish, block_axis, operands, pack_shared
from neoflow.graph.packing import counterparts, reading
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.nest import stride
from neoflow.loops.problem import NestProblem
from neoflow.loops.tile import estimated_cycles, pieces, sides
from neoflow.partition import Partition, Subgraph, carried
from neoflow.target import Target
from neoflow.trace import tick

MOST = 6
"""Layouts of one tensor that are chosen from: all sets of them are compared."""
VECTORS = 2
"""Vectors of a panel of what no kernel packs now, as in the largest register tile: 14 rows of 2 vectors."""
CLEARLY = 0.9
"""Of its estimated cycles, what a kernel takes at most with an operand packed that it reads in place now, and that the
cache of a core holds. What that does not hold pays at the same estimate, which knows no memory: a product of 64 x 512 x
2048 took 0.91 ms so and 1.53 in place, one of 64 x 2048 x 512 0.68 and 0.75; smaller ones as long as in place."""
OFTEN, ALIKE = 8, 1.1
"""So many contractions of an operand pay for its packing where they take so much of their estimated cycles at most. The
weights of a recurrence are far when the next step reads them, which the estimate does not know, and a panel comes in
one stretch: the backward steps of lltm_ptb, mi_lstm_ptb and sublstm_ptb took 0.76 to 0.82 of what they did in place,
the forward ones of mi_lstm_mnist and sublstm_mnist, of 256 KB, 0.71 to 0.77. Four of nasrnn saved 0.25 ms, and packing
took 0.34."""
MADE = 2
"""What a byte costs that is packed beside, of one that a kernel packs for itself: it comes from memory again."""


@dataclass(frozen=True)
class Layouts:
    """A graph with what is packed beside; derivation: what was rewritten. before, after: bytes that kernels pack for
    themselves a step; beside: bytes that are packed for several. cut: the kernels of the graph, where they are known.
    """

    graph: Graph
    derivation: Derivation | None = None
    before: int = 0
    after: int = 0
    beside: int = 0
    cut: Partition | None = None

    @property
    def summary(self) -> str:
        if self.derivation is None:
            return f"no tensor is read by {FEW} contractions alike, and no parameter by one that does not change it"
        steps = len(self.derivation.steps)
        return f"{steps} operands packed once, {self.beside} bytes; kernels pack {self.after} a step, not {self.before}"

    def __str__(self) -> str:
        return f"{self.graph}\n\n{self.derivation}" if self.derivation is not None else self.summary


def lay_out(
    graph: Graph,
    target: Target,
    cut: Callable[[Graph], Partition],
    may_last: Callable[[Subgraph], bool] | None = None,
    in_place: Collection[str] = (),
    known: dict[str, Subgraph] | None = None,
) -> Layouts:
    """The graph with the operands packed that several kernels would pack alike. cut: divides a graph into kernels.

    may_last: whether a kernel may read a parameter packed once for all calls of the program; None: none may.
    in_place: digests of definitions that read nothing packed beside. known: kernels by digest, which this adds to: what
    is found out about one is not found out again about an equal one of another graph.
    """
    known = {} if known is None else known
    lasting = frozenset() if may_last is None else _lasting(graph)
    if not _may_share(graph, lasting):
        return Layouts(graph)
    first = cut(graph)
    kernels = kernels_of(first, known)
    before = packed_bytes(kernels, target)
    asked = _requests(kernels, target, lasting, _often(graph), may_last)
    requests = {r.wish.definition: r for r in asked if r.wish.definition.digest not in in_place}
    wishes = chosen(graph, tuple(requests.values()))
    while True:
        changed, derivation = pack_shared(graph, wishes)
        if not derivation.steps:
            return Layouts(graph, derivation, before, before, 0, first)
        second = carried(first, changed, counterparts(graph, changed))
        kept = _of_use(graph, requests, wishes, kernels, kernels_of(second, known), target)
        if len(kept) == len(wishes):
            packed = packed_tensors(changed)
            if any(isinstance(t, Compute) and isinstance(t.inputs[0], Compute) for t in packed):
                second = cut(changed)  # what is computed, and packed then, may now be computed where it is packed
            after = packed_bytes(kernels_of(second, known), target)
            return Layouts(changed, derivation, before, after, sum(t.nbytes for t in packed), second)
        wishes = kept


def kernels_of(cut: Partition, known: dict[str, Subgraph] | None = None) -> tuple[Subgraph, ...]:
    """Of each call, those that are equal as one object: what is found out about it is found out once. known: those
    that there are by digest."""
    known = {} if known is None else known
    return tuple(known.setdefault(c.subgraph.digest, c.subgraph) for c in cut.calls)


def packed_tensors(graph: Graph) -> tuple[Tensor, ...]:
    """What contractions read in blocks."""
    pairs = ((t, n, i) for t in graph.nodes for n, i in enumerate(t.inputs))
    return tuple(dict.fromkeys(i for t, n, i in pairs if block_axis(t.definition, n) is not None))


Slots = frozenset[tuple[Definition, int]]


def _readers(graph: Graph) -> Counter[tuple[Tensor, Definition, int]]:
    """How many contractions of each definition read a tensor in each slot."""
    return Counter((t.inputs[o.slot], t.definition, o.slot) for t in graph.nodes for o in operands(t.definition))


def _may_share(graph: Graph, lasting: Slots) -> bool:
    """Whether any operand that could be packed lasts, or is one of so many contractions of a definition."""
    found = _readers(graph)
    return any(n >= FEW or (definition, slot) in lasting for (_, definition, slot), n in found.items())


def _often(graph: Graph) -> Slots:
    """Slots of definitions in which nothing is read but tensors that at least `OFTEN` contractions of it read."""
    found = _readers(graph)
    slots = {(definition, slot) for _, definition, slot in found}
    return frozenset(slots - {(definition, slot) for (_, definition, slot), n in found.items() if n < OFTEN})


def _lasting(graph: Graph) -> Slots:
    """Slots of definitions in which nothing is read but parameters that the program does not change: packed, they need
    not be packed again while they stay (`partition.prepared_first`)."""
    changed = {p for p, _ in graph.updates}
    each = ((t.definition, n, i) for t in graph.nodes for n, i in enumerate(t.inputs))
    others = {(d, n) for d, n, i in each if not isinstance(i, Parameter) or i in changed}
    return frozenset((t.definition, n) for t in graph.nodes for n in range(len(t.inputs))) - others


# --------------------------------------------------------------------------------------------- what kernels ask for


@dataclass(frozen=True)
class Contracting:
    """A kernel that contracts, and its schedule: what it packs of which input. slot: of the anchor's definition, None
    where it packs no plain operand along N. summed: by slot, the dimensions it sums over, in its order."""

    definition: Definition
    slot: int | None
    axis: Axis | None
    lanes: int
    width: int
    nbytes: int
    cycles: float
    summed: tuple[tuple[int, tuple[int, ...]], ...] = ()


@remembered
def contracting(subgraph: Subgraph, target: Target) -> Contracting | None:
    """What a kernel packs by its default schedule; None for a kernel that is no contraction."""
    schedule = default_schedule(subgraph, target)
    problem = problem_of(subgraph)
    if schedule.template != "contraction" or not isinstance(problem, NestProblem) or subgraph.anchor is None:
        return None
    s, cut, knobs = sides(problem, schedule), pieces(problem, schedule), dict(schedule.knobs)
    anchor, each = subgraph.nodes[subgraph.anchor], dt.itemsize(s.element)
    nbytes = each * cut.batch * cut.k * (cut.n * bool(knobs["pack_panels"]) + cut.m * bool(knobs["pack"]))
    slot = axis = None
    if knobs["pack_panels"] and s.right_read is not None and s.right_read.slot in anchor.inputs:
        slot = anchor.inputs.index(s.right_read.slot)
        axis = _alone(anchor.definition, slot, s.c.n[-1])
    lanes = int(knobs["lanes"])
    cycles = estimated_cycles(problem, target, knobs)
    summed = []
    for read in (s.left_read, s.right_read):
        if read is not None and read.slot in anchor.inputs:
            number = anchor.inputs.index(read.slot)
            steps = [stride(read.indices[0], k) for k in s.c.k]
            summed.append((number, _dimensions(steps, anchor.definition.slots[number].shape)))
    width = lanes * int(knobs["vectors"])
    return Contracting(anchor.definition, slot, axis, lanes, width, nbytes, cycles, tuple(summed))


def _alone(definition: Definition, slot: int, axis: Axis) -> Axis:
    """The axis of a definition that is a loop along an operand which no other has: where all that is joined in that
    loop is of extent 1 but for one axis, that axis."""
    others = {a for r in definition.reads if r.slot != slot for i in r.indices for a in i.free}
    own = {a for r in definition.reads if r.slot == slot for i in r.indices for a in i.free} - others
    longer = [a for a in definition.axes if a in own and a.extent > 1]
    return longer[0] if len(longer) == 1 and longer[0].extent == axis.extent else axis


def _dimensions(steps: Sequence[int | None], shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of a tensor in which so many elements are a step, in this order, of those that are known."""
    places = {math.prod(shape[d + 1 :]): d for d, extent in enumerate(shape) if extent > 1}
    return tuple(dict.fromkeys(places[n] for n in steps if n in places))


def packed_bytes(kernels: Sequence[Subgraph], target: Target) -> int:
    """Bytes that the kernels of a step pack for themselves by their default schedules."""
    return sum(found.nbytes for s in kernels if (found := contracting(s, target)) is not None)


@dataclass(frozen=True)
class Request:
    """What the kernels of a definition would read in the place of what they read now. most: what they may take then,
    of what they take now."""

    wish: Wish
    lanes: int
    most: float = 1.0


def _requests(
    kernels: Sequence[Subgraph],
    target: Target,
    lasting: Slots,
    often: Slots,
    may_last: Callable[[Subgraph], bool] | None,
) -> tuple[Request, ...]:
    """What the kernels of each definition ask for; where they differ, most of them."""
    found: dict[Definition, Counter[Request]] = {}
    for subgraph in kernels:
        tick()
        kernel = contracting(subgraph, target)
        asked = None if kernel is None else in_panels(kernel, target)
        if asked is None or asked.slot is None or (layout := layout_of(asked)) is None:
            continue
        slot = asked.definition.slots[asked.slot]
        nbytes = math.prod(slot.shape) * dt.itemsize(slot.dtype)
        is_sure = asked is kernel or nbytes > target.l2_bytes
        most = ALIKE if (asked.definition, asked.slot) in often else 1.0 if is_sure else CLEARLY
        lasts = may_last is not None and (asked.definition, asked.slot) in lasting and may_last(subgraph)
        few = 1 if lasts else FEW
        request = Request(Wish(asked.definition, asked.slot, layout, few), asked.lanes, most)
        found.setdefault(asked.definition, Counter())[request] += 1
    return tuple(counts.most_common(1)[0][0] for counts in found.values())


def in_panels(kernel: Contracting, target: Target) -> Contracting:
    """A kernel as if it packed its largest operand, which it reads in place: packed, a panel is a stretch of memory."""
    definition, reduced = kernel.definition, set(kernel.definition.reduction_axes)
    operand = max(operands(definition), key=lambda o: math.prod(o.shape), default=None)
    free = [] if operand is None else [a for a in operand.axes if a is not None and a not in reduced]
    if operand is None or len(free) != 1 or kernel.slot == operand.slot:
        return kernel
    lanes = target.lanes(definition.body.dtype)
    return replace(kernel, slot=operand.slot, axis=free[0], lanes=lanes, width=VECTORS * lanes)


def layout_of(asked: Contracting) -> Layout | None:
    """The order in which a kernel goes through what it packs along N: in panels, each along K as it goes along K, of as
    many whole vectors as divide the last axis; where none do, in its own panels, which is refused. None where axes are
    joined."""
    operand = next((o for o in operands(asked.definition) if o.slot == asked.slot), None)
    last = None if operand is None else next((d for d, a in enumerate(operand.axes) if a is asked.axis), None)
    if operand is None or last is None:
        return None
    reduced = set(asked.definition.reduction_axes)
    others = [d for d in range(len(operand.axes)) if d != last]
    inner = tuple(d for d in others if operand.axes[d] is None or operand.axes[d] in reduced)
    outer = tuple(d for d in others if d not in inner)
    order = dict(asked.summed).get(operand.slot, ())
    inner = tuple(sorted(inner, key=lambda d: order.index(d) if d in order else -1))
    for width in range(asked.width, 0, -asked.lanes):
        if (layout := Layout(outer, last, inner, width)).fits(operand.shape).ok:
            return layout
    return Layout(outer, last, inner, asked.width)


# ------------------------------------------------------------------------------------------------ the joint choice


def chosen(graph: Graph, requests: Sequence[Request]) -> tuple[Wish, ...]:
    """A layout for each definition: for each tensor those of the set that moves the fewest bytes.

    A set costs `MADE` times the tensor for each layout, nothing where it is packed once for all calls of the program,
    and the tensor for each kernel that none of it serves. All sets of at most `MOST` layouts are compared.
    """
    asking = {r.wish.definition: r for r in requests}
    by_tensor: dict[Tensor, Counter[Definition]] = {}
    for t in graph.nodes:
        if (request := asking.get(t.definition)) is not None:
            by_tensor.setdefault(t.inputs[request.wish.slot], Counter())[t.definition] += 1
    taken: dict[Definition, Counter[Layout]] = {}
    for counts in by_tensor.values():
        best = best_set([(asking[d], n) for d, n in counts.items()])
        for definition, n in counts.items():
            if (layout := next((x for x in best if serves(x, asking[definition])), None)) is not None:
                taken.setdefault(definition, Counter())[layout] += n
    return tuple(replace(asking[d].wish, layout=counts.most_common(1)[0][0]) for d, counts in taken.items())


def serves(layout: Layout, request: Request) -> bool:
    """Whether a kernel that asks for panels of its own width reads them in place in this layout."""
    own = request.wish.layout
    same = (layout.outer, layout.dimension, layout.inner) == (own.outer, own.dimension, own.inner)
    return same and layout.width % own.width == 0


def best_set(asked: Sequence[tuple[Request, int]]) -> tuple[Layout, ...]:
    """Of the layouts that are asked for, each by so many calls, the set of the least cost in sizes of the tensor."""
    layouts = Counter[Layout]()
    for request, n in asked:
        layouts[request.wish.layout] += n
    offered = [layout for layout, _ in layouts.most_common(MOST)]

    made = 0 if all(r.wish.few == 1 for r, _ in asked) else MADE

    def cost(those: tuple[Layout, ...]) -> int:
        alone = sum(n for r, n in asked if not any(serves(x, r) for x in those))
        return made * len(those) + alone

    sets = (those for k in range(len(offered) + 1) for those in combinations(offered, k))
    return min(sets, key=cost)


# ----------------------------------------------------------------------------------------------- what became of it


def _cycles(kernels: Sequence[Subgraph], target: Target) -> Mapping[Definition, float]:
    """Estimated cycles of a kernel of each definition, the mean of those in a step."""
    found: dict[Definition, list[float]] = {}
    for subgraph in kernels:
        if (kernel := contracting(subgraph, target)) is not None:
            found.setdefault(kernel.definition, []).append(kernel.cycles)
    return {d: sum(each) / len(each) for d, each in found.items()}


def _of_use(
    graph: Graph,
    requests: Mapping[Definition, Request],
    wishes: Sequence[Wish],
    first: Sequence[Subgraph],
    second: Sequence[Subgraph],
    target: Target,
) -> tuple[Wish, ...]:
    """The wishes whose kernels read what is packed where it lies, and take no longer than they may by the estimate.

    first, second: the kernels before and after. A wish that changes nothing is kept: it is refused, with its sentence.
    """
    before, after = _cycles(first, target), _cycles(second, target)
    there = {t.definition: t for t in graph.nodes}
    packing = {(k.definition, k.slot) for s in second if (k := contracting(s, target)) is not None}
    kept = []
    for wish in wishes:
        t = there[wish.definition]
        if not wish.layout.fits(t.inputs[wish.slot].shape).ok:
            kept.append(wish)
            continue
        changed = with_layout(t, wish)
        slot = next(n for n, i in enumerate(changed.inputs) if all(i is not own for own in t.inputs))
        now, then = before.get(t.definition), after.get(changed.definition)
        is_unchanged = then is None and t.definition in after
        is_faster = now is not None and then is not None and then <= requests[t.definition].most * now
        if is_unchanged or (is_faster and (changed.definition, slot) not in packing):
            kept.append(wish)
    return tuple(kept)


def with_layout(t: Compute, wish: Wish) -> Compute:
    """A contraction that reads its operand packed."""
    return reading(t, t.inputs, wish.slot, wish.layout.packed(t.inputs[wish.slot]), wish.layout)

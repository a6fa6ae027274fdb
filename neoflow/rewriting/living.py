"""Parameters that live packed: in the order in which kernels read them, for as long as the program runs.

What a step changes is packed again at every step, by the kernels that read it or once for all of them (`layouts`). If
it lives so, with its gradient and what an optimizer keeps of it, nothing packs it: an update goes through elements one
by one, and any order is as good to it. The values that users see are plain: the store of parameters packs and unpacks
them (`runtime.store`).

The layouts of all parameters are chosen together: each kernel costs what its default schedule is estimated to take,
with what it packs for itself, at the layouts of all that it reads and writes; the sum is made least (`joint.choose`).
A layout is a bijection: what no panel divides is not padded, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from neoflow.expr.tensor import Compute, Definition, Parameter, Tensor
from neoflow.graph import FEW, Graph, Layout, is_contraction, operands
from neoflow.graph.laid import kin, lay
from neoflow.partition import KernelCall, Partition, Subgraph
from neoflow.partition.calls import Call
from neoflow.rewriting.joint import Factor, choose, cost_with, margin
from neoflow.rewriting.judging import RIVALS, Rival
from neoflow.rewriting.layouts import Contracting, contracting, in_panels, layout_of
from neoflow.rewriting.measured import At, Things, measured_factors
from neoflow.rewriting.orders import BYTES_A_CYCLE, Lies, cycles_of, kernel_of, laid_definition, nbytes_of
from neoflow.rewriting.times import Lookup
from neoflow.target import Target
from neoflow.trace import tick
from neoflow.verdict import Verdict

CLEARLY = 0.97
"""Of the estimated cycles of all kernels that read or write a parameter, what they take at most when it lives packed:
less is what an estimate may be wrong by."""
LEAST = 1 << 22
"""Bytes of a parameter from which packing it costs what the estimate says. The 3x3 weights of resnet18, 0.6 and 2.4 MB,
were packed from cache to cache: their kernels took 0.99 to 1.03 of the time with none of it, where 0.90 to 0.96 was
estimated; a step of a BERT layer with 9.4 MB that live packed took 0.96 (a busy machine)."""
MOST = 4
"""Layouts that are chosen from for a parameter, beside the plain one."""


@dataclass(frozen=True)
class Living:
    """A graph with parameters that live packed. before, after: estimated cycles of the kernels that read or write those
    parameters; is_exact: of the choice. said: of each parameter that a contraction reads and the program changes, how
    it lives, or why as it is."""

    graph: Graph
    said: tuple[tuple[str, Verdict], ...] = ()
    before: float = 0.0
    after: float = 0.0
    is_exact: bool = True
    rivals: tuple[Rival, ...] = ()

    @property
    def summary(self) -> str:
        count = sum(v.ok for _, v in self.said)
        if not count:
            return f"{len(self.said)} parameters are changed and contracted, none lives packed"
        gain = f"{self.before / 1e6:.1f} to {self.after / 1e6:.1f} million cycles"
        return f"{count} of {len(self.said)} parameters live packed: their kernels from {gain}, estimated"

    def __str__(self) -> str:
        how = "the least of all choices" if self.is_exact else "found by going round, there were too many choices"
        return "\n".join([how, *(f"{name}: {v.reason}" for name, v in self.said)]) if self.said else self.summary


@dataclass(frozen=True, eq=False)
class _Thing:
    """What lies alike, under the name of a parameter, and the layouts it may have; the first one is as it is."""

    name: str
    members: frozenset[Tensor]
    layouts: tuple[Layout | None, ...]


def live_packed(
    graph: Graph,
    target: Target,
    cut: Callable[[Graph], Partition],
    may: Callable[[Subgraph], bool],
    known: Lookup | None = None,
) -> Living:
    """The graph whose changed parameters live as kernels read them, where these clearly take less by the estimate.

    cut: divides a graph into kernels. may: whether a kernel may become another one, of which nothing is known.
    known: what kernels took, where any were measured and rivals are looked for.
    """
    said: dict[Tensor, tuple[str, Verdict]] = {}
    things: list[_Thing] = []
    lying: set[Tensor] = set()
    asking = _readers(graph)
    for p, _ in graph.updates:
        if p in lying or not asking.get(p):
            continue
        if p.nbytes < LEAST:
            said[p] = p.name, Verdict(False, f"its {p.nbytes} bytes are packed from cache to cache")
            continue
        tick()
        family = kin(graph, p)
        if isinstance(family, Verdict):
            said[p] = p.name, family
            continue
        found = _offered(p, [r for q in family if isinstance(q, Parameter) for r in asking.get(q, ())], target)
        if not found:
            said[p] = p.name, Verdict(False, "no kernel reads it in panels that divide it")
            continue
        lying |= family
        things.append(_Thing(p.name, family, (None, *found)))
    if not things:
        return Living(graph, tuple(said.values()))
    factors = _factors(graph, things, target)
    plain = (0,) * len(things)
    margins = [margin(n, (1 - CLEARLY) * cost_with(factors, n, plain, 0)) for n in range(len(things))]
    counts = [len(t.layouts) for t in things]
    chosen = choose(counts, [*factors, *margins])
    taken, calls = [0] * len(things), tuple[Call, ...]()
    for n, (thing, label) in enumerate(zip(things, chosen.labels, strict=True)):
        layout, head = thing.layouts[label], next(iter(p for p, _ in graph.updates if p in thing.members))
        touched = frozenset(t for t in graph.nodes if is_contraction(t.definition) and _touches(t, thing))
        now, then = (cost_with(factors, n, chosen.labels, k) for k in (0, label))
        if layout is None:
            verdict = Verdict(False, f"its kernels take no less in {' or '.join(map(str, thing.layouts[1:]))}")
        elif not _may(touched, calls := calls or cut(graph).calls, may):
            verdict = Verdict(False, f"it would be read as {layout}, but its kernels were measured as they are")
        else:
            others = len(thing.members) - 1
            verdict = Verdict(True, f"lives as {layout}, with {others} more: {now:.0f} to {then:.0f} cycles")
            taken[n] = label
        said[head] = thing.name, verdict
    now = sum(cost_with(factors, n, chosen.labels, 0) for n, k in enumerate(taken) if k)
    then = sum(cost_with(factors, n, chosen.labels, k) for n, k in enumerate(taken) if k)
    rivals = () if known is None else _rivals(graph, things, cut(graph), chosen.labels, tuple(taken), known, target)
    return Living(_laid(graph, things, taken), tuple(said.values()), now, then, chosen.is_exact, rivals)


def _laid(graph: Graph, things: Sequence[_Thing], labels: Sequence[int]) -> Graph:
    """The graph whose things have these layouts; the same where all are as they are."""
    layouts = {t: x for thing, n in zip(things, labels, strict=True) for t in thing.members if (x := thing.layouts[n])}
    return lay(graph, layouts)[0] if layouts else graph


def _rivals(
    graph: Graph,
    things: Sequence[_Thing],
    cut: Partition,
    wanted: tuple[int, ...],
    now: tuple[int, ...],
    known: Lookup,
    target: Target,
) -> tuple[Rival, ...]:
    """Other choices, where kernels were measured: what is chosen by what these took, what the estimate alone would have
    taken, and none."""
    home = {t: n for n, thing in enumerate(things) for t in thing.members}

    def orders(t: Compute, at: At) -> tuple[Layout | None, Lies]:
        lies = [things[home[i]].layouts[at[home[i]]] if i in home else None for i in (t, *t.inputs)]
        return lies[0], tuple(lies[1:])

    def matters(t: Compute) -> bool:
        return is_contraction(t.definition) and any(i in home for i in (t, *t.inputs))

    def estimate(t: Compute, at: At) -> float:
        return cycles_of(t.definition, *orders(t, at), target)

    those = Things(home, [x.layouts for x in things], matters, estimate, lambda t, at: orders(t, at)[1])
    if (factors := measured_factors(those, cut, known, target, now)) is None:
        return ()
    by_times = choose([len(thing.layouts) for thing in things], factors).labels
    others = [x for x in dict.fromkeys((by_times, wanted, (0,) * len(things))) if x != now][:RIVALS]
    told = [f"{sum(map(bool, x))} of {len(x)} parameters live packed" for x in others]
    return tuple(Rival(name, _laid(graph, things, x)) for name, x in zip(told, others, strict=True))


def _readers(graph: Graph) -> dict[Tensor, list[tuple[Compute, int]]]:
    """Of each tensor the contractions that read it as an operand, each definition once, and in which slot."""
    found: dict[Tensor, dict[tuple[Definition, int], Compute]] = {}
    for t in graph.nodes:
        for o in operands(t.definition):
            found.setdefault(t.inputs[o.slot], {}).setdefault((t.definition, o.slot), t)
    return {s: [(t, slot) for (_, slot), t in by.items()] for s, by in found.items()}


def _offered(p: Tensor, readers: Iterable[tuple[Compute, int]], target: Target) -> tuple[Layout, ...]:
    """The layouts in which contractions would read a parameter, each where it fits."""
    found: dict[Layout, None] = {}
    for t, slot in readers:
        kernel = contracting(kernel_of(t.definition), target)
        for asked in () if kernel is None else (kernel, in_panels(kernel, target)):
            layout = layout_of(_along_free(asked)) if asked.slot == slot else None
            if layout is not None and layout.fits(p.shape).ok:
                found[_as_read(t.definition, slot, layout, target)] = None
    return tuple(found)[:MOST]


def _as_read(definition: Definition, slot: int, layout: Layout, target: Target) -> Layout:
    """A layout whose inner dimensions are in the order in which a kernel sums over them once it packs nothing."""
    read = tuple(layout if n == slot else None for n in range(len(definition.slots)))
    kernel = contracting(kernel_of(laid_definition(definition, None, read)), target)
    order = () if kernel is None or kernel.slot == slot else dict(kernel.summed).get(slot, ())
    first = len(layout.outer) + 1
    inner = [layout.inner[d - first] for d in order if first <= d < first + len(layout.inner)]
    return replace(layout, inner=(*(d for d in layout.inner if d not in inner), *inner))


def _along_free(asked: Contracting) -> Contracting:
    """The same, packed along the one axis of the operand that is not summed, where a kernel calls it otherwise."""
    reduced = set(asked.definition.reduction_axes)
    operand = next((o for o in operands(asked.definition) if o.slot == asked.slot), None)
    free = [] if operand is None else [a for a in operand.axes if a is not None and a not in reduced]
    return replace(asked, axis=free[0]) if len(free) == 1 else asked


def _may(touched: frozenset[Compute], calls: Iterable[Call], may: Callable[[Subgraph], bool]) -> bool:
    """Whether all kernels of these contractions may become others."""
    kernels = (c for c in calls if isinstance(c, KernelCall) and not touched.isdisjoint(c.nodes))
    return all(may(c.subgraph) for c in kernels)


def _touches(t: Compute, thing: _Thing) -> bool:
    return t in thing.members or any(i in thing.members for i in t.inputs)


def _factors(graph: Graph, things: Sequence[_Thing], target: Target) -> list[Factor]:
    """What the contractions cost that read or write things, by their labels; those that are alike are asked once."""
    home = {t: n for n, thing in enumerate(things) for t in thing.members}
    counts: dict[tuple[Definition, int | None, tuple[int | None, ...]], int] = {}
    for t in graph.nodes:
        key = t.definition, home.get(t), tuple(home.get(i) for i in t.inputs)
        if is_contraction(t.definition) and (key[1] is not None or any(n is not None for n in key[2])):
            counts[key] = counts.get(key, 0) + 1
    found = []
    for (definition, own, read), count in counts.items():
        those = tuple(sorted({n for n in (own, *read) if n is not None}))
        found.append(Factor(those, partial(_cost, things, those, definition, own, read, count, target)))
    return found


def _cost(
    things: Sequence[_Thing],
    those: tuple[int, ...],
    definition: Definition,
    own: int | None,
    read: tuple[int | None, ...],
    count: int,
    target: Target,
    labels: tuple[int, ...],
) -> float:
    """Estimated cycles of so many kernels of a definition, with the things at these labels."""
    at = {n: things[n].layouts[label] for n, label in zip(those, labels, strict=True)}
    lies = tuple(None if n is None else at[n] for n in read)
    mine = None if own is None else at[own]
    cycles = cycles_of(definition, mine, lies, target)
    if mine is None and not any(lies) and count >= FEW:  # `layouts` packs it once for them all
        for slot, n in enumerate(read):
            for layout in () if n is None else things[n].layouts[1:]:
                beside = tuple(layout if k == slot else None for k in range(len(read)))
                moved = 2 * nbytes_of(definition.slots[slot]) / BYTES_A_CYCLE
                cycles = min(cycles, cycles_of(definition, None, beside, target) + moved / count)
    return count * cycles

"""What is chosen by what kernels took: factors of a choice, one for each kernel that reads or writes what may lie
otherwise, by how that lies.

A kernel costs what it took, the very kernel that it would be with its tensors in these orders, fused as it is; where
nobody knows, what its computes are estimated to take, as many times as long as it took in the orders that are known, or
else the known kernels of its kind did: where an estimate is wrong about a kernel, it is in all of its orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from neoflow.errors import PartitionError
from neoflow.expr.tensor import Compute, Placeholder, Tensor
from neoflow.graph import Layout, is_contraction
from neoflow.graph.laid import laid
from neoflow.partition import KernelCall, Partition, Subgraph
from neoflow.partition.carried import carried_call
from neoflow.rewriting.joint import Factor
from neoflow.rewriting.judging import CLOCK
from neoflow.rewriting.layouts import contracting, in_panels, layout_of
from neoflow.rewriting.orders import Lies
from neoflow.rewriting.times import Lookup
from neoflow.target import Target
from neoflow.trace import tick

MOST = 64
"""Orders of a kernel at most that are looked up; of one that has more only the estimate counts."""
At = Mapping[int, int]
"""Of things their labels."""
Labels = tuple[int, ...]
Table = Mapping[Labels, float | None]
"""Seconds by the labels of a call's things; None: not known."""


@dataclass(frozen=True, eq=False)
class Things:
    """What may lie otherwise. home: of each tensor its thing. layouts: of each thing, by label. matters: whether
    a compute takes more or less by how they lie. estimate: its cycles at labels. lies: in which orders it reads then.
    """

    home: Mapping[Tensor, int]
    layouts: Sequence[Sequence[Layout | None]]
    matters: Callable[[Compute], bool]
    estimate: Callable[[Compute, At], float]
    lies: Callable[[Compute, At], Lies]


def measured_factors(
    those: Things, cut: Partition, known: Lookup, target: Target, now: Sequence[int]
) -> list[Factor] | None:
    """The factors of a choice by what kernels took; None where none of them was measured in other orders than those of
    these labels: then nothing speaks against what the estimate has chosen."""
    looked, memo = list[_Looked](), dict[object, float | None]()
    for call in cut.calls:
        if isinstance(call, KernelCall):
            things = tuple(sorted({those.home[t] for t in (*call.inputs, *call.nodes) if t in those.home}))
            if things and any(map(those.matters, call.nodes)):
                looked.append(_Looked(call, things, _looked_up(those, call, things, known, memo)))
    if not any(each.is_known_besides(now) for each in looked):
        return None
    scale = CLOCK * target.threads
    longer = [_longer(those, each, scale) for each in looked]
    every = [ratio for ratios in longer for ratio in ratios]
    of_kind: dict[bool, list[float]] = {}
    for each, ratios in zip(looked, longer, strict=True):
        of_kind.setdefault(each.multiplies, []).extend(ratios)
    more = [ratios or of_kind[each.multiplies] or every for each, ratios in zip(looked, longer, strict=True)]
    means = [math.exp(sum(ratios) / len(ratios)) if ratios else 1.0 for ratios in more]
    costs = [partial(_cost, those, each, scale, mean) for each, mean in zip(looked, means, strict=True)]
    return [Factor(each.things, cost) for each, cost in zip(looked, costs, strict=True)]


@dataclass(frozen=True, eq=False)
class _Looked:
    """A call, what of it may lie otherwise, and what it took then."""

    call: KernelCall
    things: Labels
    table: Table

    @property
    def multiplies(self) -> bool:
        return any(is_contraction(t.definition) for t in self.call.nodes)

    def is_known_besides(self, now: Sequence[int]) -> bool:
        """Whether it was measured at other labels than these."""
        usual = tuple(now[n] for n in self.things)
        return any(seconds is not None and labels != usual for labels, seconds in self.table.items())


def _cost(those: Things, looked: _Looked, scale: float, more: float, labels: Labels) -> float:
    """Cycles of a call at labels. more: times that it takes what it is estimated to."""
    if (seconds := looked.table.get(labels)) is not None:
        return seconds * scale
    stays = looked.call.subgraph.rows is not None and any(labels)
    return math.inf if stays else more * _estimate(those, looked, labels)


def _longer(those: Things, looked: _Looked, scale: float) -> list[float]:
    """Logarithms of how many times as long as estimated a call took at the labels of which that is known."""
    known = [(seconds, _estimate(those, looked, labels)) for labels, seconds in looked.table.items() if seconds]
    return [math.log(seconds * scale / thought) for seconds, thought in known if thought]


def _estimate(those: Things, looked: _Looked, labels: Labels) -> float:
    at = dict(zip(looked.things, labels, strict=True))
    return sum(those.estimate(t, at) for t in looked.call.nodes if those.matters(t))


def _looked_up(
    those: Things, call: KernelCall, things: Labels, known: Lookup, memo: dict[object, float | None]
) -> Table:
    """What a call took with its things at all labels, where that is known. memo: of equal calls."""
    counts = [len(those.layouts[n]) for n in things]
    found: dict[Labels, float | None] = {}
    tick()
    for labels in product(*map(range, counts)) if math.prod(counts) <= MOST else ():
        at, tensors = dict(zip(things, labels, strict=True)), (*call.inputs, *call.nodes)
        orders = [those.layouts[those.home[t]][at[those.home[t]]] if t in those.home else None for t in tensors]
        copies = {t: those.lies(t, at) for t in call.nodes}
        key = call.subgraph.digest, tuple(orders), tuple(copies.values())
        if key not in memo:
            lying = {t: layout for t, layout in zip(tensors, orders, strict=True) if layout is not None}
            kernel = kernel_in(call, lying, copies)
            memo[key] = None if kernel is None else known(kernel)
        found[labels] = memo[key]
    return found


def kernel_in(call: KernelCall, lying: Mapping[Tensor, Layout], copies: Mapping[Compute, Lies]) -> Subgraph | None:
    """The kernel that a call would be with what it reads and writes in these orders; None where it would be none, or
    goes by rows. copies: of its computes, in which orders they read copies."""
    now: dict[Tensor, Tensor] = {}
    for i in call.inputs:
        now[i] = _as_lying(i, lying[i]) if i in lying else i
    for t in call.nodes:
        pairs = zip(t.inputs, copies.get(t, ()), strict=False)
        own = {i: layout for i, layout in pairs if layout is not None and i not in lying}
        now[t] = laid(t, {**lying, **own}, {**now, **{i: _as_lying(i, layout) for i, layout in own.items()}})
    if call.subgraph.rows is not None and any(now[t] is not t for t in call.nodes):
        return None
    try:
        return carried_call(call, now).subgraph
    except PartitionError:
        return None


def _as_lying(t: Tensor, layout: Layout) -> Placeholder:
    return Placeholder(layout.shape(t.shape), t.dtype, t.name, None)


def packed_kernel(call: KernelCall, target: Target) -> Subgraph | None:
    """The kernel that a call would be once `layouts` has packed the operand that it would rather read so."""
    kernel = contracting(call.subgraph, target)
    asked = None if kernel is None else in_panels(kernel, target)
    if asked is None or asked.slot is None or (layout := layout_of(asked)) is None:
        return None
    if not layout.fits(asked.definition.slots[asked.slot].shape).ok:
        return None
    lies = tuple(layout if n == asked.slot else None for n in range(len(asked.definition.slots)))
    return kernel_in(call, {}, {t: lies for t in call.nodes if t.definition is asked.definition})

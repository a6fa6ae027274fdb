"""Sums of products in an order that takes less work: what does not depend on an axis leaves the sum over it.

Source: C.-C. Lam, P. Sadayappan, R. Wenger, On Optimizing a Class of Multi-dimensional Loops with Reductions for
Parallel Execution, 1997; here for bodies of several terms, and for several sums that share what is summed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from neoflow.expr.close import build
from neoflow.expr.ir import Slot, same
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.linear import Core, cores
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.graph.work import work
from neoflow.verdict import Verdict

GAIN = 2
"""The work is divided by so much at least: what is counted is rough."""
PER_BYTE = 4
"""Instructions, counted in elements, in the time in which a byte is written or read: between those of caches and those
of memory (2 and 10 on two cores of Zen 5)."""
SAVED = 1 << 20
"""Instructions below which a kernel of its own saves nothing: some microseconds. Chosen, not measured."""
LARGER = 16
"""What is summed first is at most so many times the largest tensor that is read or written: nine taps are."""
MOST_BYTES = 1 << 31
"""Of what is summed first."""
MOST_READERS = 64
"""Readers of a tensor among which sums are looked for that share what is summed first."""


@dataclass(frozen=True)
class FactorSums(Rewrite):
    """Sums that depend on some of their axes through one product alone read the sum of that product.

    y[p] = sum[r, s](g[p, r] * w[r, s] * a[s, p])    ->    t[p, s] = sum[r](g[p, r] * w[r, s]);
                                                           y[p] = sum[s](t[p, s] * a[s, p])
    """

    name: str = "factor sums"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """A sum, and others that have the same product; for each product that these do not tell apart, once."""
        seen: list[tuple[Compute, ...]] = []
        for core in cores(t.definition):
            group = (t, *sorted(_sharing(editor, t, core), key=editor.place))
            if not any(same(group, other) for other in seen):
                seen.append(group)
                yield Match(group)

    def legal(self, editor: Editor, match: Match) -> Verdict:
        before, after, shared = min(_choices(editor, match), key=lambda c: c[1])
        first = shared[0]
        largest = max(i.nbytes for t in match.tensors for i in (t, *editor.inputs(t)))
        if before < GAIN * after or before - after < SAVED:
            return Verdict(False, f"{before} instructions would be {after}, which is no gain")
        if first.nbytes > min(LARGER * largest, MOST_BYTES):
            return Verdict(False, f"what is summed first has {first.nbytes} bytes, the largest tensor there {largest}")
        return Verdict(True, f"{before} instructions become {after}, what is summed first has {first.nbytes} bytes")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, *_ = match.tensors
        _, _, shared = min(_choices(editor, match), key=lambda c: c[1])
        order = shared[0].order()
        first = shared[0].summed_first(editor.inputs(t), order, f"{t.name}_sum")
        made: dict[Tensor, Tensor] = {}
        for whole, core in zip(match.tensors, shared, strict=True):
            inputs = editor.inputs(whole)
            body = core.rest(whole.definition.body, Slot(len(inputs), first.shape, first.dtype), order)
            made[whole] = build(whole.shape, body, (*inputs, first), whole.name)
        return made


def _gain(t: Compute, core: Core) -> int:
    """Instructions saved in one sum when the sum of the product is there to be read."""
    return work(t.definition.body, t.shape) - core.work - PER_BYTE * core.nbytes


def _sharing(editor: Editor, t: Compute, core: Core) -> Iterator[Compute]:
    """Other sums that have the product of `core`, of the same tensors, and gain by reading its sum."""
    source = editor.inputs(t)[core.slots[0]]
    for r in islice(editor.each_reader(source), MOST_READERS):
        if r is not t and any(_gain(r, c) > 0 for c in _alike(editor, r, editor.inputs(t), core)):
            yield r


def _alike(editor: Editor, t: Compute, inputs: tuple[Tensor, ...], core: Core) -> Iterator[Core]:
    """The product of t that is `core` over `inputs`, if it has it."""
    for own in cores(t.definition):
        if own.definition is core.definition and same(
            tuple(editor.inputs(t)[n] for n in own.slots), tuple(inputs[n] for n in core.slots)
        ):
            yield own


def _choices(editor: Editor, match: Match) -> Iterator[tuple[int, int, tuple[Core, ...]]]:
    """For each product that all of the sums have: the work before and after, and the product in each of them."""
    t, *others = match.tensors
    before = sum(work(s.definition.body, s.shape) for s in match.tensors)
    for core in cores(t.definition):
        found = [next(_alike(editor, r, editor.inputs(t), core), None) for r in others]
        shared = (core, *(c for c in found if c is not None))
        if len(shared) == len(match.tensors):
            moved = PER_BYTE * core.nbytes * (1 + len(shared))
            once = work(core.definition.body, core.definition.shape)
            yield before, sum(c.work for c in shared) + once + moved, shared

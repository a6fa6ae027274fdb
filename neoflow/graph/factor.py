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
from neoflow.graph.work import work_of
from neoflow.verdict import Verdict

GAIN = 2
"""The work is divided by so much at least: what is counted is rough."""
PER_BYTE = 4
"""Instructions, counted in elements, in the time in which a byte is written or read: between those of caches and those
of memory (2 and 10 on two cores of Zen 5)."""
SAVED = 1 << 20
"""Instructions below which a kernel of its own is no gain: some ten microseconds. Chosen, not measured."""
LARGER = 16
"""What is summed first is at most so many times the largest tensor that is read or written: nine taps are."""
MOST_BYTES = 1 << 31
"""Of what is summed first."""
MOST_READERS = 64
"""Readers of a tensor among which sums are looked for that share what is summed first."""


@dataclass(frozen=True, eq=False)
class _Choice:
    """A product that all of some sums have, as it is in each of them; their instructions before and after."""

    shared: tuple[Core, ...]
    before: int
    after: int

    @property
    def nbytes(self) -> int:
        return self.shared[0].nbytes


@dataclass(frozen=True)
class FactorSums(Rewrite):
    """Sums that depend on some of their axes through one product alone read the sum of that product.

    y[p] = sum[r, s](g[p, r] * w[r, s] * a[s, p])    ->    t[p, s] = sum[r](g[p, r] * w[r, s]);
                                                           y[p] = sum[s](t[p, s] * a[s, p])
    """

    name: str = "factor sums"
    saved: int = SAVED

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """A sum, and others that have the same product; for each product that these do not tell apart, once."""
        seen: list[tuple[Compute, ...]] = []
        for core in cores(t.definition):
            others = _sharing(editor, t, core) if _gain(t, core) > 0 else ()
            group = (t, *sorted(others, key=editor.place))
            if not any(same(group, other) for other in seen):
                seen.append(group)
                yield Match(group)

    def legal(self, editor: Editor, match: Match) -> Verdict:
        best, most = _best(editor, match), _most(editor, match)
        if best.nbytes > most:
            return Verdict(False, f"what is summed first has {best.nbytes} bytes, more than {most}")
        if best.before < GAIN * best.after or best.before - best.after < self.saved:
            return Verdict(False, f"{best.before} instructions would be {best.after}, which is no gain")
        return Verdict(True, f"{best.before} instructions become {best.after}, with {best.nbytes} bytes between them")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, shared = match.tensors[0], _best(editor, match).shared
        order = shared[0].order()
        first = shared[0].summed_first(editor.inputs(t), order, f"{t.name}_sum")
        made: dict[Tensor, Tensor] = {}
        for whole, core in zip(match.tensors, shared, strict=True):
            inputs = editor.inputs(whole)
            body = core.rest(whole.definition.body, Slot(len(inputs), first.shape, first.dtype), order)
            made[whole] = build(whole.shape, body, (*inputs, first), whole.name)
        return made


def _best(editor: Editor, match: Match) -> _Choice:
    """The product with which the work is least, of those whose sums are not too large if there are any."""
    most = _most(editor, match)
    return min(_choices(editor, match), key=lambda c: (c.nbytes > most, c.after))


def _most(editor: Editor, match: Match) -> int:
    """Bytes that what is summed first may have."""
    return min(LARGER * max(i.nbytes for t in match.tensors for i in (t, *editor.inputs(t))), MOST_BYTES)


def _choices(editor: Editor, match: Match) -> Iterator[_Choice]:
    """The products that all of the sums have."""
    t, *others = match.tensors
    before = sum(work_of(s.definition) for s in match.tensors)
    for core in cores(t.definition):
        found = [next(_alike(editor, r, editor.inputs(t), core), None) for r in others]
        shared = (core, *(c for c in found if c is not None))
        if len(shared) == len(match.tensors):
            moved = PER_BYTE * core.nbytes * (1 + len(shared))
            yield _Choice(shared, before, sum(c.work for c in shared) + work_of(core.definition) + moved)


def _gain(t: Compute, core: Core) -> int:
    """Instructions saved in one sum when the sum of the product is there to be read."""
    return work_of(t.definition) - core.work - PER_BYTE * core.nbytes


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

"""Sums of contractions as chains, each link the epilogue of the contraction it adds.

An unrolled recurrence gives a weight one gradient for each step. Summed at the end, all of them are in memory at once;
as a chain one buffer holds the sum so far, written where each contraction ends. The links are in the order in which the
graph can compute them, so that what a step of the backward pass makes is read by the next link while a cache has it,
and need not wait for the last step of all. Only rounding differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Expr, Read, Slot, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, own_indices, reads_at_own_point
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class ChainSums(Rewrite):
    """A sum of three or more terms, two or more of them contractions that nothing else reads, adds these one by one.

    d = c1 + c2 + c3 + rest    ->    s1 = rest + c1;  s2 = s1 + c2;  d = s2 + c3

    What else is added, the rest, is first where it is known before the first contraction, otherwise last.
    """

    name: str = "chain sums"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """The sum, and what it adds that may be a link, in the order in which the graph can compute them."""
        if len(terms(t.definition)) < 3:
            return
        inputs = editor.inputs(t)
        contractions = [inputs[n] for n in single_terms(t.definition) if _contracts(inputs[n])]
        if len(contractions) >= 2:
            links = [c for c in contractions if isinstance(c, Compute) and editor.is_read_once(c)]
            depths = depths_of(editor)
            yield Match((t, *sorted(links, key=lambda c: (depths[c], editor.place(c)))))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        count = len(match.tensors) - 1
        if count < 2:
            return Verdict(False, "the contractions it adds are read elsewhere, too, all but one at most")
        return Verdict(True, f"one buffer takes up {count} contractions that nothing else reads")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, *links = match.tensors
        inputs = editor.inputs(t)
        slots = {n for n in single_terms(t.definition) if any(inputs[n] is c for c in links)}
        rest = [e for e in terms(t.definition) if not (isinstance(e, Read) and e.slot in slots)]
        others = None if not rest else reduce(lambda a, b: Apply("add", (a, b)), rest)
        depths = depths_of(editor)
        known = max(
            (depths.get(inputs[n.slot], 0) for e in rest for n in postorder(e) if isinstance(n, Read)), default=0
        )
        is_first = others is not None and known <= depths[links[0]]
        total: Tensor | None = build(t.shape, others, inputs, t.name) if others is not None and is_first else None
        for c in links:
            total = c if total is None else _sum(total, c, t.name)
        assert total is not None
        if others is None or is_first:
            return {t: total}
        own = Read(Slot(len(inputs), t.shape, t.dtype), own_indices(t.shape))
        return {t: build(t.shape, Apply("add", (own, others)), (*inputs, total), t.name)}


def is_link(editor: Editor, t: Compute) -> bool:
    """Whether all that happens to a sum is that a contraction is added to it."""
    if not editor.is_read_once(t):
        return False
    (reader,) = editor.each_reader(t)
    inputs, alone = editor.inputs(reader), single_terms(reader.definition)
    return any(inputs[n] is t for n in alone) and any(inputs[n] is not t and _contracts(inputs[n]) for n in alone)


def depths_of(editor: Editor) -> Mapping[Tensor, int]:
    """Of each compute, how many come one after the other before it: what is needed by another one is less deep."""

    def find() -> dict[Tensor, int]:
        found: dict[Tensor, int] = {}
        for t in editor.computes():
            found[t] = 1 + max((found.get(i, 0) for i in editor.inputs(t)), default=0)
        return found

    return editor.while_it_stays("depths", find)


def _contracts(t: Tensor) -> bool:
    return isinstance(t, Compute) and is_contraction(t.definition)


@remembered
def terms(definition: Definition) -> tuple[Expr, ...]:
    """The operands of a tree of float additions; nothing for another body."""
    if not dt.is_float(definition.body.dtype):
        return ()
    found: list[Expr] = []
    stack = [definition.body]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply) and e.fn == "add":
            stack += [e.args[1], e.args[0]]
        else:
            found.append(e)
    return tuple(found)


@remembered
def single_terms(definition: Definition) -> tuple[int, ...]:
    """Inputs that are a term by themselves, read at the compute's own point and in no other term."""
    found = terms(definition)
    reads = Counter(n.slot for e in found for n in postorder(e) if isinstance(n, Read))
    alone = [e for e in found if isinstance(e, Read) and reads_at_own_point(e, definition.shape)]
    return tuple(e.slot for e in alone if reads[e.slot] == 1)


def _sum(a: Tensor, b: Tensor, name: str) -> Compute:
    own = own_indices(a.shape)
    reads = (Read(Slot(n, t.shape, t.dtype), own) for n, t in enumerate((a, b)))
    return build(a.shape, Apply("add", tuple(reads)), (a, b), name)

"""What stands outermost in an expression: by it most tensors are no pattern, before anything is unified.

(x - m) / sqrt(v + e) * w + b    ->    terms 2: product 2 / 1: (terms 2, under: sqrt: terms 2), anything
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neoflow.expr.ir import Apply, Const, Expr, Read, Reduce
from neoflow.expr.tensor import Tensor
from neoflow.mapping.unify import SUMS, Unifier, is_product, terms_of, whole

DEPTHS = (1, 4)
"""Operations from the outermost on by which it is told what may be a pattern: by few first."""
MOST_TERMS = 16
"""Terms of a sum that are told apart."""


@dataclass(frozen=True)
class Outside:
    """kind: an operation; "any" of what may be anything. parts: those that something is of, as far as they are told.
    counts: how many these are. is_exact: whether there may be no more. role: over or under the line of a quotient."""

    kind: str
    parts: frozenset[Outside] = field(default_factory=frozenset)
    counts: tuple[int, ...] = ()
    is_exact: bool = True
    role: str = ""


ANY = Outside("any")


def may_be(wanted: Outside, found: Outside) -> bool:
    """Whether a pattern may be found in another expression, by what stands outermost in both."""
    if wanted.kind == "any":
        return True
    if (wanted.kind, wanted.role) != (found.kind, found.role):
        return False
    if not found.is_exact:  # more than are told apart
        return not wanted.is_exact
    if wanted.is_exact and wanted.counts != found.counts:
        return False
    if any(a > b for a, b in zip(wanted.counts, found.counts, strict=True)):
        return False
    return all(any(may_be(a, b) for b in found.parts) for a in wanted.parts)


def outside(t: Tensor, unifier: Unifier, depth: int) -> Outside:
    """Of a tensor, so many operations deep: of a pattern, where the unifier has its holes."""
    return _Outsides(unifier).of(whole(t), depth)


@dataclass(frozen=True)
class _Outsides:
    unifier: Unifier

    def of(self, e: Expr, depth: int, role: str = "") -> Outside:
        key = (e, depth, role)
        known = self.unifier.looked.outsides
        found = known.get(key)
        if not isinstance(found, Outside):
            found = known[key] = self._told(e, depth, role)
        return found

    def _told(self, e: Expr, depth: int, role: str) -> Outside:
        head = self.unifier.head(e)
        if self._is_hole(head):
            return ANY
        if isinstance(head, Apply) and head.fn in SUMS:
            return self._terms(head, depth, role)
        if isinstance(head, Const) or is_product(head) or (isinstance(head, Reduce) and head.op == "sum"):
            p = self.unifier.product(head)
            over = [t for t in p.over if not self.unifier.is_attribute(t)]
            if len(over) != 1 or p.under:
                parts = [*(self.of(t, depth - 1, "over") for t in over)] if depth else []
                parts += [self.of(t, depth - 1, "under") for t in p.under] if depth else []
                return Outside("product", _known(parts), (len(over), len(p.under)), True, role)
            if over[0] is not e and self.unifier.head(over[0]) is not head:
                return self.of(over[0], depth, role)  # but for its constant factor
        if isinstance(head, Reduce):
            body = [self.of(self.unifier.flat(head).body, depth - 1)] if depth else []
            return Outside(head.op, _known(body), (), True, role)
        if isinstance(head, Apply):
            of = [self.of(head.args[0], depth - 1)] if depth and len(head.args) == 1 else []
            return Outside(head.fn, _known(of), (), True, role)
        return Outside(type(head).__name__, role=role)

    def _terms(self, head: Expr, depth: int, role: str) -> Outside:
        """Of a sum, its terms those of all sums in it."""
        waiting, terms = [t for _, t in terms_of(head)], list[Expr]()
        while waiting and len(waiting) + len(terms) <= MOST_TERMS:
            t = waiting.pop()
            inner = self.unifier.head(t)
            if isinstance(inner, Apply) and (inner.fn in SUMS or inner.fn == "neg"):
                waiting += [u for _, u in terms_of(inner)]
            else:
                terms.append(t)
        if waiting:
            return Outside("terms", is_exact=False, role=role)
        if not depth:
            return Outside("terms", counts=(0,), is_exact=not self.unifier.holes, role=role)
        parts = [self.of(t, depth - 1) for t in terms]
        is_exact = all(p is not ANY or self.unifier.is_attribute(t) for p, t in zip(parts, terms, strict=True))
        return Outside("terms", _known(parts), (len(terms),), is_exact or not self.unifier.holes, role)

    def _is_hole(self, e: Expr) -> bool:
        return isinstance(e, Read) and (e.source in self.unifier.holes or e.source in self.unifier.attributes)


def _known(parts: Sequence[Outside]) -> frozenset[Outside]:
    return frozenset(p for p in parts if p is not ANY)

"""Proofs that two terms are equal, for every value of their symbols that meets the guards.

    same        both sides, inlined to nested sums of products, are one text
    bijection   their products cancel by bijections of bound axes, over sets of places with symbolic extents
    axioms      Z3 derives one side from the other by the properties of families

They are tried in that order; what none of them answers is refused. The weakest guards are exact for the second: what
is left of the places of products, projected on the symbols, says where the sides may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neoflow.superopt import places
from neoflow.superopt.agree import Comparison
from neoflow.superopt.forms import name
from neoflow.superopt.places import LibraryError, Places, Unknown
from neoflow.superopt.sums import Inliner, point
from neoflow.superopt.term import Term, Variable, equal_shapes, fits, parts, symbols, variables
from neoflow.superopt.text import sum_text
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Statement:
    """That two terms are equal at all values of their symbols that meet the guards, where the source has a meaning.

    guards: in the words of the integer set library, empty for none.
    """

    source: Term
    target: Term
    guards: str = ""

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*symbols(self.source), *symbols(self.target))))

    def sizes(self) -> Places:
        """The values of the symbols at which the source has a meaning."""
        offsets = places.all_of(places.at_least(name(s)) for s in self.symbols)
        return fits(self.source) & offsets

    def assumed(self) -> Places:
        """Where the rule is said to hold."""
        return self.sizes() & places.where(self.guards, self.symbols) if self.guards else self.sizes()


@dataclass(frozen=True)
class Proof:
    """tier: `same`, `bijection` or `axioms`. is_exact: bits are kept. steps: pairs of products that were compared."""

    tier: str
    is_exact: bool
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.tier}{', exact' if self.is_exact else ''}"


def prove(statement: Statement, derive: Callable[[Statement], Verdict] | None = None) -> Proof | Verdict:
    """The proof of a statement, or why there is none. derive: the third tier."""
    try:
        assumed = statement.assumed()
    except LibraryError:
        return Verdict(False, f"the guards `{statement.guards}` are no condition on its symbols")
    if assumed.is_empty():
        return Verdict(False, "no sizes meet its guards")
    wrong = typed(statement, assumed)
    if wrong is not None:
        return wrong
    try:
        tier, steps, left = _compared(statement, assumed, False)
        if left.is_empty():
            try:
                is_exact = _compared(statement, assumed, True)[2].is_empty()
            except Unknown:
                is_exact = False
            return Proof(tier, is_exact, steps)
        reason = f"its sides may differ where {places.conditions(left, assumed) or 'its guards hold'}"
    except Unknown as unknown:
        reason = f"not known: {unknown}"
    derived = derive(statement) if derive is not None else Verdict(False, "")
    return Proof("axioms", False) if derived.ok else Verdict(False, reason)


def typed(statement: Statement, assumed: Places) -> Verdict | None:
    """Why the sides are not of one shape, or the target has no meaning, at some sizes of the source."""
    new = variables(statement.target).keys() - variables(statement.source).keys()
    if new:
        return Verdict(False, f"its target reads {', '.join(sorted(new))}, which its source does not")
    read = {v for t in (statement.source, statement.target) for v in parts(t) if isinstance(v, Variable)}
    if len({v.name for v in read}) < len(read):
        return Verdict(False, "a variable has two shapes")
    same = equal_shapes(statement.source.shape, statement.target.shape)
    if not assumed.is_subset(same):
        return Verdict(False, "its sides are not of one shape")
    if not assumed.is_subset(fits(statement.target)):
        return Verdict(False, "its target has no meaning at some sizes of its source")
    return None


def weakest(statement: Statement) -> str | Verdict:
    """The weakest guards beside those of a statement under which its second tier proves it, as text.

    They contain what makes the target meaningful. A refusal where there are none.
    """
    assumed = statement.assumed()
    same = equal_shapes(statement.source.shape, statement.target.shape) & fits(statement.target)
    try:
        left = _compared(statement, assumed & same, False)[2]
    except Unknown as unknown:
        return Verdict(False, f"not known: {unknown}")
    allowed = (assumed & same) - left
    if allowed.is_empty():
        return Verdict(False, "its sides may differ at all sizes")
    return places.conditions(allowed, statement.sizes())


def _compared(statement: Statement, assumed: Places, is_ordered: bool) -> tuple[str, int, Places]:
    """The tier, its steps, and the sizes at which the sides may differ."""

    def question() -> tuple[str, int, Places]:
        indices, ranges = point(statement.source)
        here = assumed & ranges
        inliner = Inliner(is_ordered)
        a, b = (inliner.value(t, indices, here) for t in (statement.source, statement.target))
        if sum_text(a, here) == sum_text(b, here):
            return "same", 0, places.nowhere()
        comparison = Comparison()
        left = comparison.differ(a, b, here)
        return "bijection", comparison.steps, places.onto(left, statement.symbols) & assumed

    return places.limited(question)

"""The extents of axes, from the shapes of the tensors they index: what index notation leaves unsaid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.guards import guarded_reads
from neoflow.expr.ir import Axis, Expr, Read, postorder, substitute

UNKNOWN = 1 << 40
"""The extent of an axis whose extent is still to be found."""


@dataclass(frozen=True)
class Use:
    """`index` stands in dimension `position` of `read`; `guarded`: under a condition on axes it uses."""

    index: Expr
    read: Read
    position: int
    guarded: bool

    @property
    def extent(self) -> int:
        """The extent of the dimension read."""
        return self.read.source.shape[self.position]


class Disagreement(Exception):
    """Two plain uses give one axis two extents."""

    def __init__(self, axis: Axis, first: Use, second: Use):
        self.axis, self.first, self.second = axis, first, second


class Empty(Exception):
    """Not even 0 for this axis keeps the index inside."""

    def __init__(self, axis: Axis, use: Use):
        self.axis, self.use = axis, use


def uses(body: Expr) -> list[Use]:
    """Every index that is arithmetic of axes alone; data-dependent ones say nothing."""
    found = []
    for read, guards in guarded_reads(body):
        for position, index in enumerate(read.indices):
            if index.free and not any(isinstance(n, Read) for n in postorder(index)):
                guarded = any(not g.free.isdisjoint(index.free) for g in guards)
                found.append(Use(index, read, position, guarded))
    return found


def infer(axes: Iterable[Axis], found: list[Use], known: dict[Axis, int]) -> dict[Axis, int]:
    """Extents of `axes`, in order of authority, repeated until nothing more follows:

    1. what is `known` beforehand;
    2. an axis that stands alone as an index has the extent of that dimension;
    3. the largest extent with which every index `2*p + r` stays inside, once the other axes are known;
    4. an axis that stands alone, under a condition on it, wherever it is used, as in 2.

    Axes without an answer are missing from the result. Raises `Disagreement`, `Empty`.
    """
    result = dict(known)
    pending = [a for a in axes if a not in result]
    for a in list(pending):
        _settle(a, [u for u in found if u.index is a and not u.guarded], result)
    while True:
        pending = [a for a in pending if a not in result]
        before = len(result)
        waiting = {a: [u for u in found if a in u.index.free and not u.guarded] for a in pending}
        ready = {a: [u for u in us if u.index.free.issubset({a, *result})] for a, us in waiting.items()}
        settled = [a for a in pending if ready[a] and len(ready[a]) == len(waiting[a])]
        for a in settled or [a for a in pending if ready[a]][:1]:
            limits = [n for u in ready[a] if (n := _largest(u, a, result)) is not None]
            if limits:
                result[a] = min(limits)
        if len(result) == before:
            for a in pending:
                everywhere = [u for u in found if a in u.index.free]
                if all(u.index is a for u in everywhere):
                    _settle(a, everywhere, result)
        if len(result) == before:
            return result


def _settle(a: Axis, plain: list[Use], result: dict[Axis, int]) -> None:
    for use in plain:
        if use.extent != result.setdefault(a, use.extent):
            raise Disagreement(a, plain[0], use)


def _largest(use: Use, a: Axis, known: dict[Axis, int]) -> int | None:
    """The largest extent of `a` that keeps the index inside, the other axes being known; None: no limit."""
    terms, constant = affine.linear(use.index)
    if all(isinstance(t, Axis) for t in terms):
        low = high = constant
        for t, k in affine.over_axes((terms, constant)).items():
            if t is not a:
                reach = k * (known[t] - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
        k = terms.get(a, 0)
        room = use.extent - 1 - high if k > 0 else low
        if low < 0 or high >= use.extent:
            raise Empty(a, use)
        return room // abs(k) + 1 if k else None
    return _search(use, a, known)


def _search(use: Use, a: Axis, known: dict[Axis, int]) -> int | None:
    """As `_largest` for what is not linear: bisection on intervals."""

    def inside(n: int) -> bool:
        sized: dict[Expr, Expr] = {t: Axis(t.ident, n if t is a else known[t], t.name, t.where) for t in use.index.free}
        low, high = affine.bounds(affine.simplify(substitute(use.index, sized)))
        return low >= 0 and high < use.extent

    if not inside(1):
        raise Empty(a, use)
    good, bad = 1, 2
    while inside(bad):
        good, bad = bad, 2 * bad
        if bad > UNKNOWN:
            return None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if inside(middle) else (good, middle)
    return good

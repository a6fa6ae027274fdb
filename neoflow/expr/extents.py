"""The extents of axes, from the shapes of the tensors they index: what index notation leaves unsaid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.guards import Guards, guarded_reads
from neoflow.expr.ir import Axis, Const, Expr, Read, postorder, substitute

UNKNOWN = 1 << 40
"""The extent of an axis whose extent is still to be found."""


@dataclass(frozen=True)
class Use:
    """`index` stands in dimension `position` of `read`; guards: the conditions on axes it uses under which it does."""

    index: Expr
    read: Read
    position: int
    guards: Guards

    @property
    def guarded(self) -> bool:
        return bool(self.guards)

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
                own = tuple(g for g in guards if not g.free.isdisjoint(index.free))
                found.append(Use(index, read, position, own))
    return found


def infer(axes: Iterable[Axis], found: list[Use], known: dict[Axis, int]) -> dict[Axis, int]:
    """Extents of `axes`, in order of authority, repeated until nothing more follows:

    1. what is `known` beforehand;
    2. an axis that stands alone as an index has the extent of that dimension, or less where another index of that axis
       only (`t + 1`) needs it;
    3. the largest extent with which every index `2*p + r` stays inside, once the other axes are known;
    4. an axis that stands alone, but under conditions on it, as in 2, if with this extent all that is read under
       conditions can be met.

    So the reads of an axis intersect, and those under a condition on it do not constrain it.

    Axes without an answer are missing from the result. Raises `Disagreement`, `Empty`.
    """
    result = dict(known)
    pending = [a for a in axes if a not in result]
    for a in list(pending):
        _settle(a, [u for u in found if u.index is a and not u.guarded], result)
        if a in result:
            _shrink(a, [u for u in found if u.index.free == {a} and not u.guarded], result)
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
                alone = [u for u in everywhere if u.index is a]
                if len(alone) == len(everywhere):
                    _settle(a, alone, result)
                elif len({u.extent for u in alone}) == 1 and all(
                    _can_be_met(u, a, alone[0].extent) for u in everywhere
                ):
                    result[a] = alone[0].extent
        if len(result) == before:
            return result


def _settle(a: Axis, plain: list[Use], result: dict[Axis, int]) -> None:
    for use in plain:
        if use.extent != result.setdefault(a, use.extent):
            raise Disagreement(a, plain[0], use)


def _shrink(a: Axis, own: list[Use], result: dict[Axis, int]) -> None:
    """Make the extent of `a` the largest with which its indices stay inside; one that never does is refused later."""
    for use in own:
        try:
            most = _largest(use, a, result)
        except Empty:
            continue
        if most is not None:
            result[a] = min(result[a], most)


def _can_be_met(use: Use, a: Axis, extent: int) -> bool:
    """Whether the conditions of a use can hold when `a` has this extent."""
    sized: dict[Expr, Expr] = {a: Axis(a.ident, extent, a.name, a.where)}
    conditions = (affine.simplify(substitute(g, sized)) for g in use.guards)
    return not any(isinstance(c, Const) and not c.value for c in conditions)


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

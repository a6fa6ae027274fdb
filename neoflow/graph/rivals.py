"""Operators that may become one in more than one way: which of these ways, by what all of them would take.

Projections of one input by several weights share the input with each other, and each its weight with those of other
inputs; branches of one image are as wide as each other or not. So groups overlap, along different dimensions, and what
is in one of them is in none of the others any more. All that overlap are compared with each other: for each order in
which they may be taken, each group of what those before it left, the seconds of all operators, as one or alone.

What would be found first is taken unless another order takes surely less. Groups that fill a grid, each row of it and
each column, are not compared: when the rows are taken the columns still can be, of rows.
Source: parallel fusion, section 4.3 of NeoFlow, which takes the first dimension.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neoflow.expr.ir import same
from neoflow.expr.tensor import Compute
from neoflow.graph import cost
from neoflow.graph.edit import Editor, Place
from neoflow.graph.rewrite import Match, Rewrite, Site
from neoflow.verdict import Verdict

MOST = 5
"""Groups that are compared at most, in 120 orders; of more the first is taken."""
SHOWN = 4
"""Operators of a group that are named."""
Links = tuple[Compute, ...]


@dataclass(frozen=True)
class Timed(Verdict):
    """A verdict by time: seconds of the operators each by itself, and as one with what is copied for it. price: seconds
    that a byte of memory has to cost for it to be no, which is never where no more bytes are alive at once."""

    before: float = 0.0
    after: float = 0.0
    price: float = math.inf


class Parallel(Rewrite):
    """A rewrite that makes one operator of several; a match is where they are found, and these in order."""

    @abstractmethod
    def groups(self, editor: Editor, t: Compute) -> Iterator[Links]:
        """The groups that t is found in, whatever they take."""

    @abstractmethod
    def timed(self, editor: Editor, links: Links) -> Verdict:
        """Whether some of a group, two at least in its order, may and should be one; `Timed` where they should."""

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """The groups of which t is the first by number."""
        for group in self.groups(editor, t):
            if _first(editor, group) is t:
                yield Match((t, *group))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return self.timed(editor, match.tensors[1:])


@dataclass(frozen=True, eq=False)
class Group:
    """Operators that a rewrite would make one."""

    rewrite: Parallel
    links: Links

    def __str__(self) -> str:
        names = ", ".join(t.name for t in self.links[:SHOWN])
        more = f" and {len(self.links) - SHOWN} more" if len(self.links) > SHOWN else ""
        return f"{self.rewrite} of {names}{more}"


def compared(editor: Editor, rewrites: Sequence[Rewrite], site: Site) -> Verdict:
    """Whether a legal place is to be taken, all that the rewrites of its pass would do instead in view."""
    if not isinstance(site.rewrite, Parallel):
        return Verdict(True, site.reason)
    own = site.match.tensors[1:]
    found = _overlapping(editor, [r for r in rewrites if isinstance(r, Parallel)], Group(site.rewrite, own))
    if found is None:
        return Verdict(True, f"{site.reason}; more than {MOST} groups overlap, of which it is the first")
    if len(found) == 1 or _is_grid(found):
        return Verdict(True, site.reason)
    return _judged(editor, found, own, site.reason)


def _judged(editor: Editor, found: list[Group], own: Links, reason: str) -> Verdict:
    seconds = _Seconds(editor, found)
    orders = [*itertools.permutations(found)]
    usual = orders[0]
    best = min(orders, key=seconds.of)
    if not cost.is_worth(seconds.of(usual), seconds.of(best)):
        best = usual
    (at,) = (g for g in found if same(g.links, own))
    least = {g: min(seconds.of(o) for o in orders if o[0] is g) for g in found}
    what = f"the {len(seconds.all)} operators of groups that overlap"
    if at in seconds.taken(best):
        others = (f", {1e6 * least[g]:.1f} with {g}" for g in found if g not in seconds.taken(best))
        return Verdict(True, f"{reason}; {what} take about {1e6 * seconds.of(best):.1f} us so{''.join(others)}")
    instead = " and ".join(map(str, seconds.taken(best)))
    told = f"{what} would take about {1e6 * least[at]:.1f} us so, and {1e6 * seconds.of(best):.1f} with {instead}"
    return Verdict(False, told)


class _Seconds:
    """What all operators of some groups take, for an order in which these are taken."""

    def __init__(self, editor: Editor, groups: Sequence[Group]):
        self.editor = editor
        self.all: dict[Compute, None] = dict.fromkeys(t for g in groups for t in g.links)
        self._known: dict[tuple[Parallel, Links], Verdict] = {}
        self._found: dict[tuple[Group, ...], tuple[float, tuple[Group, ...]]] = {}

    def of(self, order: tuple[Group, ...]) -> float:
        return self._taking(order)[0]

    def taken(self, order: tuple[Group, ...]) -> tuple[Group, ...]:
        """The groups of which nothing is missing when it is their turn, and that pay."""
        return self._taking(order)[1]

    def _taking(self, order: tuple[Group, ...]) -> tuple[float, tuple[Group, ...]]:
        if order not in self._found:
            left, seconds, whole = dict(self.all), 0.0, list[Group]()
            for g in order:
                links = tuple(t for t in g.links if t in left)
                verdict = self._timed(g.rewrite, links) if len(links) > 1 else None
                if not isinstance(verdict, Timed) or not verdict.ok:
                    continue
                seconds += verdict.after
                left = {t: None for t in left if t not in set(links)}
                whole += [g] if len(links) == len(g.links) else []
            seconds += sum(cost.seconds(t.definition) for t in left)
            self._found[order] = seconds, tuple(whole)
        return self._found[order]

    def _timed(self, rewrite: Parallel, links: Links) -> Verdict:
        key = rewrite, links
        if key not in self._known:
            self._known[key] = rewrite.timed(self.editor, links)
        return self._known[key]


def _overlapping(editor: Editor, rewrites: Sequence[Parallel], own: Group) -> list[Group] | None:
    """A group and all that pay and overlap with it, or with one that does, in the order in which they would be found;
    None where there are too many."""
    found: dict[tuple[str, Links], tuple[tuple[Place, int, int], Group]] = {}
    stack, seen = [own.links], set[tuple[str, Links]]()
    while stack:
        for t in stack.pop():
            for place, rewrite in enumerate(rewrites):
                for links in rewrite.groups(editor, t):
                    key = rewrite.name, links
                    if key in seen:
                        continue
                    seen.add(key)
                    if not rewrite.timed(editor, links).ok:
                        continue
                    if len(found) == MOST:
                        return None
                    first = _first(editor, links)
                    number = next(n for n, g in enumerate(rewrite.groups(editor, first)) if same(g, links))
                    found[key] = (editor.place(first), place, number), Group(rewrite, links)
                    stack.append(links)
    return [group for _, group in sorted(found.values(), key=lambda ranked: ranked[0])]


def _first(editor: Editor, links: Links) -> Compute:
    return min(links, key=editor.number)


def _is_grid(groups: Sequence[Group]) -> bool:
    """Whether some groups share nothing with each other, the rest neither, and each of these one with each of those."""
    first = set(groups[0].links)
    rows = [set(g.links) for g in groups if g is groups[0] or first.isdisjoint(g.links)]
    columns = [set(g.links) for g in groups if g is not groups[0] and not first.isdisjoint(g.links)]
    cells = {t for g in groups for t in g.links}
    are_apart = all(sum(map(len, part)) == len(cells) == len({t for g in part for t in g}) for part in (rows, columns))
    return are_apart and all(len(row & column) == 1 for row in rows for column in columns)

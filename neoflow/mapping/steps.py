"""A chain as the steps of a recurrence: what is the same in all of them becomes its body.

From the tensors of the chain back to what they read, a column at a time, each the tensors of all steps:

    w, w, w                     fixed
    h', h[0], h[1]              carried, where h[0], h[1], h[2] is a column of the body; h' is its first value
    f(..), f(..), f(..)         of one definition: a tensor of the body
    x[0], x[1], x[2]            anything else: the rows of one tensor
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neoflow.expr.recurrence import Recurrence, Run
from neoflow.expr.tensor import Compute, Constant, Placeholder, Tensor, topological
from neoflow.mapping.chains import LEAST, Chains
from neoflow.mapping.columns import Column, Rows, holes, kind, row_of
from neoflow.verdict import Verdict

MOST = 4096
"""Tensors of a body."""


@dataclass
class Steps:
    """A run, and the column behind each tensor of its body that is computed. verdict: why there is none."""

    verdict: Verdict
    run: Run | None = None
    members: dict[Tensor, Column] = field(default_factory=dict)
    root: Column = ()

    def is_like(self, other: Steps) -> bool:
        """Whether the bodies of two that were found have as many tensors and are given as much."""
        assert self.run is not None and other.run is not None
        mine, its = self.run.recurrence, other.run.recurrence
        return len(self.members) == len(other.members) and len(mine.placeholders) == len(its.placeholders)


def steps_of(chain: Column, rows: Rows, chains: Chains) -> Steps:
    """The recurrence of a chain, whose first step may be some before the first of the chain, and its last some later.

    Where a step carries what the chain does not have, the chain of that is taken instead.
    """
    steps, loose = _from([chain], rows)
    others = (_longer(column[1:], chains.of(column[-1])) for column in loose)
    for found in (steps, *(_from([other], rows)[0] for other in others)):
        if found.verdict.ok:
            return _further(found, rows, chains)
    roots = [chain]
    while loose and len(roots[0]) > LEAST:
        first = [c[1:] for c in loose]
        cut = [r[:-1] for r in roots]
        roots = [*cut, *(c for c in first if all(_key(c) != _key(r) for r in cut))]
        steps, loose = _from(roots, rows)
    return steps


def _further(steps: Steps, rows: Rows, chains: Chains) -> Steps:
    """The same recurrence with more steps, where later tensors go on as its last step did."""
    while True:
        more = (_from([(*steps.root, t)], rows)[0] for t in chains.next_of(steps.root))
        found = next((s for s in more if s.verdict.ok and s.is_like(steps)), None)
        if found is None:
            return steps
        steps = found


def _longer(column: Column, chain: Column | None) -> Column:
    """A column and what follows in the chain that its last tensor is in."""
    if chain is None:
        return column
    last = next(n for n, t in enumerate(chain) if t is column[-1])
    return (*column, *chain[last + 1 :])


def _from(roots: list[Column], rows: Rows) -> tuple[Steps, list[Column]]:
    """The recurrence in which columns follow from those before; what else is carried, where that is not known."""
    while True:
        if len(roots[0]) < LEAST:
            return Steps(Verdict(False, f"it has fewer than {LEAST} steps")), []
        walk = _Walk(roots)
        if walk.refusal:
            return Steps(Verdict(False, walk.refusal)), []
        if walk.earlier is None:
            break
        if len(roots) > 1:
            return Steps(Verdict(False, "its first step is not found")), []
        roots = [(walk.earlier, *roots[0])]
    loose = [c for c in walk.loose if _is_chain(c)]
    if loose:
        return Steps(Verdict(False, "what its steps carry is not found")), loose
    return walk.closed(rows), []


def _is_chain(column: Column) -> bool:
    """Whether it is a first value and then tensors of one definition, which are not rows of another recurrence."""
    rest = column[1:]
    is_alike = len({t.definition for t in rest if isinstance(t, Compute)}) == 1
    return is_alike and all(isinstance(t, Compute) for t in rest) and row_of(rest[0]) is None


class _Walk:
    """Through the columns of a recurrence. stand: tensor of the body by column."""

    def __init__(self, roots: Sequence[Column]):
        self.roots, self.size = roots, len(roots[0])
        self.stand: dict[tuple[int, ...], Tensor] = {}
        self.members: dict[Tensor, Column] = {}
        self.fixed: dict[Tensor, Placeholder] = {}
        self.slices: dict[Placeholder, Column] = {}
        self.carried: dict[Placeholder, tuple[Column, Tensor]] = {}
        self.after: dict[tuple[int, ...], Column] = {}
        """by the columns of the body without their last tensors"""
        self.loose: list[Column] = []
        self.earlier: Tensor | None = None
        self.refusal = ""
        for r in roots:
            self.after[_key(r[:-1])] = r
            if not all(_is_alike(t, r[0]) for t in r):
                self.refusal = f"{r[0].name} is not computed alike in all steps"
        self._go()
        if not self.refusal and self.earlier is None:
            self._settle()

    def _go(self) -> None:
        stack = list(reversed(self.roots))
        entered: set[tuple[int, ...]] = set()
        while stack and not self.refusal and self.earlier is None:
            column = stack[-1]
            key = _key(column)
            if key in self.stand:
                stack.pop()
                continue
            is_root = any(column is r for r in self.roots)
            if not is_root and not self._is_member(column):
                stack.pop()
                self._leaf(column, key)
                continue
            inputs = list(zip(*(t.inputs for t in column), strict=True))
            if key not in entered:
                entered.add(key)
                self.after[_key(column[:-1])] = column
                if len(entered) > MOST:
                    self.refusal = f"its steps have more than {MOST} tensors"
            waiting = [c for c in inputs if _key(c) not in self.stand]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            first = column[0]
            assert isinstance(first, Compute)
            made = Compute(
                first.definition, tuple(self.stand[_key(c)] for c in inputs), first.name, first.axis_names, first.where
            )
            self.stand[key], self.members[made] = made, column

    def _is_member(self, column: Column) -> bool:
        """Whether its tensors are computed alike from what differs. Rows are not: they are those of a whole."""
        first = column[0]
        if _key(column[1:]) in self.after or not isinstance(first, Compute) or all(t is first for t in column):
            return False
        return bool(first.inputs) and all(isinstance(t, Compute) and t.definition is first.definition for t in column)

    def _leaf(self, column: Column, key: tuple[int, ...]) -> None:
        first = column[0]
        if all(t is first for t in column):
            if isinstance(first, Constant):
                self.stand[key] = first
                return
            if first not in self.fixed:
                self.fixed[first] = _like(first)
            self.stand[key] = self.fixed[first]
            return
        stand = _like(first)
        self.stand[key], self.slices[stand] = stand, column  # of one shape: slots of one definition are

    def _settle(self) -> None:
        """Which of the columns that are not computed alike are carried."""
        computed = {_key(c) for c in self.members.values()}
        for stand, column in list(self.slices.items()):
            of = self.after.get(_key(column[1:]))
            if of is None:
                self.loose.append(column)
            elif _key(of) not in computed:
                self.refusal = f"{column[1].name} is carried, and not computed in every step"
            elif _is_alike(column[0], of[0]) and any(of is r for r in self.roots):
                self.earlier = column[0]
                return
            else:
                self.carried[stand] = (of, column[0])
                del self.slices[stand]

    def closed(self, rows: Rows) -> Steps:
        """The recurrence, once all that is carried is known."""
        if not self.carried:
            return Steps(Verdict(False, "a step needs nothing of the one before it"))
        inside = {t for c in self.members.values() for t in c}
        backwards = sum(_falls(c) for c in self.slices.values()) > len(self.slices) / 2
        stacks: list[Tensor] = []
        for column in self.slices.values():
            whole = rows.whole(column[::-1] if backwards else column)
            if whole is None:
                return Steps(Verdict(False, f"nothing tells how {column[0].name} goes on from step to step"))
            stacks.append(whole)
        given = [first for _, first in self.carried.values()]
        if any(t in inside for t in topological([*given, *stacks, *self.fixed])):
            return Steps(Verdict(False, "what its steps are given follows from some of them"))
        body = {_key(c): t for t, c in self.members.items()}
        then = tuple(body[_key(c)] for c, _ in self.carried.values())
        recurrence = Recurrence(
            tuple(self.carried), tuple(self.slices), tuple(self.fixed.values()), then, self.size, backwards
        )
        run = Run(recurrence, (*given, *stacks, *self.fixed))
        return Steps(
            Verdict(True, f"{self.size} equal steps of {len(self.members)} tensors"), run, self.members, self.roots[0]
        )


def _is_alike(a: Tensor, b: Tensor) -> bool:
    return isinstance(a, Compute) and isinstance(b, Compute) and a.definition is b.definition


def _key(column: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(t.uid for t in column)


def _like(t: Tensor) -> Placeholder:
    return Placeholder(t.shape, t.dtype, t.name, t.where)


def _falls(column: Column) -> bool:
    """Whether the steps read a whole from its last row to its first."""
    computes = [t for t in column if isinstance(t, Compute)]
    if len(computes) < 2 or kind(computes[0].definition) != kind(computes[1].definition):
        return False
    pairs = zip(*(sum(holes(t.definition), ()) for t in computes[:2]), strict=True)
    return any(a > b for a, b in pairs)

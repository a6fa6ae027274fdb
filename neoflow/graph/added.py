"""Terms of a sum that are one linear function of different tensors: what they are of is added first.

The gradient of what several operators read is a sum of one gradient each, and these often end alike: by a convolution's
windows put together, a padding cut off, a product with the same weights. Added before, all of that is done once, and
sums of contractions come to stand beside each other (`batch`). Only rounding differs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Const, Expr, Read, Reduce, Select, Slot, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.normal import is_normal
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import cost
from neoflow.graph.batch import spared
from neoflow.graph.chains import single_terms, terms
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, own_indices
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

DEEP = 8
"""Functions of functions that are looked through."""
DTYPES = ("float32", "float64")
"""Sums that are no narrower in memory than in registers."""

Column = tuple[Tensor, ...]
"""In the same place of each term."""


@dataclass(frozen=True)
class AddFirst(Rewrite):
    """Terms of a sum that are one linear function of different tensors become that function of their sum.

    a[i] = f(x)[i];  b[i] = f(y)[i];  d[i] = a[i] + b[i]    ->    s[j] = x[j] + y[j];  d[i] = f(s)[i]
    """

    name: str = "add first"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """The sum and the terms, those of one function together."""
        if len(terms(t.definition)) < 2:
            return
        inputs = editor.inputs(t)
        groups: dict[Hashable, list[Compute]] = {}
        for n in single_terms(t.definition):
            c = inputs[n]
            if isinstance(c, Compute) and editor.is_read_once(c):
                groups.setdefault(c.definition, []).append(c)
        for group in groups.values():
            if len(group) > 1 and _differing(editor, tuple(group)):
                yield Match((t, *group))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        t, *members = match.tensors
        column = tuple(members)
        before = _apart(column)
        spared = before - _Cone(editor, t, column).first(column)
        if spared < cost.SURE * before:
            return Verdict(False, f"to add first would spare about {spared * 1e6:.1f} us of {before * 1e6:.1f}")
        return Verdict(True, f"one of it for {len(members)}, of their sum, spares about {spared * 1e6:.1f} us")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, *members = match.tensors
        one = _Cone(editor, t, tuple(members)).function(tuple(members))
        given = editor.inputs(t)
        gone = {n for n in single_terms(t.definition) if any(given[n] is c for c in members)}
        rest = [e for e in terms(t.definition) if not (isinstance(e, Read) and e.slot in gone)]
        if not rest:
            return {t: one}
        own = Read(Slot(len(given), one.shape, one.dtype), own_indices(t.shape))
        return {t: build(t.shape, reduce(_add, [*rest, own]), (*given, one), t.name)}


class _Cone:
    """Terms that are alike as far down as they are, and what it takes to add them there."""

    def __init__(self, editor: Editor, root: Compute, members: tuple[Compute, ...]):
        self.editor, self.root = editor, root
        self.inside: set[Tensor] = {root}
        self._seconds: dict[Column, float] = {}
        self._made: dict[Column, Tensor] = {}
        self._depth: dict[Column, int] = {members: 0}
        self._uses: dict[Column, int] = {members: 1}
        stack: list[Column] = [members]
        while stack:
            column = stack.pop()
            self.inside.update(column)
            for c in self.below(column):
                self._uses[c] = self._uses.get(c, 0) + 1
                if c not in self._depth:
                    self._depth[c] = self._depth[column] + 1
                    stack.append(c)

    def below(self, column: Column) -> tuple[Column, ...]:
        """What they are a linear function of; nothing where they are none."""
        if self._depth[column] == DEEP:
            return ()
        return _differing(self.editor, column)

    def first(self, column: Column) -> float:
        """Seconds of the function of the sum, and of that sum beyond what is computed anyway."""
        first = column[0]
        assert isinstance(first, Compute)
        return cost.seconds(first.definition) + sum(self._more(c) / self._uses[c] for c in self.below(column))

    def _more(self, column: Column) -> float:
        """Seconds of a sum beyond those of its terms; less than nothing where the terms are spared."""
        if column not in self._seconds:
            found = self.first(column) if self._is_pushed(column) else self._apart(column)
            self._seconds[column] = found - _alone(column)
        return self._seconds[column]

    def _apart(self, column: Column) -> float:
        """Seconds of these and their sum; contractions that nothing else reads add what there is where they end, or
        are one sum."""
        first, links = column[0], [t for t in column if isinstance(t, Compute)]
        if not (_are_alike(column) and is_contraction(links[0].definition) and self._is_private(column)):
            return _apart(column)
        chain = _alone(column) + cost.moved((len(column) - 1) * first.nbytes)
        return chain - spared(self.editor, links, (self.root,))

    def _is_pushed(self, column: Column) -> bool:
        """Whether it is better to add what these are a function of."""
        if not (self.below(column) and self._is_private(column)):
            return False
        return self.first(column) < self._apart(column)

    def added(self, column: Column) -> Tensor:
        """The sum of these, added where that takes least."""
        if column not in self._made:
            self._made[column] = self.function(column) if self._is_pushed(column) else _sum(column)
        return self._made[column]

    def function(self, column: Column) -> Compute:
        """Of the sum of what these are the function of."""
        first = column[0]
        assert isinstance(first, Compute)
        inputs = list(self.editor.inputs(first))
        columns = zip(*(self.editor.inputs(t) for t in column if isinstance(t, Compute)), strict=True)
        for n, c in enumerate(columns):
            if any(t is not c[0] for t in c):
                inputs[n] = self.added(c)
        return Compute(first.definition, tuple(inputs), first.name, first.axis_names, first.where)

    def _is_private(self, column: Column) -> bool:
        """Whether nothing else reads them."""
        editor = self.editor
        return not any(editor.is_root(t) or any(r not in self.inside for r in editor.each_reader(t)) for t in column)


def _alone(column: Column) -> float:
    """Seconds of tensors before they are added; none of what is computed where it is read, or is there."""
    return sum(cost.seconds(t.definition) for t in column if isinstance(t, Compute) and _reduces(t))


def _apart(column: Column) -> float:
    """Seconds in which tensors are computed and added: those that do not reduce, where they are read."""
    first, read = column[0], column
    if isinstance(first, Compute) and not _reduces(first):
        read = tuple(i for t in column if isinstance(t, Compute) for i in dict.fromkeys(t.inputs))
    return _alone(column) + cost.copied(sum(t.nbytes for t in read) + first.nbytes)


def _reduces(t: Compute) -> bool:
    return isinstance(t.definition.body, Reduce)


def _are_alike(column: Column) -> bool:
    """Whether all are computes of one definition."""
    definitions = {t.definition if isinstance(t, Compute) else None for t in column}
    return len(definitions) == 1 and None not in definitions


def _differing(editor: Editor, column: Column) -> tuple[Column, ...]:
    """Of computes that are one linear function of what differs among their operands, these; otherwise nothing."""
    first = column[0]
    computes = [t for t in column if isinstance(t, Compute)]
    if not isinstance(first, Compute) or not _are_alike(column) or first.dtype not in DTYPES:
        return ()
    columns = tuple(zip(*map(editor.inputs, computes), strict=True))
    differ = frozenset(n for n, c in enumerate(columns) if any(t is not c[0] for t in c))
    if not differ or any(columns[n][0].dtype not in DTYPES for n in differ):
        return ()
    return tuple(dict.fromkeys(columns[n] for n in sorted(differ))) if is_linear(first.definition, differ) else ()


@remembered
def is_linear(definition: Definition, slots: frozenset[int]) -> bool:
    """Whether a sum of what some slots read gives the sum of what a body gives of each: f(x + y) = f(x) + f(y)."""
    return is_normal(definition) and _degrees(definition.body, slots)[definition.body] == 1


def _degrees(body: Expr, slots: frozenset[int]) -> dict[Expr, int | None]:
    """Of each node, by what is read from these slots: 0 does not depend on it, 1 is linear, None is neither."""
    found: dict[Expr, int | None] = {}
    for e in postorder(body):
        parts = [found[c] for c in e.children]
        is_free = all(d == 0 for d in parts)
        match e:
            case Read():
                found[e] = (1 if e.slot in slots else 0) if is_free else None
            case Apply(fn="add" | "sub") | Select():
                branches = e.args if isinstance(e, Apply) else (e.then, e.other)
                either = [found[b] for b in branches if not (isinstance(b, Const) and b.value == 0)]
                is_alike = len(set(either)) == 1 and (isinstance(e, Apply) or found[e.cond] == 0)
                found[e] = 0 if is_free else either[0] if is_alike else None
            case Apply(fn="mul"):
                found[e] = None if None in parts or parts == [1, 1] else max(d or 0 for d in parts)
            case Apply(fn="div"):
                found[e] = parts[0] if parts[1] == 0 else None
            case Apply(fn="neg"):
                found[e] = parts[0]
            case Reduce(op="sum"):
                found[e] = parts[0]
            case _:
                found[e] = 0 if is_free else None
    return found


def _add(a: Expr, b: Expr) -> Expr:
    return Apply("add", (a, b))


def _sum(column: Column) -> Compute:
    own = own_indices(column[0].shape)
    reads: Sequence[Expr] = [Read(Slot(n, t.shape, t.dtype), own) for n, t in enumerate(dict.fromkeys(column))]
    slot = {t: read for t, read in zip(dict.fromkeys(column), reads, strict=True)}
    return build(column[0].shape, reduce(_add, [slot[t] for t in column]), tuple(slot), column[0].name)

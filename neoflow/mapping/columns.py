"""Columns: the tensors that stand for each other in the steps of a recurrence written out, one a step.

x[0], x[1], x[2]         rows of one tensor: a column that is that tensor
f(x[0]), f(x[1]), ...    computed of all steps at once: f over x, with one more axis, the first
"""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.expr import dtype as dt
from neoflow.expr.close import build, define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Apply, Axis, Binder, Const, Expr, Read, Scatter, Slot
from neoflow.expr.memo import remembered
from neoflow.expr.shape.join import concat, stack
from neoflow.expr.tensor import Compute, Definition, Parameter, Tensor

Column = tuple[Tensor, ...]

MOST_STACKED = 1024
"""Tensors that are put side by side when nothing tells how one follows from the other."""


@remembered
def holes(definition: Definition) -> tuple[tuple[int, ...], ...]:
    """The numbers that each read of a definition has in place of an index."""
    return tuple(tuple(int(i.value) for i in r.indices if isinstance(i, Const)) for r in definition.reads)


@remembered
def kind(definition: Definition) -> tuple[int, ...]:
    """Equal for definitions that differ in such numbers alone."""
    if not any(holes(definition)):
        return (definition.uid,)
    return (_without_numbers(definition).uid, *definition.shape, *map(len, holes(definition)))


@remembered
def _without_numbers(definition: Definition) -> Expr:
    """The body with zeros for these numbers: no program, but equal for all of a kind."""
    new: dict[Expr, Expr] = {}
    for e in definition.nodes:
        children = tuple(new[c] for c in e.children)
        if isinstance(e, Read):
            children = tuple(Const(0, i.dtype) if isinstance(i, Const) else i for i in children)
        new[e] = over(e, children)
    return new[definition.body]


def over(e: Expr, children: tuple[Expr, ...]) -> Expr:
    """A node over other children."""
    return e.rebuild(children) if children else e


def row_of(t: Tensor) -> tuple[Tensor, int] | None:
    """(x, n) of a tensor that is x[n]; None of any other."""
    if not isinstance(t, Compute) or not isinstance(t.definition.body, Read):
        return None
    first, *rest = t.definition.body.indices or (None,)
    own = t.definition.axes
    is_row = isinstance(first, Const) and len(rest) == len(own) and all(a is b for a, b in zip(rest, own, strict=True))
    return (t.inputs[0], int(first.value)) if is_row and isinstance(first, Const) else None


def row(x: Tensor, n: int, name: str) -> Tensor:
    """x[n]"""
    shape = x.shape[1:]
    slot = Slot(0, x.shape, x.dtype)
    own = tuple(Axis(k, extent) for k, extent in enumerate(shape))
    return Compute(Definition(shape, Read(slot, (Const(n, dt.INDEX), *own)), (slot,)), (x,), name)


def progression(numbers: Sequence[int]) -> tuple[int, int] | None:
    """(first, step) of numbers that follow each other by one step."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    return (numbers[0], step) if all(n == numbers[0] + k * step for k, n in enumerate(numbers)) else None


_FEW = 2
"""Steps at the ends of a column that may be apart."""


class Rows:
    """What columns are, of a graph in which some recurrences were found.

    before: by a tensor of all steps of what is carried, the same before each step, and what it is at first.
    """

    def __init__(self) -> None:
        self.before: dict[Tensor, tuple[Tensor, Tensor]] = {}

    def whole(self, column: Column) -> Tensor | None:
        """One tensor whose rows are those of a column, and how it comes by them; None where nothing says how."""
        found = self.pieced(column)
        if found is not None:
            return found
        is_apart = len(set(column)) == len(column) and not any(isinstance(t, Parameter) for t in column)
        alike = len({(t.shape, t.dtype) for t in column}) == 1
        return stack(column) if is_apart and alike and len(column) <= MOST_STACKED else None

    def pieced(self, column: Column) -> Tensor | None:
        """The same, of a column that is known but for a few at its ends."""
        found = self.known(column)
        if found is not None:
            return found
        is_row = [row_of(t) is not None for t in column]
        if not any(is_row):
            return None
        first, last = is_row.index(True), len(column) - is_row[::-1].index(True)
        middle = self.known(column[first:last])
        if middle is None or len(column) - (last - first) > _FEW:
            return None
        parts = [stack(column[:first])] if first else []
        parts += [middle, *([stack(column[last:])] if last < len(column) else [])]
        return concat(parts)

    def known(self, column: Column) -> Tensor | None:
        """The same, without putting tensors side by side."""
        found = self._rows(column)
        return self._all_steps(column) if found is None else found

    def _rows(self, column: Column) -> Tensor | None:
        rows = [row_of(t) for t in column]
        source = next((r[0] for r in rows if r is not None), None)
        if source is None:
            return None
        if all(r is not None and r[0] is source for r in rows):
            return _every(source, [r[1] for r in rows if r is not None])
        if source not in self.before:
            return None
        stacked, first = self.before[source]
        numbers: list[int] = []
        for t, r in zip(column, rows, strict=True):
            if r is not None and r[0] is source and r[1] + 1 < stacked.shape[0]:
                numbers.append(r[1] + 1)
            elif t is first:
                numbers.append(0)
            else:
                return None
        return _every(stacked, numbers)

    def _all_steps(self, column: Column) -> Tensor | None:
        """Equal computes but for the rows they read, all at once."""
        first = column[0]
        if not isinstance(first, Compute):
            return None
        computes = [t for t in column if isinstance(t, Compute)]
        if len(computes) < len(column) or len({kind(t.definition) for t in computes}) > 1:
            return None
        inputs: list[Tensor] = []
        stretched: set[int] = set()
        for n, parts in enumerate(zip(*(t.inputs for t in computes), strict=True)):
            if any(p is not parts[0] for p in parts):
                whole = self.known(parts)
                if whole is None:
                    return None
                stretched.add(n)
                inputs.append(whole)
            else:
                inputs.append(parts[0])
        body = _stretched([t.definition for t in computes], stretched)
        if body is None:
            return None
        return build((len(column), *first.shape), body, tuple(inputs), first.name)


def _every(x: Tensor, numbers: Sequence[int]) -> Tensor | None:
    """The rows of x that have these numbers."""
    way = progression(numbers)
    if way is None or not way[1]:
        return None
    first, step = way
    if (first, step, len(numbers)) == (0, 1, x.shape[0]):
        return x
    shape = (len(numbers), *x.shape[1:])
    axes = unnamed_axes(shape, None)
    return define(shape, axes, Read(x, (_at(axes[0], first, step), *axes[1:])), x.name)


def _at(axis: Axis, first: int, step: int) -> Expr:
    return Apply("add", (Apply("mul", (axis, Const(step, axis.dtype))), Const(first, axis.dtype)))


def _stretched(definitions: Sequence[Definition], slots: set[int]) -> Expr | None:
    """The body of definitions of one kind with a first axis more, which goes through them, and the reads of `slots`
    along it."""
    first, size = definitions[0], len(definitions)
    if isinstance(first.body, Scatter):
        return None
    own = Axis(0, size)
    axes = {a: Axis(a.ident + 1, a.extent) for a in (*first.axes, *first.reduction_axes)}
    new: dict[Expr, Expr] = {}
    at = {r: n for n, r in enumerate(first.reads)}
    for e in first.nodes:
        if isinstance(e, Axis):
            new[e] = axes[e]
            continue
        children = [new[c] for c in e.children]
        if isinstance(e, Read):
            numbers = zip(*(holes(d)[at[e]] for d in definitions), strict=True)
            for place in (n for n, i in enumerate(e.indices) if isinstance(i, Const)):
                way = progression(next(numbers))
                if way is None:
                    return None
                if way[1]:
                    children[place] = _at(own, *way)
            shape, position = e.source.shape, e.slot
            if position in slots:
                children.insert(0, own)
                shape = (size, *shape)
            new[e] = Read(Slot(position, shape, e.dtype), tuple(children))
        elif isinstance(e, Binder):
            new[e] = e.rebind(tuple(axes[a] for a in e.axes), tuple(children))
        else:
            new[e] = over(e, tuple(children))
    return new[first.body]

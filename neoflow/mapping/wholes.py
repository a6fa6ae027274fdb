"""What is left of each step of a recurrence that was found, done for all steps at once.

f(y[0]), f(y[1]), f(y[2])                       rows of f over y
select(t == 0, y[0], select(t == 1, ...))       y
y[0] + y[1] + y[2] + z                          sum[t](y[t]) + z
"""

from __future__ import annotations

from functools import reduce

from neoflow.expr import dsl
from neoflow.expr.ir import Apply, Const, Expr, Read, Select, same
from neoflow.expr.memo import remembered
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.graph import Graph
from neoflow.mapping.chains import LEAST
from neoflow.mapping.columns import Rows, row, row_of


def gathered(graph: Graph, rows: Rows) -> list[Tensor]:
    """The roots of a graph, what follows from rows done for all of them."""
    while True:
        edit = _alike(graph, rows)
        for t in graph.order:
            if isinstance(t, Compute) and len(t.inputs) >= LEAST and t not in edit:
                other = _stacked(t, rows)
                if other is None:
                    other = _added(t)
                if other is not None:
                    edit[t] = other
        if not edit:
            return list(graph.roots)
        graph = graph.with_roots(replaced(graph.roots, edit.get))


def _alike(graph: Graph, rows: Rows) -> dict[Tensor, Tensor]:
    """Computes that are equal but for the rows they read, as rows of one."""
    groups: dict[tuple[object, ...], dict[int, Tensor]] = {}
    at = {t: row_of(t) for t in graph.order}
    for t in graph.order:
        if not isinstance(t, Compute) or at[t] is not None:
            continue
        read = [at[i] for i in t.inputs]
        base = next((r[1] for r in read if r is not None), None)
        if base is None:
            continue
        key = (
            t.definition.uid,
            *((0, i.uid) if r is None else (1, r[0].uid, r[1] - base) for i, r in zip(t.inputs, read, strict=True)),
        )
        groups.setdefault(key, {})[base] = t
    edit: dict[Tensor, Tensor] = {}
    for group in groups.values():
        numbers = sorted(group)
        if len(numbers) < LEAST or numbers[-1] - numbers[0] != len(numbers) - 1:
            continue
        column = tuple(group[n] for n in numbers)
        whole = rows.known(column)
        if whole is not None:
            edit |= {t: row(whole, n, t.name) for n, t in enumerate(column)}
    return edit


def _stacked(t: Compute, rows: Rows) -> Tensor | None:
    """The tensor whose rows lie beside each other in t."""
    places = _places(t.definition)
    if places is None or not any(row_of(i) for i in t.inputs):
        return None
    return rows.pieced(tuple(t.inputs[n] for n in places))


@remembered
def _places(definition: Definition) -> tuple[int, ...] | None:
    """The slots of a stack along the first axis, in their order; None of what is no stack."""
    if not definition.shape:
        return None
    own, size = definition.axes, definition.shape[0]
    found: dict[int, int] = {}
    e = definition.body
    while isinstance(e, Select):
        match e.cond:
            case Apply(fn="eq", args=(a, Const(value=n))) if a is own[0]:
                slot = _slot(e.then, own[1:])
            case _:
                return None
        if slot is None or n in found:
            return None
        found[int(n)] = slot
        e = e.other
    if len(found) == size - 1 and (slot := _slot(e, own[1:])) is not None:
        (last,) = set(range(size)).difference(found)
        found[last] = slot
    if sorted(found) != list(range(size)):
        return None
    return tuple(found[n] for n in range(size))


def _slot(e: Expr, axes: tuple[Expr, ...]) -> int | None:
    return e.slot if isinstance(e, Read) and same(e.indices, axes) else None


def _added(t: Compute) -> Tensor | None:
    """A sum of rows as a sum over what they are rows of."""
    slots = _terms(t.definition)
    if slots is None:
        return None
    by_source: dict[Tensor, list[int]] = {}
    rest: list[Tensor] = []
    for i in (t.inputs[n] for n in slots):
        found = row_of(i)
        if found is None:
            rest.append(i)
        else:
            by_source.setdefault(found[0], []).append(found[1])
    sums: list[Tensor] = []
    for source, numbers in by_source.items():
        is_run = len(set(numbers)) == len(numbers) == max(numbers) - min(numbers) + 1
        if is_run and len(numbers) >= LEAST:
            part = source if len(numbers) == source.shape[0] else source[min(numbers) : max(numbers) + 1]
            sums.append(dsl.sum(part, axis=0))
        else:
            rest += [row(source, n, source.name) for n in numbers]
    return reduce(lambda a, b: a + b, [*sums, *rest]) if sums else None


@remembered
def _terms(definition: Definition) -> tuple[int, ...] | None:
    """The slots that are added element by element; None of what is no such sum."""
    found: list[int] = []
    stack = [definition.body]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply) and e.fn == "add":
            stack.extend(e.args[::-1])
            continue
        slot = _slot(e, definition.axes)
        if slot is None:
            return None
        found.append(slot)
    return tuple(found) if len(found) >= LEAST else None

"""`nf.scan`: a recurrence written as what one step of it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow.caller import caller
from neoflow.errors import ExpressionError, Location, shown
from neoflow.expr.constant import constant
from neoflow.expr.dsl import logical_or, select
from neoflow.expr.memo import memo_of
from neoflow.expr.recurrence import ONCE, Recurrence, Run
from neoflow.expr.replace import replaced
from neoflow.expr.shape.join import stack
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Constant, Placeholder, Tensor, topological

Nest = Any
"""A tensor, or tuples, lists and dicts of nests; None and an empty tuple hold nothing."""


def scan(
    step: Callable[[Nest, Nest], tuple[Nest, Nest]],
    init: Nest,
    xs: Nest = None,
    length: int | None = None,
    reverse: bool = False,
    until: Callable[[Nest], Tensor] | None = None,
) -> tuple[Nest, Nest]:
    """A recurrence: `last, ys = nf.scan(step, init, xs)` with `new, y = step(old, x)`, one step a first index of xs.

    init: what the first step is given as `old`: a tensor, or a tuple, list or dict of them; what a step returns as
    `new` has the same structure, shapes and dtypes. xs: tensors whose first axis are the steps; `x` has them without
    it. length: the number of steps, which xs tell where there are any. reverse: the last step first; `ys` still has
    each in its place. until: `until(old)`, a bool of one element: from the first step on before which it is true,
    nothing changes any more and the rows of ys are zeros. step is called once, with placeholders; it may read any
    tensor besides. last: what the last step returned as `new`; ys: every `y` with one more axis, the first.

    The meaning is the loop: h = step(step(init, xs[0]), xs[1]) ...; gradients of every order are recurrences again, and
    the time to compile does not depend on the number of steps. Raises `ExpressionError`.
    """
    where = caller()
    first, of_state = _flat(init, "init", where)
    rows, of_row = _flat(xs, "xs", where)
    if until is not None:
        return _until(step, init, xs, length, reverse, until)
    steps = _steps(rows, length, where)
    carried = tuple(Placeholder(t.shape, t.dtype, t.name, where) for t in first)
    slices = tuple(Placeholder(t.shape[1:], t.dtype, t.name, where) for t in rows)
    result = _pair(step(of_state(carried), of_row(slices)), where)
    then, of_then = _flat(result[0], "what a step carries on", where)
    of_step, of_ys = _flat(result[1], "the row of ys", where)
    _check(carried, then, _layout(of_state(carried)), _layout(of_then(then)), where)
    own = (*carried, *slices)
    fixed, roots = _closed(own, [*then, *of_step], where)
    recurrence = Recurrence(carried, slices, tuple(fixed.values()), tuple(roots[: len(then)]), steps, reverse, where)
    run = Run(recurrence, (*first, *rows, *fixed))
    ys = [run.stacked(t, y.name) for t, y in zip(roots[len(then) :], of_step, strict=True)]
    return of_state([run.last(n) for n in range(len(carried))]), of_ys(ys)


def unrolled(
    step: Callable[[Nest, Nest], tuple[Nest, Nest]],
    init: Nest,
    xs: Nest = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Nest, Nest]:
    """What `nf.scan` means, every step written out: the same arguments, the same values.

    Few steps of large operations may run faster so, since what lies between steps is seen; it compiles in a time that
    grows with the number of steps. Raises `ExpressionError`.
    """
    where = caller()
    first, of_state = _flat(init, "init", where)
    rows, of_row = _flat(xs, "xs", where)
    steps = _steps(rows, length, where)
    state, found = of_state(first), list[list[Tensor]]()
    of_ys: Callable[[Sequence[Tensor]], Nest] = of_row
    for n in reversed(range(steps)) if reverse else range(steps):
        then, row = _pair(step(state, of_row([t[n] for t in rows])), where)
        given, _ = _flat(state, "init", where)
        flat, of_then = _flat(then, "what a step carries on", where)
        _check(given, flat, _layout(state), _layout(of_then(flat)), where)
        state, (own, of_ys) = then, _flat(row, "the row of ys", where)
        found.append(own)
    found = found[::-1] if reverse else found
    return state, of_ys([stack(column) for column in zip(*found, strict=True)])


def _pair(result: Any, where: Location | None) -> tuple[Nest, Nest]:
    """What a step returns."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ExpressionError(
            f"a step returns a pair, what it carries on and its row of ys, not {shown(result)}", where
        )
    return result


def _until(
    step: Callable[[Nest, Nest], tuple[Nest, Nest]],
    init: Nest,
    xs: Nest,
    length: int | None,
    reverse: bool,
    until: Callable[[Nest], Tensor],
) -> tuple[Nest, Nest]:
    """The same recurrence, which also carries whether it has ended, and then changes nothing."""
    where = caller()

    def going(old: Nest, x: Nest) -> tuple[Nest, Nest]:
        state, before = old
        ended = until(state)
        if not isinstance(ended, Tensor) or ended.dtype != "bool" or ended.size != 1:
            raise ExpressionError(f"until gives a bool of one element, not {shown(ended)}", where)
        ended = logical_or(before, reshape(ended, ()))
        result = _pair(step(state, x), where)
        then, of_then = _flat(result[0], "what a step carries on", where)
        kept, _ = _flat(state, "init", where)
        rows, of_rows = _flat(result[1], "the row of ys", where)
        _check(kept, then, _layout(state), _layout(of_then(then)), where)
        stays = [select(ended, a, b) for a, b in zip(kept, then, strict=True)]
        return (of_then(stays), ended), of_rows([select(ended, 0, t) for t in rows])

    (last, _), ys = scan(going, (init, constant(False)), xs, length, reverse)
    return last, ys


def _flat(nest: Nest, what: str, where: Location | None) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Nest]]:
    """The tensors of a nest in order, and what puts others in their places. Arrays and numbers become constants."""
    found: list[Tensor] = []

    def shape(part: Nest) -> Callable[[list[Tensor]], Nest]:
        if part is None:
            return lambda rest: None
        if isinstance(part, dict):
            named = {k: shape(v) for k, v in part.items()}
            return lambda rest: {k: make(rest) for k, make in named.items()}
        if isinstance(part, (tuple, list)):
            parts, kind = [shape(p) for p in part], type(part)
            if hasattr(part, "_fields"):
                return lambda rest: kind(*(make(rest) for make in parts))
            return lambda rest: kind(make(rest) for make in parts)
        if not isinstance(part, Tensor):
            try:
                part = constant(part)
            except ExpressionError:
                raise ExpressionError(f"{what} holds tensors, not {shown(part)}", where) from None
        found.append(part)
        return lambda rest: rest.pop(0)

    make = shape(nest)
    return found, lambda tensors: make(list(tensors))


def _layout(nest: Nest) -> Any:
    """A nest without its tensors, to be compared."""
    if isinstance(nest, dict):
        return {k: _layout(v) for k, v in nest.items()}
    if isinstance(nest, (tuple, list)):
        return [_layout(p) for p in nest]
    return None if nest is None else "tensor"


def _steps(rows: Sequence[Tensor], length: int | None, where: Location | None) -> int:
    if length is not None and (isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1):
        raise ExpressionError(f"length={shown(length)} is no number of steps: an integer > 0", where)
    for t in rows:
        if not t.rank:
            raise ExpressionError(
                f"xs has the scalar {t.name}; the first axis of each of its tensors are the steps", where
            )
        if t.shape[0] != (length or rows[0].shape[0]):
            told = f"length={length}" if length is not None else f"{rows[0].name} has {rows[0].shape[0]}"
            raise ExpressionError(f"{t.name} of xs has {t.shape[0]} steps, but {told}", where)
    if rows:
        return rows[0].shape[0]
    if length is None:
        raise ExpressionError("a scan without xs needs length=, the number of its steps", where)
    return int(length)


def _check(carried: Sequence[Tensor], then: Sequence[Tensor], old: Any, new: Any, where: Location | None) -> None:
    if old != new:
        raise ExpressionError(
            "a step carries on another structure than it was given: tuples, lists and dicts alike", where
        )
    for a, b in zip(carried, then, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ExpressionError(
                f"a step is given {a.name} as {a.dtype}{list(a.shape)} and carries it on as {b.dtype}{list(b.shape)}; "
                "both are to be alike (nf.cast, or another init)",
                where,
            )


def _closed(
    own: Sequence[Tensor], roots: Sequence[Tensor], where: Location | None
) -> tuple[dict[Tensor, Placeholder], list[Tensor]]:
    """What is the same in every step, the largest parts of it, by the placeholder that the body reads; the roots over
    these. Constants stay in the body, where they are seen."""
    order = topological(list(roots))
    moving: set[Tensor] = set(own)
    for t in order:
        if any(i in moving for i in t.inputs):
            moving.add(t)
    for t in order:
        if t in moving and ONCE in memo_of(t):
            raise ExpressionError(
                f"a step has {t.name} in training form: what drops elements or keeps statistics stands outside of it",
                where,
            )
    outer = dict.fromkeys(i for t in order if t in moving for i in t.inputs if i not in moving)
    outer |= dict.fromkeys(t for t in roots if t not in moving)
    fixed = {
        t: Placeholder(t.shape, t.dtype, t.name, where)
        for t in outer
        if not isinstance(t, Constant) and not _is_known(t)
    }
    return fixed, replaced(roots, fixed.get)


def _is_known(t: Tensor) -> bool:
    """Whether it follows from constants alone, and is small enough to be computed where it is read."""
    return t.size == 1 and not any(isinstance(s, Placeholder) for s in topological([t]))

"""Proves that every read stays inside its tensor, under the conditions of the selects around it.

Intervals first; where they do not suffice the whole question goes to the integer set library (islpy), which either
proves it or gives the axis values that leave the tensor. What the library cannot say (`i*j`) is tried point by point
where the points are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import ExpressionError, Location
from neoflow.expr import affine
from neoflow.expr.deep import Walk, run
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.guards import Guards, conjuncts, guarded_reads
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Scatter, Select, postorder, substitute
from neoflow.expr.memo import from_below, remembered
from neoflow.expr.printer import print_expr
from neoflow.expr.tensor import Definition

_OPERATIONS = 10_000_000
"""Most steps of the library for one question: 10,000 take 0.6 ms (Zen 4)."""
_POINTS = 1 << 20
"""Most points tried one by one for one question: 4 ms for a product of two axes (Zen 4), and 8 MiB a node."""

_LONG = 1000
"""Most nodes of an expression that the library is asked about, as a tree: its parser recurses."""
_DIVISION = 50
"""As many nodes a division counts: of twenty inside each other the library asks more than a second."""


class _Opaque(Exception):
    """An expression that is no quasi-affine function of axes, or a question too long for the library."""


_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}


def to_isl(e: Expr) -> str:
    """The expression in the library's notation, axes as `a<ident>`; `_Opaque` for what it cannot say, or too long."""
    if _written(e) > _LONG:
        raise _Opaque
    return run(_isl(e))


@from_below(attrgetter("children"))
def _written(e: Expr) -> int:
    """Nodes of an expression as `_isl` writes it out, up to `_LONG` and one more."""
    times = 2 if isinstance(e, Apply) and e.fn == "abs" else 1
    own = _DIVISION if isinstance(e, Apply) and e.fn in ("floordiv", "mod") else 1
    return min(_LONG, times * sum(map(_written, e.children)) + own - 1) + 1


def _isl(e: Expr) -> Walk[str]:
    match e:
        case Const(dtype="bool"):
            return "0 = 0" if e.value else "0 = 1"
        case Const():
            return str(e.value)
        case Axis():
            return f"a{e.ident}"
        case Apply() if e.fn in _COMPARE and e.args[0].dtype == dt.INDEX:
            return f"({(yield _isl(e.args[0]))}) {_COMPARE[e.fn]} ({(yield _isl(e.args[1]))})"
        case Apply(fn="and" | "or"):
            return f"(({(yield _isl(e.args[0]))}) {e.fn} ({(yield _isl(e.args[1]))}))"
        case Apply(fn="not"):
            return f"(not ({(yield _isl(e.args[0]))}))"
        case Apply() if e.dtype == dt.INDEX:
            args = []
            for a in e.args:
                args.append((yield _isl(a)))
            return _isl_arithmetic(e, args)
        case Select() if e.dtype == dt.INDEX:
            cond, then, other = (yield _isl(e.cond)), (yield _isl(e.then)), (yield _isl(e.other))
            return f"(({cond}) ? ({then}) : ({other}))"
        case Cast(dtype=dt.INDEX, arg=Cast() as narrow) if affine.keeps_value(narrow):
            return (yield _isl(narrow.arg))
    raise _Opaque


def _isl_arithmetic(e: Apply, args: list[str]) -> str:
    match e.fn:
        case "add" | "sub":
            return f"({args[0]} {'+' if e.fn == 'add' else '-'} {args[1]})"
        case "neg":
            return f"(-{args[0]})"
        case "mul" if isinstance(e.args[0], Const) or isinstance(e.args[1], Const):
            return f"({args[0]} * {args[1]})"
        case "floordiv" if isinstance(e.args[1], Const) and e.args[1].value > 0:
            return f"floor(({args[0]}) / {args[1]})"
        case "mod" if isinstance(e.args[1], Const) and e.args[1].value > 0:
            return f"(({args[0]}) mod {args[1]})"
        case "maximum" | "minimum":
            return f"{e.fn[:3]}({args[0]}, {args[1]})"
        case "abs" | "relu":
            return f"max({args[0]}, {'-' + args[0] if e.fn == 'abs' else 0})"
    raise _Opaque


def feasible(conditions: list[Expr], axes: list[Axis]) -> dict[Axis, int] | None:
    """Axis values that meet every condition, or None when there are none. Conditions it cannot say are left out.

    Raises `_Opaque` when the library does not answer within `_OPERATIONS`.
    """
    ordered = sorted(axes, key=lambda a: a.ident)
    conjunction = [f"0 <= a{a.ident} < {a.extent}" for a in ordered]
    for c in conditions:
        try:
            conjunction.append(f"({to_isl(c)})")
        except _Opaque:
            continue
    import islpy as isl  # only where intervals do not suffice

    text = f"{{ [{', '.join(f'a{a.ident}' for a in ordered)}] : {' and '.join(conjunction) or '0 = 0'} }}"
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()  # others use the library too, and count
    context.set_max_operations(_OPERATIONS)
    try:
        found = isl.Set.read_from_str(context, text)
        if found.is_empty():
            return None
        point = found.sample_point()
    except isl.Error:
        raise _Opaque from None
    finally:
        context.set_max_operations(0)
        context.reset_operations()
    space = isl.dim_type.set
    return {a: point.get_coordinate_val(space, n).to_python() for n, a in enumerate(ordered)}


def implied(condition: Expr, guards: list[Expr] | Guards) -> bool:
    """Whether `condition` holds for all values of its axes that meet `guards`."""
    condition = affine.simplify(condition)
    if isinstance(condition, Const):
        return bool(condition.value)
    axes = set(condition.free).union(*(g.free for g in guards))
    try:
        to_isl(condition)
        return feasible([*guards, *conjuncts(condition, False)], list(axes)) is None
    except _Opaque:
        return False


@dataclass(frozen=True)
class _Unproved:
    """An access whose index at `position` leaves its extent at axis values `at`, or (None) may leave it."""

    access: Expr
    position: int
    index: Expr
    extent: int
    at: dict[Axis, int] | None


@remembered
def _unproved(definition: Definition) -> _Unproved | None:
    """The first access that does not provably stay inside its tensor."""
    accesses: list[tuple[Expr, tuple[Expr, ...], tuple[int, ...], Guards]]
    accesses = [(r, r.indices, r.source.shape, g) for r, g in guarded_reads(definition.body)]
    if isinstance(definition.body, Scatter):
        accesses.append((definition.body, definition.body.targets, definition.shape, ()))
    for access, indices, shape, guards in accesses:
        for position, (index, extent) in enumerate(zip(indices, shape, strict=True)):
            low, high = affine.bounds(index)
            if (low >= 0 and high < extent) or _reads_data(index):
                continue
            try:
                values = _leaving(index, extent, guards)
            except _Opaque:
                return _Unproved(access, position, index, extent, None)
            if values is not None:
                return _Unproved(access, position, index, extent, values)
    return None


def check_bounds(
    definition: Definition, names: tuple[str, ...], sources: tuple[str, ...], where: Location | None
) -> None:
    """Raise `ExpressionError` unless every read of the definition provably stays inside its tensor."""
    found = _unproved(definition)
    if found is None:
        return
    names = tuple(name or f"axis{n}" for n, name in enumerate(names))
    access, index = (print_expr(e, names, sources) for e in (found.access, found.index))
    if found.at is None:
        raise ExpressionError(
            f"read `{access}` cannot be proved to stay inside its tensor: index {found.position} is `{index}`, which "
            f"is not + - * // % of axes and constants, and the extent is {found.extent}; guard it with nf.select and "
            "write it with those",
            where,
        )
    inside = ", ".join(f"{names[a.ident]}={v}" for a, v in sorted(found.at.items(), key=lambda i: i[0].ident))
    raise ExpressionError(
        f"read `{access}` leaves its tensor: index {found.position} is `{index}` = {_value(found.index, found.at)} at "
        f"{inside or 'every point'}, but the extent is {found.extent}; guard it with nf.select, or change the shapes",
        where,
    )


@from_below(attrgetter("children"))
def _reads_data(index: Expr) -> bool:
    """A data-dependent index is checked at run time."""
    return isinstance(index, Read) or any(map(_reads_data, index.children))


def _leaving(index: Expr, extent: int, guards: Guards) -> dict[Axis, int] | None:
    """Axis values that take `index` outside [0, extent) under the guards, or None when proved inside.

    Raises `_Opaque` when neither the library nor counting decides.
    """
    axes = list(set(index.free).union(*(g.free for g in guards)))
    try:
        to_isl(index)
        for outside in (Apply("lt", (index, affine.integer(0))), Apply("ge", (index, affine.integer(extent)))):
            values = feasible([*guards, outside], axes)
            if values is not None:
                return {a: v for a, v in values.items() if a in index.free}
        return None
    except _Opaque:
        return _counted(index, extent, guards)


def _counted(index: Expr, extent: int, guards: Guards) -> dict[Axis, int] | None:
    """`_leaving` by trying every point, for what is not quasi-affine (`i*j`) over few points."""
    decidable = [g for g in guards if all(isinstance(n, _COUNTABLE) for n in postorder(g))]
    axes = sorted(set(index.free).union(*(g.free for g in decidable)), key=lambda a: a.ident)
    points = math.prod(a.extent for a in axes)
    if points > _POINTS or not all(isinstance(n, _COUNTABLE) for n in postorder(index)):
        raise _Opaque
    at = dict(zip(axes, np.indices([a.extent for a in axes]).reshape(len(axes), -1), strict=True))
    values = values_at(index, at, points)
    bad = (values < 0) | (values >= extent)
    for guard in decidable:
        bad &= values_at(guard, at, points)
    if not bad.any():
        return None
    first = int(np.argmax(bad))
    return {a: int(v[first]) for a, v in at.items() if a in index.free}


_COUNTABLE = (Const, Axis, Apply, Select, Cast)


def values_at(root: Expr, at: dict[Axis, np.ndarray], points: int) -> np.ndarray:
    """The value of an expression without reads and reductions at every point."""
    known: dict[Expr, np.ndarray] = {axis: column for axis, column in at.items()}
    with np.errstate(all="ignore"):
        for e in postorder(root):
            match e:
                case Const():
                    known[e] = np.full(points, e.value, dt.NUMPY[e.dtype])
                case Apply():
                    known[e] = FUNCTIONS[e.fn].numpy(*(known[a] for a in e.args))
                case Select():
                    known[e] = np.where(*(known[c] for c in e.children))
                case Cast():
                    known[e] = known[e.arg].astype(dt.NUMPY[e.dtype])
    return known[root]


def _value(index: Expr, values: dict[Axis, int]) -> str:
    result = affine.simplify(substitute(index, {a: affine.integer(v) for a, v in values.items()}))
    return str(result.value) if isinstance(result, Const) else "?"

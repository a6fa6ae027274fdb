"""Proves that every read stays inside its tensor, under the conditions of the selects around it.

Intervals first; where they do not suffice the whole question goes to the integer set library (islpy), which either
proves it or gives the axis values that leave the tensor.
"""

from __future__ import annotations

from neoflow.errors import ExpressionError, Location
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Const, Definition, Expr, Read, Select, substitute
from neoflow.expr.printer import print_expr

Guards = tuple[Expr, ...]
_proved: set[Definition] = set()


def guarded_reads(body: Expr) -> list[tuple[Read, Guards]]:
    """Every read with the conditions under which it happens; a read met twice under the same conditions once."""
    found: dict[tuple[Read, Guards], None] = {}
    seen: set[tuple[Expr, Guards]] = set()
    stack: list[tuple[Expr, Guards]] = [(body, ())]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        node, guards = item
        if isinstance(node, Read):
            found[(node, guards)] = None
        if isinstance(node, Select):
            stack.append((node.cond, guards))
            stack.append((node.then, guards + conjuncts(node.cond, True)))
            stack.append((node.other, guards + conjuncts(node.cond, False)))
        elif isinstance(node, Apply) and node.fn in ("and", "or"):
            first, second = node.args  # the second is only evaluated where the first does not decide
            stack.append((first, guards))
            stack.append((second, guards + conjuncts(first, node.fn == "and")))
        else:
            stack.extend((c, guards) for c in node.children)
    return list(found)


def conjuncts(cond: Expr, positive: bool) -> Guards:
    """`cond` (or its negation) as a conjunction of simpler conditions."""
    if isinstance(cond, Apply):
        if cond.fn == "not":
            return conjuncts(cond.args[0], not positive)
        if cond.fn == ("and" if positive else "or"):
            return conjuncts(cond.args[0], positive) + conjuncts(cond.args[1], positive)
        opposite = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}.get(cond.fn)
        if not positive and opposite and cond.args[0].dtype == dt.INDEX:
            return (Apply(opposite, cond.args),)
    return (cond,) if positive else (Apply("not", (cond,)),)


class _Opaque(Exception):
    """An expression that is no quasi-affine function of axes."""


_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}


def to_isl(e: Expr) -> str:
    """The expression in the library's notation, axes as `a<ident>`; `_Opaque` for what it cannot say."""
    match e:
        case Const(dtype="bool"):
            return "0 = 0" if e.value else "0 = 1"
        case Const():
            return str(e.value)
        case Axis():
            return f"a{e.ident}"
        case Apply() if e.fn in _COMPARE and e.args[0].dtype == dt.INDEX:
            return f"({to_isl(e.args[0])}) {_COMPARE[e.fn]} ({to_isl(e.args[1])})"
        case Apply(fn="and" | "or"):
            return f"(({to_isl(e.args[0])}) {e.fn} ({to_isl(e.args[1])}))"
        case Apply(fn="not"):
            return f"(not ({to_isl(e.args[0])}))"
        case Apply() if e.dtype == dt.INDEX:
            args = [to_isl(a) for a in e.args]
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
    raise _Opaque


def feasible(conditions: list[Expr], axes: list[Axis]) -> dict[Axis, int] | None:
    """Axis values that meet every condition, or None when there are none. Conditions it cannot say are left out."""
    ordered = sorted(axes, key=lambda a: a.ident)
    parts = [f"0 <= a{a.ident} < {a.extent}" for a in ordered]
    for c in conditions:
        try:
            parts.append(f"({to_isl(c)})")
        except _Opaque:
            continue
    import islpy as isl  # only where intervals do not suffice

    text = f"{{ [{', '.join(f'a{a.ident}' for a in ordered)}] : {' and '.join(parts) or '0 = 0'} }}"
    found = isl.Set(text)
    if found.is_empty():
        return None
    point = found.sample_point()
    space = isl.dim_type.set
    return {a: point.get_coordinate_val(space, n).to_python() for n, a in enumerate(ordered)}


def implied(condition: Expr, guards: list[Expr] | Guards) -> bool:
    """Whether `condition` holds for all values of its axes that meet `guards`."""
    condition = affine.simplify(condition)
    if isinstance(condition, Const):
        return bool(condition.value)
    try:
        to_isl(condition)
    except _Opaque:
        return False
    axes = set(condition.free).union(*(g.free for g in guards))
    return feasible([*guards, *conjuncts(condition, False)], list(axes)) is None


def check_bounds(
    definition: Definition, names: tuple[str, ...], sources: tuple[str, ...], where: Location | None
) -> None:
    """Raise `ExpressionError` unless every read of the definition provably stays inside its tensor."""
    if definition in _proved:
        return
    for read, guards in guarded_reads(definition.body):
        for position, (index, extent) in enumerate(zip(read.indices, read.source.shape, strict=True)):
            low, high = affine.bounds(index)
            if (low >= 0 and high < extent) or _reads_data(index):
                continue
            values = _leaving(index, extent, guards)
            if values is None:
                continue
            inside = ", ".join(f"{names[a.ident]}={v}" for a, v in sorted(values.items(), key=lambda i: i[0].ident))
            reached = _value(index, values)
            raise ExpressionError(
                f"read `{print_expr(read, names, sources)}` leaves its tensor: index {position} is "
                f"`{print_expr(index, names, sources)}` = {reached} at {inside or 'every point'}, but the extent is "
                f"{extent}; guard it with nf.select, or change the shapes",
                where,
            )
    _proved.add(definition)


def _reads_data(index: Expr) -> bool:
    """A data-dependent index is checked at run time."""
    return isinstance(index, Read) or any(_reads_data(c) for c in index.children)


def _leaving(index: Expr, extent: int, guards: Guards) -> dict[Axis, int] | None:
    """Axis values that take `index` outside [0, extent) under the guards, or None when proved inside."""
    zero, end = affine.integer(0), affine.integer(extent)
    axes = set(index.free).union(*(g.free for g in guards))
    try:
        to_isl(index)
    except _Opaque:
        return dict.fromkeys(index.free, 0)
    for outside in (Apply("lt", (index, zero)), Apply("ge", (index, end))):
        values = feasible([*guards, outside], list(axes))
        if values is not None:
            return {a: v for a, v in values.items() if a in index.free}
    return None


def _value(index: Expr, values: dict[Axis, int]) -> str:
    result = affine.simplify(substitute(index, {a: affine.integer(v) for a, v in values.items()}))
    return str(result.value) if isinstance(result, Const) else "?"

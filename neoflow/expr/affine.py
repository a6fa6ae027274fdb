"""Integer index arithmetic: intervals, linear forms, and the simplifier of quasi-affine expressions.

Axes carry their extents, so what an expression can be is known from itself. `floordiv` and `mod` round down.
"""

from __future__ import annotations

import math
from typing import cast

from neoflow import dtype as dt
from neoflow.expr.functions import ARG_REDUCERS
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select, Slot
from neoflow.expr.memo import from_below

RECENT = 4096
"""Expressions simplified last that are kept alive, since a lowering builds the same ones again and again."""
INF = 1 << 62
"""Stands for "unbounded" in intervals."""


def integer(value: int) -> Const:
    return Const(value, dt.INDEX)


_RANGES = {d: dt.ENDS[d] for d in dt.INTS if d != dt.INDEX}
"""The values of the integer types whose arithmetic may wrap around before an index notices."""


def _integers(e: Expr) -> list[Expr]:
    return [c for c in e.children if not (isinstance(c, (Axis, Const)) or dt.is_float(c.dtype))]


def bounds(e: Expr) -> tuple[int, int]:
    """An interval (low, high), ends included, that holds every value of an integer expression."""
    match e:
        case Axis():
            return 0, e.extent - 1
        case Const():
            return int(e.value), int(e.value)
    return _bounds_of(e)


@from_below(_integers)
def _bounds_of(e: Expr) -> tuple[int, int]:
    found = _bounds(e)
    whole = _RANGES.get(e.dtype)
    return found if whole is None or (whole[0] <= found[0] and found[1] <= whole[1]) else whole


def _bounds(e: Expr) -> tuple[int, int]:
    match e:
        case Apply():
            return _apply_bounds(e.fn, [bounds(a) for a in e.args])
        case Select():
            (a, b), (c, d) = bounds(e.then), bounds(e.other)
            return min(a, c), max(b, d)
        case Cast() if dt.is_int(e.arg.dtype):
            return bounds(e.arg)
        case Reduce() if e.op in ("max", "min"):
            return bounds(e.body)
        case Reduce() if e.op in ARG_REDUCERS:
            return 0, e.axes[0].extent - 1
    return (0, 1) if e.dtype == "bool" else (-INF, INF)


def keeps_value(cast: Cast) -> bool:
    """Whether a cast from index arithmetic to a narrower integer type never wraps."""
    if cast.arg.dtype != dt.INDEX or not dt.is_int(cast.dtype):
        return False
    (low, high), whole = bounds(cast.arg), _RANGES.get(cast.dtype, (-INF, INF))
    return whole[0] <= low and high <= whole[1]


def _clamp(low: int, high: int) -> tuple[int, int]:
    return max(low, -INF), min(high, INF)


def _apply_bounds(fn: str, args: list[tuple[int, int]]) -> tuple[int, int]:
    (a, b), (c, d) = args[0], args[-1]
    match fn:
        case "add":
            return _clamp(a + c, b + d)
        case "sub":
            return _clamp(a - d, b - c)
        case "neg":
            return -b, -a
        case "mul":
            ends = (a * c, a * d, b * c, b * d)
            return _clamp(min(ends), max(ends))
        case "floordiv" if c == d != 0:
            low, high = min(a // c, b // c), max(a // c, b // c)
            return _clamp(low, high) if abs(a) < INF and abs(b) < INF else (-INF, INF)
        case "mod" if c == d and c > 0:
            return (a % c, b % c) if a // c == b // c and abs(a) < INF else (0, c - 1)
        case "floordiv":  # by zero it is 0; nothing grows, but what rounds down to -1
            most = max(abs(a), abs(b))
            is_positive, is_negative = (a >= 0 <= c) or (b <= 0 and d <= 0), (a >= 0 and d <= 0) or (b <= 0 <= c)
            return 0 if is_positive else -most, 0 if is_negative else most
        case "mod":  # towards zero from the divisor, or 0
            return min(c + 1, 0), max(min(d - 1, b) if a >= 0 <= c else d - 1, 0)
        case "maximum":
            return max(a, c), max(b, d)
        case "minimum":
            return min(a, c), min(b, d)
        case "abs":
            return (0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
        case "relu":
            return max(a, 0), max(b, 0)
        case "bitwise_and" if a >= 0 and c >= 0:
            return 0, min(b, d)
        case "bitwise_or" | "bitwise_xor" if a >= 0 and c >= 0:
            return 0, (1 << max(b, d).bit_length()) - 1
        case "bitwise_not":
            return -1 - b, -1 - a
        case "left_shift" if a >= 0 and c >= 0 and d < 62:
            return _clamp(0, b << d)
        case "right_shift" if c >= 0 and d < 62:
            return min(a, a >> c), max(b, b >> c)
    return -INF, INF


Linear = tuple[dict[Expr, int], int]
"""sum of coefficient * atom, plus a constant; an atom is an axis or what is not linear."""


_LINEAR = ("add", "sub", "neg", "mul")


def linear(e: Expr) -> Linear:
    """The linear form of an integer expression; atoms are left as they are."""
    return _linear(e) if isinstance(e, Apply) and e.fn in _LINEAR else _linear_leaf(e)


def _linear_args(e: Expr) -> list[Expr]:
    return [a for a in e.children if isinstance(a, Apply) and a.fn in _LINEAR]


@from_below(_linear_args)
def _linear(e: Apply) -> Linear:
    """Found once for each node, since an index is a DAG and may be a large tree."""
    return _applied(e, [linear(a) for a in e.args])


def _linear_leaf(e: Expr) -> Linear:
    match e:
        case Const():
            return {}, int(e.value)
        case Axis(extent=1):
            return {}, 0
    return {e: 1}, 0


def _applied(e: Apply, args: list[Linear]) -> Linear:
    match e.fn:
        case "add":
            return combine(args[0], args[1], 1)
        case "sub":
            return combine(args[0], args[1], -1)
        case "neg":
            return scale(args[0], -1)
    a, b = args
    if not a[0]:
        return scale(b, a[1])
    return ({e: 1}, 0) if b[0] else scale(a, b[1])


def scale(form: Linear, factor: int) -> Linear:
    return ({k: v * factor for k, v in form[0].items()} if factor else {}), form[1] * factor


def combine(a: Linear, b: Linear, sign: int = 1) -> Linear:
    """a + sign * b."""
    terms = dict(a[0])
    for atom, coef in b[0].items():
        total = terms.get(atom, 0) + sign * coef
        if total:
            terms[atom] = total
        else:
            terms.pop(atom, None)
    return terms, a[1] + sign * b[1]


def _term_order(item: tuple[Expr, int]) -> tuple:
    atom = item[0]
    return (0, abs(atom.ident)) if isinstance(atom, Axis) else (1, *_order(atom))


def _order(e: Expr) -> tuple:
    """A total order of closed expressions that looks at their structure only: that of their nodes, parents first."""
    order: list = []
    stack = [e]
    while stack:
        node = stack.pop()
        inner = node.children
        match node:
            case Const():
                order += (0, node.value)
            case Axis():
                order += (1, abs(node.ident))
            case Read():
                order += (2, node.slot if isinstance(node.source, Slot) else node.source.uid)
            case Apply():
                order += (3, node.fn)
            case Reduce():
                order += (3, node.op)
                inner = (*node.axes, node.body)
            case Cast():
                order += (3, node.dtype)
            case _:
                order += (3, "select")
        stack.extend(reversed(inner))
    return tuple(order)


def over_axes(form: Linear) -> dict[Axis, int]:
    """The coefficients of axes in a linear form."""
    return {a: k for a, k in form[0].items() if isinstance(a, Axis)}


def from_linear(form: Linear) -> Expr:
    """The expression of a linear form: positive terms first, axes in the order of their binding."""
    terms, constant = form
    ordered = sorted(terms.items(), key=_term_order) if len(terms) > 1 else list(terms.items())
    ordered = [t for t in ordered if t[1] > 0] + [t for t in ordered if t[1] < 0]
    result: Expr | None = None
    if constant > 0 and (not ordered or ordered[0][1] < 0):
        result, constant = integer(constant), 0
    for atom, coef in ordered:
        magnitude = abs(coef)
        if result is None:
            result = atom if coef == 1 else Apply("mul", (integer(coef), atom))
            continue
        term = atom if magnitude == 1 else Apply("mul", (integer(magnitude), atom))
        result = Apply("add" if coef > 0 else "sub", (result, term))
    if result is None:
        return integer(constant)
    if constant:
        result = Apply("add" if constant > 0 else "sub", (result, integer(abs(constant))))
    return result


def moved(e: Expr, step: int) -> Expr:
    """A canonical index, and so much more."""
    terms, constant = linear(e)
    return from_linear((terms, constant + step))


MOST_NODES = 1 << 16
"""Nodes of an index, written out as a tree: a canonical form orders trees."""

LONG = 1024
"""Nodes of an index from which a law is not followed that makes it longer by a quarter: it would again and again."""


def _made_of(e: Expr) -> list[Expr]:
    """The children that have children: of the others nothing is remembered."""
    return [c for c in e.children if c.children]


def written_nodes(e: Expr) -> int:
    """Nodes of an expression written out as a tree; of more than `MOST_NODES`, one more than that."""
    return _written_nodes(e) if e.children else 1


@from_below(_made_of)
def _written_nodes(e: Expr) -> int:
    return min(1 + sum(map(written_nodes, e.children)), MOST_NODES + 1)


def simplify(e: Expr) -> Expr:
    """A canonical equal of an integer index expression or of a condition over such; idempotent."""
    if e.children:
        return _simplified(e)
    return integer(0) if isinstance(e, Axis) and e.extent == 1 else e


@from_below(_made_of, is_final=True, kept=RECENT)
def _simplified(e: Expr) -> Expr:
    match e:
        case Read():
            return e.rebuild(tuple(simplify(i) for i in e.indices))
        case Apply() if e.dtype == dt.INDEX:
            args = tuple(map(simplify, e.args))
            found = _simplify_apply(e.fn, args, e)
            if found is e:
                return e
            nodes = 1 + sum(map(written_nodes, args))
            return found if written_nodes(found) <= max(LONG, nodes * 5 // 4) else Apply(e.fn, args, e.where)
        case Apply() if e.dtype == "bool" and all(a.dtype in (dt.INDEX, "bool") for a in e.args):
            return _simplify_condition(e.fn, tuple(simplify(a) for a in e.args), e)
        case Select():
            cond, then, other = (simplify(c) for c in e.children)
            if isinstance(cond, Const):
                return then if cond.value else other
            return then if then is other else Select(cond, then, other, e.where)
        case Cast() if e.dtype == e.arg.dtype:
            return simplify(e.arg)
        case Cast(dtype=dt.INDEX, arg=Cast() as narrow) if keeps_value(narrow):
            return simplify(narrow.arg)
    return e.rebuild(tuple(simplify(c) for c in e.children))


def _simplify_apply(fn: str, args: tuple[Expr, ...], e: Apply) -> Expr:
    if fn in ("add", "sub", "neg", "mul"):
        if fn == "add" and isinstance(args[0], Axis) and isinstance(args[1], Const) and args[1].value > 0:
            return Apply(fn, args)  # what most indices are is canonical
        return from_linear(_merge_div_mod(linear(Apply(fn, args))))
    if fn in ("floordiv", "mod") and isinstance(args[1], Const) and args[1].value != 0:
        divisor = int(args[1].value)
        numerator = linear(args[0])
        if divisor < 0:
            numerator, divisor = scale(numerator, -1), -divisor
            if fn == "mod":
                return from_linear(scale(_mod(numerator, divisor), -1))
        return from_linear(_merge_div_mod((_floordiv if fn == "floordiv" else _mod)(numerator, divisor)))
    if fn in ("maximum", "minimum"):
        (a, b), (c, d) = bounds(args[0]), bounds(args[1])
        if a >= d:
            return args[0 if fn == "maximum" else 1]
        if c >= b:
            return args[1 if fn == "maximum" else 0]
    return Apply(fn, args, e.where)


def _atom(fn: str, form: Linear, divisor: int) -> Linear:
    return {Apply(fn, (from_linear(form), integer(divisor))): 1}, 0


def _floordiv(form: Linear, c: int) -> Linear:
    """form // c: terms that c divides come out, common factors cancel, nested divisions merge."""
    if c == 1:
        return form
    terms, constant = form
    low, high = form_bounds(form)
    if low // c == high // c and abs(low) < INF:
        return {}, low // c
    rest = {a: r for a, k in terms.items() if (r := _residue(k, c))}
    outer: Linear = ({a: q for a, k in terms.items() if (q := (k - _residue(k, c)) // c)}, constant // c)
    constant %= c
    if not rest:
        return outer
    g = math.gcd(c, *rest.values())
    rest, constant, c = {a: k // g for a, k in rest.items()}, constant // g, c // g
    if c == 1:
        return combine(outer, (rest, constant), 1)
    low, high = form_bounds((rest, constant))
    if low // c == high // c and abs(low) < INF:
        return combine(outer, ({}, low // c), 1)
    if len(rest) == 1:
        ((atom, k),) = rest.items()
        if k == 1 and isinstance(atom, Apply) and isinstance(atom.args[-1], Const):
            d = int(atom.args[-1].value) if len(atom.args) == 2 else 0
            if atom.fn == "floordiv":
                x = linear(atom.args[0])
                return combine(outer, _floordiv((x[0], x[1] + constant * d), c * d), 1)
            if atom.fn == "mod" and constant == 0 and d % c == 0:
                return combine(outer, _mod(_floordiv(linear(atom.args[0]), c), d // c), 1)
    merged = _merge_div_mod((rest, constant))
    if merged[0] is not rest:
        return combine(outer, _floordiv(merged, c), 1)
    return combine(outer, _atom("floordiv", (rest, constant), c), 1)


def _mod(form: Linear, c: int) -> Linear:
    """form % c: terms that c divides vanish, common factors come out, nested remainders merge."""
    if c == 1:
        return {}, 0
    terms, constant = form
    rest: dict[Expr, int] = {}
    extra: Linear = ({}, constant)
    low, high = form_bounds(form)
    if low // c == high // c and abs(low) < INF:
        return terms, constant - c * (low // c)
    for atom, k in terms.items():
        k = _residue(k, c)
        if not k:
            continue
        if isinstance(atom, Apply) and atom.fn == "mod" and isinstance(atom.args[1], Const):
            d = int(atom.args[1].value)
            if (k * d) % c == 0:
                extra = combine(extra, scale(linear(atom.args[0]), k), 1)
                continue
        rest[atom] = k
    if extra[0]:
        return _mod(combine((rest, 0), extra, 1), c)
    constant %= c
    if not rest:
        return {}, constant
    g = math.gcd(c, *rest.values())
    if g > 1:
        inner = _mod(({a: k // g for a, k in rest.items()}, constant // g), c // g)
        return combine(scale(inner, g), ({}, constant % g), 1)
    low, high = form_bounds((rest, constant))
    if low // c == high // c and abs(low) < INF:
        return rest, constant - c * (low // c)
    merged = _merge_div_mod((rest, constant))
    if merged[0] is not rest:
        return _mod(merged, c)
    return _atom("mod", (rest, constant), c)


def _residue(k: int, c: int) -> int:
    """The residue of k modulo c that is nearest to 0."""
    r = k % c
    return r - c if 2 * r > c else r


def _merge_div_mod(form: Linear) -> Linear:
    """k*c * (x // c) + k * (x % c) is k*x, and k*x - k*c * (x // c) is k * (x % c)."""
    terms, constant = form
    for atom, k in terms.items():
        if isinstance(atom, Apply) and atom.fn == "floordiv" and isinstance(atom.args[1], Const):
            c = int(atom.args[1].value)
            x = linear(atom.args[0])
            if k % c == 0 and x[0] and all(terms.get(a) == -(k // c) * v for a, v in x[0].items()):
                whole = combine(({a: v for a, v in terms.items() if a is not atom}, constant), scale(x, k // c))
                return _merge_div_mod(combine(whole, scale(_mod(x, c), -(k // c))))
            for finer, v in terms.items():  # x // (e*c) = (x // e) // c
                if isinstance(finer, Apply) and finer.fn == "floordiv" and finer.args[0] is atom.args[0]:
                    step, left = divmod(c, int(cast(Const, finer.args[1]).value))
                    if left == 0 and step > 1 and k == -step * v:
                        others = {a: n for a, n in terms.items() if a is not atom and a is not finer}
                        return _merge_div_mod(combine((others, constant), scale(_mod(({finer: 1}, 0), step), v)))
    for atom, k in terms.items():
        if isinstance(atom, Apply) and atom.fn == "mod" and isinstance(atom.args[1], Const):
            c = int(atom.args[1].value)
            partner, extra = _quotient(atom.args[0], c)
            if partner is not None and terms.get(partner) == k * c:
                rest = ({a: v for a, v in terms.items() if a is not atom and a is not partner}, constant)
                whole = scale(linear(atom.args[0]), k)
                return _merge_div_mod(combine(combine(rest, whole, 1), scale(extra, -k * c), 1))
    return terms, constant


def _quotient(x: Expr, c: int) -> tuple[Expr | None, Linear]:
    """x // c as (its one opaque atom, what is linear beside it)."""
    terms, constant = _floordiv(linear(x), c)
    opaque = [a for a, k in terms.items() if k == 1 and isinstance(a, Apply)]
    if len(opaque) != 1:
        return None, ({}, 0)
    return opaque[0], ({a: k for a, k in terms.items() if a is not opaque[0]}, constant)


def form_bounds(form: Linear) -> tuple[int, int]:
    low = high = form[1]
    for atom, k in form[0].items():
        a, b = bounds(atom)
        low += min(k * a, k * b)
        high += max(k * a, k * b)
    return _clamp(low, high)


def _simplify_condition(fn: str, args: tuple[Expr, ...], e: Apply) -> Expr:
    if fn in ("and", "or"):
        absorbing = fn == "or"
        for a, b in (args, args[::-1]):
            if isinstance(a, Const):
                return a if a.value is absorbing else b
        if args[0] is args[1]:
            return args[0]
        joined, rest = args[0], args[1]
        terms = []
        while isinstance(rest, Apply) and rest.fn == fn:  # a & (b & c) is (a & b) & c
            rest, last = rest.args
            terms.append(last)
        if not terms:
            return Apply(fn, args, e.where)
        for term in (rest, *reversed(terms)):
            joined = _simplify_condition(fn, (joined, term), e)
        return joined
    if fn == "not":
        return Const(not args[0].value, "bool") if isinstance(args[0], Const) else Apply(fn, args, e.where)
    if args[0].dtype == "bool":
        return Apply(fn, args, e.where)
    low, high = form_bounds(combine(linear(args[0]), linear(args[1]), -1))
    decided = {
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "gt": (low > 0, high <= 0),
        "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0),
    }[fn]
    if any(decided):
        return Const(decided[0], "bool")
    return Apply(fn, args, e.where)

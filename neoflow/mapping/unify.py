"""What is in the holes of an expression where it is another one, whatever tensors either is cut into.

    pattern    sigmoid(sum[k](x[b, k] * w[j, k]) + bias[j])         holes x, w, bias
    found      t = a @ v.T;  u = t + c;  sigmoid(u[b, j])           x is a, w is v, bias is c

Reads of tensors are opened where that is needed; what fills a hole is looked for at the largest tensors first. Terms
and factors may stand in any order, constant factors anywhere, reduced axes in any order. A hole that is read at plain
axes may be any expression of these: a slice, a transposed tensor, a sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select, rewrite, same, substitute
from neoflow.expr.tensor import Compute, Constant, Tensor

Bound = Mapping[object, object]
"""What is in the holes: by tensor a tensor, by attribute a number; and pairs of reads that are known to be equal."""
Goal = tuple[Expr, Expr, float]
"""That an expression of the pattern is so many times one that was found."""

_FIRST = -(1 << 60)
"""Numbers of axes that nobody else has."""

SUMS, PRODUCTS = frozenset(("add", "sub")), frozenset(("mul", "div", "neg", "rsqrt"))
COMMUTE = frozenset(("maximum", "minimum", "and", "or", "eq", "ne"))
MOST_FORMS, MOST_AXES, MOST_GOALS = 24, 4, 2000
"""Ways to open a sum that are tried, reduced axes that are put in any order, and goals in all."""


@dataclass(frozen=True)
class Product:
    """factor times over / under."""

    factor: float
    over: tuple[Expr, ...]
    under: tuple[Expr, ...]


@dataclass
class Looked:
    """What several unifiers know together that look at the same tensors. opened: what reads of them are. outsides: see
    `outside`. goals: how many there were, the work of it all."""

    opened: dict[Expr, Expr] = field(default_factory=dict)
    outsides: dict[object, object] = field(default_factory=dict)
    goals: int = 0


class Unifier:
    """Of a pattern's holes. attributes: those that are numbers. looked: what is known of a graph."""

    def __init__(self, holes: Sequence[Tensor], attributes: Sequence[Tensor] = (), looked: Looked | None = None):
        self.holes, self.attributes = frozenset(holes), frozenset(attributes)
        self.looked = Looked() if looked is None else looked
        self.count = 0

    def all_equal(self, pairs: Sequence[tuple[Tensor, Tensor]], bound: Bound) -> Iterator[Bound]:
        """Ways to fill the holes so that the first of each pair is the second."""
        goals: list[Goal] = []
        for a, b in pairs:
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return
            goals.append((whole(a), whole(b), 1.0))
        yield from self.solve(goals, bound)

    def solve(self, goals: list[Goal], bound: Bound) -> Iterator[Bound]:
        if not goals:
            yield bound
            return
        self.count += 1
        self.looked.goals += 1
        if self.count > MOST_GOALS:
            return
        (p, b, ratio), *rest = goals
        if p.dtype != b.dtype:
            return
        if isinstance(p, Read) and (p.source in self.holes or p.source in self.attributes):
            yield from self.fill(p, b, ratio, rest, bound)
            return
        key = (p, b, ratio)
        if key in bound or (p is b and ratio == 1.0):
            yield from self.solve(rest, bound)
            return
        for more in self.steps(p, b, ratio, bound):
            yield from self.solve([*more[0], *rest], {**more[1], key: True})

    # --------------------------------------------------------------------------------------------------------- holes

    def fill(self, p: Read, b: Expr, ratio: float, rest: list[Goal], bound: Bound) -> Iterator[Bound]:
        hole = p.source
        if hole in self.attributes:
            value = self.head(b)
            if isinstance(value, Const) and not isinstance(value.value, bool):
                number = ratio * float(value.value)
                if isclose(float(str(bound.get(hole, number))), number, rel_tol=1e-6):
                    yield from self.solve(rest, {**bound, hole: number})
            return
        if hole in bound:
            known = bound[hole]
            assert isinstance(known, Tensor)
            yield from self.solve([(Read(known, p.indices), b, ratio), *rest], bound)
            return
        is_left = True
        for e in _moved(b):
            found = self.view(p, e, ratio)
            if found is not None:
                is_left = False
                yield from self.solve(rest, {**bound, hole: found})
        if is_left and not _is_plain(p) and any(not self.is_open(q, bound) or _is_plain(q) for q, _, _ in rest):
            yield from self.solve([*rest, (p, b, ratio)], bound)

    def view(self, p: Read, b: Expr, ratio: float) -> Tensor | None:
        """The tensor that is an expression where it is read as the pattern reads a hole."""
        assert isinstance(p.source, Tensor)
        shape = p.source.shape
        is_itself = isinstance(b, Read) and b.source.shape == shape and same(b.indices, p.indices)
        if is_itself and ratio == 1.0 and isinstance(b, Read) and isinstance(b.source, Tensor):
            return b.source
        own = [i for i in p.indices if isinstance(i, Axis)]
        if not _is_plain(p) or not b.free <= set(own):
            return None
        axes = unnamed_axes(shape, None)
        body = b if ratio == 1.0 else Apply("mul", (b, Const(ratio, b.dtype)))
        return define(shape, axes, substitute(body, dict(zip(own, axes, strict=True))), p.source.name)

    # --------------------------------------------------------------------------------------------------------- steps

    def steps(self, p: Expr, b: Expr, ratio: float, bound: Bound) -> Iterator[tuple[list[Goal], Bound]]:
        """What is left to be shown, for each way to show that p is ratio times b."""
        head, other = self.head(p), self.head(b)
        if head is not p and isinstance(head, Read):  # a hole, behind tensors that only move it
            yield [(head, b, ratio)], bound
            return
        if isinstance(head, Apply) and head.fn in SUMS:
            terms = next(self.forms(head, True))
            for found in self.forms(other, False, len(terms)):
                yield from ((g, bound) for g in self.paired(terms, found, ratio, bound))
            return
        if is_product(head) or is_product(other) or ratio != 1.0:
            yield from self.products(head, other, ratio, bound)
            return
        yield from ((g, bound) for g in self.alike(head, other))

    def alike(self, p: Expr, b: Expr) -> Iterator[list[Goal]]:
        """The same for what is neither a sum nor a product."""
        match p, b:
            case (Const(), Const()) if p.value == b.value:
                yield []
            case (Axis(), Axis()) if p is b:
                yield []
            case (Read(), Read()) if p.source is b.source:
                pairs = zip(map(affine.simplify, p.indices), map(affine.simplify, b.indices), strict=True)
                yield [(m, n, 1.0) for m, n in pairs if m is not n]
            case (Apply(), Apply()) if p.fn == b.fn:
                yield [(m, n, 1.0) for m, n in zip(p.args, b.args, strict=True)]
                if p.fn in COMMUTE:
                    yield [(m, n, 1.0) for m, n in zip(p.args, b.args[::-1], strict=True)]
            case (Select(), Select()):
                yield [(p.cond, b.cond, 1.0), (p.then, b.then, 1.0), (p.other, b.other, 1.0)]
            case (Cast(), Cast()) if p.dtype == b.dtype:
                yield [(p.arg, b.arg, 1.0)]
            case (Reduce(), Reduce()) if p.op == b.op:
                yield from self.reductions(p, b)

    def reductions(self, p: Reduce, b: Reduce) -> Iterator[list[Goal]]:
        p, b = self.flat(p), self.flat(b)
        if len(p.axes) != len(b.axes) or len(p.axes) > MOST_AXES:
            return
        for axes in itertools.permutations(p.axes):
            if all(m.extent == n.extent for m, n in zip(axes, b.axes, strict=True)):
                yield [(p.body, _at(b.body, dict(zip(b.axes, axes, strict=True))), 1.0)]

    def flat(self, e: Reduce) -> Reduce:
        """A sum of sums as one over all axes."""
        inner = self.head(e.body)
        while isinstance(inner, Reduce) and inner.op == e.op == "sum":
            e = Reduce(e.op, (*e.axes, *inner.axes), inner.body)
            inner = self.head(e.body)
        return e

    # ---------------------------------------------------------------------------------------------- sums and products

    def forms(self, e: Expr, is_whole: bool, most: int = 0) -> Iterator[list[tuple[float, Expr]]]:
        """The terms of a sum: those it has as it is written, then those of its terms. is_whole: the last ones alone."""
        first = terms_of(e)
        waiting, count = [first], 0
        seen = {tuple((s, t.uid) for s, t in first)}
        while waiting and count < MOST_FORMS:
            terms = waiting.pop(0)
            count += 1
            opened = [
                [*terms[:n], *((s * k, u) for k, u in terms_of(inner)), *terms[n + 1 :]]
                for n, (s, t) in enumerate(terms)
                if isinstance(inner := self.head(t), Apply) and inner.fn in SUMS and inner is not t
            ]
            if is_whole:
                if opened:
                    waiting, count = [opened[0]], 0
                    continue
                yield terms
                return
            if len(terms) >= 2:
                yield terms
            for form in opened:
                key = tuple((s, t.uid) for s, t in form)
                if len(form) <= most + 2 and key not in seen:
                    seen.add(key)
                    waiting.append(form)

    def paired(
        self, terms: Sequence[tuple[float, Expr]], found: Sequence[tuple[float, Expr]], ratio: float, bound: Bound
    ) -> Iterator[list[Goal]]:
        """Goals term by term. What is left over is in the one hole that is not filled."""
        order = sorted(terms, key=lambda t: self.is_open(t[1], bound))
        free = [t for t in order if self.is_open(t[1], bound)]
        if len(found) < len(terms) or (len(found) > len(terms) and len(free) != 1):
            return
        if len(found) > len(terms):
            (sign, hole), rest = free[0], [t for t in order if t is not free[0]]
            for chosen in itertools.permutations(range(len(found)), len(rest)):
                left = [t for n, t in enumerate(found) if n not in chosen]
                whole = _added(left)
                goals = [(p, found[n][1], ratio * found[n][0] / s) for (s, p), n in zip(rest, chosen, strict=True)]
                if self.may_all(goals):
                    yield [*goals, (hole, whole, ratio / sign)]
            return
        yield from self.pairings(order, list(found), ratio)

    def pairings(
        self, terms: Sequence[tuple[float, Expr]], found: list[tuple[float, Expr]], ratio: float
    ) -> Iterator[list[Goal]]:
        if not terms:
            yield []
            return
        (s, p), *rest = terms
        for n, (k, b) in enumerate(found):
            if self.may(p, b):
                for more in self.pairings(rest, [*found[:n], *found[n + 1 :]], ratio):
                    yield [(p, b, ratio * k / s), *more]

    def products(self, p: Expr, b: Expr, ratio: float, bound: Bound) -> Iterator[tuple[list[Goal], Bound]]:
        a, c = self.product(p), self.product(b)
        free = [e for e in a.over if isinstance(e, Read) and e.source in self.attributes and e.source not in bound]
        if len(free) == 1:
            a = Product(a.factor, tuple(e for e in a.over if e is not free[0]), a.under)
            bound = {**bound, free[0].source: ratio * c.factor / a.factor}
        elif not a.over and not a.under and not c.over and not c.under:
            if isclose(a.factor, ratio * c.factor, rel_tol=1e-6):
                yield [], bound
            return
        else:
            for e in a.over:
                if isinstance(e, Read) and e.source in self.attributes:
                    ratio /= float(str(bound[e.source]))
            a = Product(a.factor, tuple(e for e in a.over if not self.is_attribute(e)), a.under)
            if len(a.over) == 1 and not a.under and isinstance(a.over[0], Read) and a.over[0].source in self.holes:
                if a.factor != 0:
                    yield [(a.over[0], b, ratio / a.factor)], bound
                return
            if not isclose(a.factor, ratio * c.factor, rel_tol=1e-6):
                return
        if (len(a.over), len(a.under)) != (len(c.over), len(c.under)):
            return
        for over in self.pairings([(1.0, e) for e in a.over], [(1.0, e) for e in c.over], 1.0):
            for under in self.pairings([(1.0, e) for e in a.under], [(1.0, e) for e in c.under], 1.0):
                goals = [*over, *under]
                if len(goals) == 1 and self.head(goals[0][0]) is p and self.head(goals[0][1]) is b:
                    yield from ((g, bound) for g in self.alike(p, b))
                else:
                    yield goals, bound

    def is_attribute(self, e: Expr) -> bool:
        return isinstance(e, Read) and e.source in self.attributes

    def product(self, e: Expr) -> Product:
        """An expression as a product, tensors opened where they are products."""
        factor, over, under = 1.0, list[Expr](), list[Expr]()
        stack = [(e, True)]
        while stack:
            t, is_over = stack.pop()
            inner = self.head(t)
            match inner:
                case Const() if not isinstance(inner.value, bool):
                    value = float(inner.value)
                    factor = factor * value if is_over else factor / value
                case Apply(fn="mul"):
                    stack += [(a, is_over) for a in reversed(inner.args)]
                case Apply(fn="div"):
                    stack += [(inner.args[1], not is_over), (inner.args[0], is_over)]
                case Apply(fn="neg"):
                    factor = -factor
                    stack.append((inner.args[0], is_over))
                case Apply(fn="rsqrt"):
                    (under if is_over else over).append(Apply("sqrt", inner.args))
                case Reduce(op="sum") if (scaled := self.scaled(self.flat(inner))) is not None:
                    factor = factor * scaled[0] if is_over else factor / scaled[0]
                    (over if is_over else under).append(scaled[1])
                case _:
                    (over if is_over else under).append(t)
        return Product(factor, tuple(over), tuple(under))

    def scaled(self, e: Reduce) -> tuple[float, Expr] | None:
        """A number and the sum that it is a factor of, where there is one."""
        inner = self.product(e.body) if is_product(self.head(e.body)) else None
        if inner is None or inner.factor in (0.0, 1.0):
            return None
        parts = [*inner.over] or [Const(1.0, e.dtype)]
        body = parts[0]
        for part in parts[1:]:
            body = Apply("mul", (body, part))
        for part in inner.under:
            body = Apply("div", (body, part))
        return inner.factor, Reduce(e.op, e.axes, body)

    # --------------------------------------------------------------------------------------------------------- heads

    def is_open(self, e: Expr, bound: Bound) -> bool:
        return isinstance(e, Read) and e.source in self.holes and e.source not in bound

    def may_all(self, goals: Sequence[Goal]) -> bool:
        return all(self.may(p, b) for p, b, _ in goals)

    def may(self, p: Expr, b: Expr) -> bool:
        """Whether the outermost operations leave it open that two are equal."""
        if p.dtype != b.dtype:
            return False
        p, b = self.head(p), self.head(b)
        if isinstance(p, Read) or is_product(p) or is_product(b):
            return True
        if type(p) is not type(b):
            return False
        if isinstance(p, Apply) and isinstance(b, Apply):
            return p.fn == b.fn or {p.fn, b.fn} <= SUMS
        return not isinstance(p, Reduce) or (isinstance(b, Reduce) and p.op == b.op)

    def head(self, e: Expr) -> Expr:
        """An expression that is no read of what is computed."""
        while isinstance(e, Read) and e.source not in self.holes:
            t = e.source
            if isinstance(t, Constant) and not t.shape:
                return Const(t.value.item(), t.dtype)
            if not isinstance(t, Compute) or isinstance(t.definition.body, Scatter):
                return e
            opened = self.looked.opened
            if e not in opened:
                opened[e] = _opened(t, e.indices)
            e = opened[e]
        return e


def _is_plain(p: Expr) -> bool:
    """Whether a hole is read at an axis of its own in each dimension, all through it."""
    assert isinstance(p, Read)
    own = [i for i in p.indices if isinstance(i, Axis)]
    return len(own) == len(p.indices) == len(set(own)) and tuple(a.extent for a in own) == p.source.shape


def _moved(e: Expr) -> Iterator[Expr]:
    """An expression, and what it reads behind tensors that only move that."""
    yield e
    while isinstance(e, Read) and isinstance(e.source, Compute) and isinstance(e.source.definition.body, Read):
        e = _opened(e.source, e.indices)
        yield e


def _opened(t: Compute, indices: tuple[Expr, ...]) -> Expr:
    """The body of a tensor at a place, its bound axes new."""
    d = t.definition
    axes: dict[Expr, Expr] = {}
    axes.update(zip(d.axes, indices, strict=True))
    axes.update(zip(d.reduction_axes, unnamed_axes(tuple(a.extent for a in d.reduction_axes), None), strict=True))
    return _at(d.body, axes, t.inputs)


def _at(body: Expr, axes: Mapping[Expr, Expr], inputs: tuple[Tensor, ...] = ()) -> Expr:
    """A body with other expressions in place of its axes, tensors in place of its slots."""

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read):
            source = inputs[e.slot] if inputs and not isinstance(e.source, Tensor) else e.source
            return Read(source, tuple(affine.simplify(i) for i in e.indices))
        if isinstance(e, Reduce):
            bound = tuple(axes.get(a, a) for a in e.axes)
            return Reduce(e.op, tuple(a for a in bound if isinstance(a, Axis)), e.body)
        return axes.get(e)

    return rewrite(body, rule)


def whole(t: Tensor) -> Read:
    """A tensor at every place, in the same words each time."""
    return Read(t, tuple(Axis(_FIRST - d, n, f"i{d}") for d, n in enumerate(t.shape)))


def is_product(e: Expr) -> bool:
    return isinstance(e, Apply) and e.fn in PRODUCTS


def terms_of(e: Expr) -> list[tuple[float, Expr]]:
    """What is added up, with its sign."""
    found: list[tuple[float, Expr]] = []
    stack = [(1.0, e)]
    while stack:
        sign, t = stack.pop()
        if isinstance(t, Apply) and t.fn == "neg":
            stack.append((-sign, t.args[0]))
        elif isinstance(t, Apply) and t.fn in SUMS:
            stack += [(sign if t.fn == "add" else -sign, t.args[1]), (sign, t.args[0])]
        else:
            found.append((sign, t))
    return found


def _added(terms: Sequence[tuple[float, Expr]]) -> Expr:
    parts = [t if s == 1.0 else Apply("neg", (t,)) for s, t in terms]
    total = parts[0]
    for part in parts[1:]:
        total = Apply("add", (total, part))
    return total

"""A sum as terms: of each the factors that depend on what is summed over, and the others; seen through the elementwise
computes that it reads.

    d[r, c] = g[r, c] * w[c];  y[c] = sum[r](2.0 * d[r, c] * x[r, c])        2.0, w[c]  times  g[r, c] x[r, c]

Terms whose sum is 0 whatever the data is are left out: those of what was centred over the same axes, x - mean(x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Slot, postorder, rewrite, same, substitute
from neoflow.expr.locality import axes_met
from neoflow.expr.tensor import Compute, Tensor, tensor_of
from neoflow.graph.edit import Editor
from neoflow.graph.work import product

MOST_TERMS = 4
"""Of a sum, those that are 0 among them: a gradient that comes along two ways, twice."""
DEPTH = 8
"""Computes that are looked through, one behind the other."""
EXACT = 1e-6
"""How far a mean's factor times its count may be from 1: a few roundings of float32."""


@dataclass(frozen=True)
class Term:
    """scale * product of `outer` * product of `moving`; only the last depend on the axes that are summed over."""

    scale: float
    outer: tuple[Expr, ...] = ()
    moving: tuple[Expr, ...] = ()

    def times(self, other: Term) -> Term:
        return Term(self.scale * other.scale, self.outer + other.outer, self.moving + other.moving)


@dataclass(frozen=True, eq=False)
class Linear:
    """A sum as one product that is summed, times what does not depend on the axes.

    core: a compute of that sum; its body is `summed`. at: where the sum reads it. terms: what it is multiplied with, to
    be added. is_centred: whether terms were left out.
    """

    summed: Expr
    at: tuple[Axis, ...]
    terms: tuple[Term, ...]
    is_centred: bool
    name: str

    @cached_property
    def core(self) -> Compute:
        return build(tuple(a.extent for a in self.at), self.summed, (), self.name)

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """What is summed."""
        return tuple(dict.fromkeys(tensor_of(n) for n in postorder(self.summed) if isinstance(n, Read)))

    @property
    def points(self) -> int:
        """At which the product is evaluated."""
        assert isinstance(self.summed, Reduce)
        return math.prod(a.extent for a in (*self.at, *self.summed.axes))

    def is_of(self, editor: Editor, t: Compute) -> bool:
        """Whether t is that sum itself."""
        if self.terms[1:] or self.terms[0].scale != 1.0 or self.terms[0].outer:
            return False
        return self.core.definition is t.definition and same(self.core.inputs, editor.inputs(t))

    def is_like(self, other: Linear) -> bool:
        """Whether the same product is summed."""
        return self.summed is other.summed and [a.extent for a in self.at] == [a.extent for a in other.at]

    def rest(self, t: Compute) -> Compute:
        """t from the sum of the product."""
        read: Expr = Read(self.core, self.at)
        added = [
            product([read, *t.outer]) if t.scale == 1.0 else product([Const(t.scale, self.core.dtype), *t.outer, read])
            for t in self.terms
        ]
        total = added[0]
        for e in added[1:]:
            total = Apply("add", (total, e))
        return build(t.shape, total, (), t.name)


def linear(editor: Editor, t: Compute) -> Linear | None:
    """A sum as its core and what that is multiplied with; None where its terms have different products, or none.

    Nor for sums along rows: what else goes through these rows is one kernel with them, and finds the factors in cache.
    """
    body = t.definition.body
    assert isinstance(body, Reduce)
    view = _View(editor, frozenset(body.axes))
    terms = view.terms(view.opened(body.body, editor.inputs(t)), DEPTH)
    left = [term for term in terms or () if not view.is_centred(term)]
    if terms is None or not left or not all(t.moving for t in left) or len({_key(term.moving) for term in left}) > 1:
        return None
    factors = sorted(left[0].moving, key=view.place)
    met = axes_met(factors)
    at, over = [a for a in met if a not in view.summed], [a for a in met if a in view.summed]
    if len(over) < len(body.axes) or not view.is_across(factors):
        return None
    own: dict[Expr, Expr] = {a: Axis(n, a.extent) for n, a in enumerate((*at, *over))}
    summed = substitute(Reduce("sum", tuple(over), product(factors)), own)
    return Linear(summed, tuple(at), tuple(left), len(left) < len(terms), f"{t.name}_sum")


def _key(factors: Sequence[Expr]) -> tuple[int, ...]:
    return tuple(sorted(e.uid for e in factors))


class _View:
    """What a sum over some axes is made of; expressions are open, their reads are of tensors."""

    def __init__(self, editor: Editor, summed: frozenset[Axis]):
        self.editor, self.summed = editor, summed
        self._behind: dict[Expr, Expr | None] = {}

    def depends(self, e: Expr) -> bool:
        return not e.free.isdisjoint(self.summed)

    def opened(self, e: Expr, inputs: Sequence[Tensor]) -> Expr:
        def rule(n: Expr) -> Expr | None:
            return Read(inputs[n.slot], n.indices) if isinstance(n, Read) and isinstance(n.source, Slot) else None

        return rewrite(e, rule)

    def behind(self, read: Expr) -> Expr | None:
        """What is read, over the axes of the reader; None where that is no elementwise compute that could be linear."""
        if read not in self._behind:
            self._behind[read] = self._seen_through(read)
        return self._behind[read]

    def _seen_through(self, read: Expr) -> Expr | None:
        t = read.source if isinstance(read, Read) else None
        if not isinstance(t, Compute) or not _is_linear(t.definition.body):
            return None
        at = dict(zip(t.definition.axes, read.indices, strict=True)) if isinstance(read, Read) else {}
        body = self.editor.while_it_stays(
            (_View.opened, t.uid), lambda: self.opened(t.definition.body, self.editor.inputs(t))
        )
        return substitute(body, {a: i for a, i in at.items() if a is not i})

    def is_across(self, factors: Sequence[Expr]) -> bool:
        """Whether rows are added: the largest tensor that is read is summed over its outermost dimension."""
        reads = [n for e in factors for n in postorder(e) if isinstance(n, Read)]
        largest = max(reads, key=lambda r: math.prod(r.source.shape), default=None)
        found = zip(largest.indices, largest.source.shape, strict=True) if largest is not None else ()
        outermost = next((i for i, n in found if n > 1), None)
        return outermost is not None and self.depends(outermost)

    def place(self, e: Expr) -> tuple[int, ...]:
        """In the order of what is read."""
        found, stack = list[int](), [e]
        while stack:
            n = stack.pop()
            if isinstance(n, Read) and isinstance(n.source, Tensor):
                found.append(self.editor.number(n.source))
            stack += reversed(n.children)
        return tuple(found)

    # --- terms

    def terms(self, e: Expr, depth: int) -> list[Term] | None:
        """The terms of an expression; None where there are too many."""
        if not self.depends(e):
            return [self._still(e)]
        match e:
            case Apply(fn="neg"):
                return self._times(Term(-1.0), self.terms(e.args[0], depth))
            case Apply(fn="add" | "sub"):
                first, second = (self.terms(a, depth) for a in e.args)
                sign = Term(1.0 if e.fn == "add" else -1.0)
                found = [*first, *(sign.times(s) for s in second)] if first and second else None
                return found if found is not None and len(found) <= MOST_TERMS else None
            case Apply(fn="mul"):
                return self._product(e, depth)
            case Read():
                return self._through(e, depth)
        return [Term(1.0, (), (e,))]

    def _through(self, read: Expr, depth: int) -> list[Term] | None:
        """The terms of what is read, where that is linear and has some; else what is read is a factor."""
        term = Term(1.0, (), (read,))
        inside = self.behind(read) if depth else None
        if inside is None or not _is_linear(inside) or self.is_centred(term):
            return [term]
        return self.terms(inside, depth - 1) or [term]

    def _times(self, one: Term, terms: list[Term] | None) -> list[Term] | None:
        return None if terms is None else [one.times(t) for t in terms]

    def _product(self, e: Apply, depth: int) -> list[Term] | None:
        """Of a product: the terms of the one factor that depends on the axes, times the other; or one term."""
        parts = [self.terms(a, depth) for a in e.args]
        for n, terms in enumerate(parts):
            if terms is not None and len(terms) == 1 and not terms[0].moving:
                return self._times(terms[0], parts[1 - n])
        first, second = (self._factor(a, terms) for a, terms in zip(e.args, parts, strict=True))
        return [first.times(second)]

    def _factor(self, e: Expr, terms: list[Term] | None) -> Term:
        """A factor among others: its one term, or itself, where what cancels in it would no more cancel."""
        return terms[0] if terms is not None and len(terms) == 1 else Term(1.0, (), (e,))

    def _still(self, e: Expr) -> Term:
        """What does not depend on the axes, the numbers in it apart."""
        if isinstance(e, Const):
            return Term(float(e.value))
        if isinstance(e, Apply) and e.fn == "mul":
            first, second = (self._still(a) for a in e.args)
            return first.times(second)
        return Term(1.0, (e,))

    # --- what adds up to nothing

    def is_centred(self, term: Term) -> bool:
        """Whether it is what was centred over these axes, times what does not depend on them."""
        e = self.behind(term.moving[0]) if len(term.moving) == 1 else None
        if not (isinstance(e, Apply) and e.fn == "sub" and isinstance(e.args[0], Read)) or self.depends(e.args[1]):
            return False
        found = self._mean(e.args[1])
        return found is not None and self._is_over(found, e.args[0])

    def _mean(self, e: Expr) -> Read | None:
        """The read of a sum of which e is the mean, if it is one."""
        scale, read = 1.0, e
        for _ in range(DEPTH):
            match read:
                case (
                    Apply(fn="mul", args=(Read() as s, Const() as c))
                    | Apply(fn="mul", args=(Const() as c, Read() as s))
                ):
                    scale, read = scale * float(c.value), s
                case Read(source=Compute() as t) if t.definition.has_reduction:
                    count = math.prod(a.extent for a in t.definition.reduction_axes)
                    return read if abs(scale * count - 1) < EXACT else None
                case Read():
                    inside = self.behind(read)
                    if inside is None:
                        return None
                    read = inside
                case _:
                    return None
        return None

    def _is_over(self, mean: Read, x: Read) -> bool:
        """Whether the sum that `mean` reads is of x, over the axes of the sum at hand."""
        t = mean.source
        body = t.definition.body if isinstance(t, Compute) else None
        if not (
            isinstance(t, Compute) and isinstance(body, Reduce) and body.op == "sum" and isinstance(body.body, Read)
        ):
            return False
        own = self.opened(body.body, self.editor.inputs(t))
        assert isinstance(own, Read)
        if own.source is not x.source or len(body.axes) != len(self.summed):
            return False
        bound = frozenset(body.axes)
        at: dict[Expr, Expr] = dict(zip(t.definition.axes, mean.indices, strict=True))
        for i, j in zip(own.indices, x.indices, strict=True):
            if i in bound and isinstance(j, Axis) and j in self.summed and i.extent == j.extent:
                at[i] = j
        renamed = tuple(substitute(i, at) for i in own.indices)
        is_all = {at.get(a) for a in body.axes} == self.summed
        return is_all and all(i is j for i, j in zip(renamed, x.indices, strict=True))


_LINEAR = ("mul", "add", "sub", "neg")


def _is_linear(e: Expr) -> bool:
    return isinstance(e, Read) or (isinstance(e, Apply) and e.fn in _LINEAR)

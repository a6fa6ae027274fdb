"""What a sum is linear in: the one product through which its body depends on some of the axes that are summed over.

    sum[r, s](g[p, r] * w[r, s] * a[s, p] - g[p, r] * w[r, s] * b[s, p])      over r:  g[p, r] * w[r, s]

Every term has that product as a factor, so the sum over these axes can be done first, and once for all terms. Nothing
is distributed over sums of different terms: what cancels between them cancels before it is summed, as it was written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.deep import Walk, run
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, Slot, same, substitute
from neoflow.expr.limits import excess
from neoflow.expr.locality import axes_met, stays_inside
from neoflow.expr.memo import remembered
from neoflow.expr.normal import is_normal
from neoflow.expr.recipe import stand_ins
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.work import operands, product, work

MOST_CHOICES = 16
"""Sets of axes that are tried for one sum."""
DTYPES = ("float32", "float64", *dt.INTS)
"""Sums that are no narrower in memory than in registers; integers are exact whatever comes first."""


@dataclass(frozen=True, eq=False)
class Core:
    """A product through which alone the body of a sum, the whole, depends on the axes `summed`.

    axes: the others that it has, in the order of its text. definition: of its sum, a tensor over these, the same
    whatever the axes are called in the whole; slots: what that reads, among the slots of the whole. work: of the whole
    when that tensor is there to be read.
    """

    factors: tuple[Expr, ...]
    summed: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    definition: Definition
    slots: tuple[int, ...]
    work: int

    @property
    def nbytes(self) -> int:
        """Of the tensor."""
        return math.prod(self.definition.shape) * dt.itemsize(self.definition.body.dtype)

    def order(self) -> tuple[int, ...]:
        """The places of its axes in the order of the whole, the reduced ones last."""
        return tuple(sorted(range(len(self.axes)), key=lambda n: self.axes[n].ident))

    def summed_first(self, inputs: tuple[Tensor, ...], order: tuple[int, ...], name: str) -> Compute:
        """The tensor over the inputs of the whole, its axes in that order."""
        return _sum(self.factors, self.summed, tuple(self.axes[n] for n in order), inputs, name)

    def rest(self, body: Expr, slot: Slot, order: tuple[int, ...]) -> Expr:
        """The body of the whole that reads the tensor, whose axes are in that order, from a slot."""
        assert isinstance(body, Reduce)
        read = Read(slot, tuple(self.axes[n] for n in order))
        summed = frozenset(self.summed)
        left = tuple(a for a in body.axes if a not in summed)
        inner = run(_Linear(summed).rest(body.body, read))
        return Reduce("sum", left, inner) if left else inner


@remembered
def cores(definition: Definition) -> tuple[Core, ...]:
    """The products that can be summed first, over some of the axes of a sum or over all of them."""
    body = definition.body
    if not (isinstance(body, Reduce) and body.op == "sum" and body.dtype in DTYPES and is_normal(definition)):
        return ()
    found = (_core(definition, summed) for summed in _choices(body))
    return tuple(c for c in found if c is not None)


def _core(definition: Definition, summed: frozenset[Axis]) -> Core | None:
    """The product through which alone a sum depends on these axes, where it is not all of the body."""
    body = definition.body
    assert isinstance(body, Reduce)
    linear = _Linear(summed)
    factors = run(linear.core(body.body))
    if not factors or _is_same(factors, tuple(operands(body.body))):
        return None
    if linear.is_guarded and not all(map(stays_inside, factors)):
        return None
    met, inputs = axes_met(factors), stand_ins(definition)
    axes = tuple(a for a in met if a not in summed)
    first = tuple(a for a in met if a in summed)
    if not summed.issubset(first) or excess(tuple(a.extent for a in axes)):  # what does not occur counts
        return None
    alone = _sum(factors, first, axes, inputs, "core")
    slots = tuple(next(n for n, t in enumerate(inputs) if t is i) for i in alone.inputs)
    core = Core(factors, first, axes, alone.definition, slots, 0)
    if not slots:
        return None
    slot = Slot(len(inputs), alone.shape, alone.dtype)
    rest = core.rest(body, slot, tuple(range(len(axes))))
    return Core(factors, first, axes, alone.definition, slots, work(rest, definition.shape))


def _sum(
    factors: tuple[Expr, ...], summed: tuple[Axis, ...], axes: tuple[Axis, ...], inputs: tuple[Tensor, ...], name: str
) -> Compute:
    shape = tuple(a.extent for a in axes)
    own: dict[Expr, Expr] = {a: Axis(n, a.extent) for n, a in enumerate((*axes, *summed))}
    return build(shape, substitute(Reduce("sum", summed, product(factors)), own), inputs, name)


def _choices(body: Reduce) -> list[frozenset[Axis]]:
    """Sets of reduced axes on which some factors do not depend, the largest first."""
    every, left = frozenset(body.axes), {frozenset[Axis](): None}
    for e in _leaves(body.body):
        if len(left) < MOST_CHOICES:
            left |= dict.fromkeys(kept | (e.free & every) for kept in left)
    found = [every - kept for kept in left if kept != every]
    return sorted(found, key=lambda axes: (-len(axes), sorted(a.ident for a in axes)))[:MOST_CHOICES]


def _leaves(body: Expr) -> list[Expr]:
    """What a body is linear in, term by term and factor by factor, and what chooses or divides these."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = [body]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            is_linear = isinstance(e, Select) or (isinstance(e, Apply) and e.fn in _LINEAR)
            stack += reversed(e.children) if is_linear else ()
            found.update({} if is_linear else {e: None})
    return list(found)


_LINEAR = ("mul", "add", "sub", "neg", "div")


class _Linear:
    """A body as a linear form of one product that alone depends on the axes `summed`."""

    def __init__(self, summed: frozenset[Axis]):
        self.summed = summed
        self.is_guarded = False
        """whether something is only evaluated where a condition holds"""
        self.known: dict[Expr, tuple[Expr, ...]] = {}
        self.made: dict[Expr, Expr] = {}

    def depends(self, e: Expr) -> bool:
        return not e.free.isdisjoint(self.summed)

    def core(self, e: Expr) -> Walk[tuple[Expr, ...]]:
        """The factors of the product; the expression itself where it has none, nothing where it is constant."""
        if e not in self.known:
            self.known[e] = (yield from self._core(e)) if self.depends(e) else ()
        return self.known[e]

    def _core(self, e: Expr) -> Walk[tuple[Expr, ...]]:
        match e:
            case Apply(fn="mul"):
                moving = [f for f in operands(e) if self.depends(f)]
                return (yield self.core(moving[0])) if len(moving) == 1 else tuple(moving)
            case Apply(fn="neg"):
                return (yield self.core(e.args[0]))
            case Apply(fn="div") if not self.depends(e.args[1]) and dt.is_float(e.dtype):
                return (yield self.core(e.args[0]))
            case Apply(fn="add" | "sub"):
                terms = []
                for a in e.args:
                    terms.append((yield self.core(a)))
                return terms[0] if _is_same(terms[0], terms[1]) else (e,)
            case Select() if not self.depends(e.cond):
                found = []
                for branch in (e.then, e.other):
                    is_zero = isinstance(branch, Const) and branch.value == 0
                    found += [] if is_zero else [(yield self.core(branch))]
                self.is_guarded = True
                return found[0] if len(found) == 1 or _is_same(found[0], found[1]) else (e,)
        return (e,)

    def rest(self, e: Expr, read: Read) -> Walk[Expr]:
        """`e` with `read` in the place of the product; for one product and one read."""
        if e not in self.made:
            self.made[e] = (yield from self._rest(e, read)) if self.depends(e) else e
        return self.made[e]

    def _rest(self, e: Expr, read: Read) -> Walk[Expr]:
        if same((yield self.core(e)), (e,)):
            return read
        match e:
            case Apply(fn="mul"):
                parts = operands(e)
                moving = [n for n, f in enumerate(parts) if self.depends(f)]
                place = moving[0]
                inner = (yield self.rest(parts[place], read)) if len(moving) == 1 else read
                return product([inner if n == place else f for n, f in enumerate(parts) if n not in moving[1:]])
            case Apply():
                args = []
                for a in e.args:
                    args.append((yield self.rest(a, read)))
                return Apply(e.fn, tuple(args))
            case Select():
                then = yield self.rest(e.then, read)
                return Select(e.cond, then, (yield self.rest(e.other, read)))
        raise TypeError(type(e).__name__)


def _is_same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Whether two products have the same factors, in any order."""
    return sorted(e.uid for e in a) == sorted(e.uid for e in b) != []

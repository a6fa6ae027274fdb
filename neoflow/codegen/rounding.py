"""How far a kernel's floats may be from exact ones: a bound for every element, itself written in the language.

    |kernel - evaluate(dtype="float64")| <= bound

A bound is a float64 tensor beside the value it belongs to, built from the value's body by the table below. It follows
every operation: what its operands are wrong by, carried through, and one rounding. An *infinite* bound is a doubt:
rounding decides what comes out (a comparison of two computed values that nearly agree, a sum that may overflow on its
way), so any value is right. Integers and conditions have a bound of 0 or of infinity. Infinities and NaN that follow
from infinities and NaN have no rounding error: their class is certain, in whatever order they are added.

    a + b      |a'| + |b'| + eps |a + b|
    a * b      (|a| + a') b' + |b| a' + eps |a b|
    f(a)       max(|f(a + a') - f(a)|, |f(a - a') - f(a)|) + k eps |f(a)|        f monotone, computed to k / 2 ulp
    a < b      doubt where |a - b| <= a' + b'
    sum a      sum a' + eps (4 + min(n, 2 sqrt n, 2 l sqrt B)) sum |a|           in l levels of blocks of B terms
    scatter    sum a' + eps (4 + min(n, 2 sqrt n)) sum |a|                       one after the other, in any order

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3 (running error analysis); Higham and
Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019, theorem 2.4 (sums grow with sqrt n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.codegen.doubts import Doubts
from neoflow.codegen.formulas import (
    DOUBT,
    FORMATS,
    WIDE,
    ZERO,
    Format,
    add,
    below,
    both,
    computed_in,
    const,
    finite,
    if_doubt,
    if_far,
    larger,
    mul,
    size_of,
    sub,
    total,
    upto,
    wide,
)
from neoflow.codegen.wholes import Wholes
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import BLOCK, FUNCTIONS, levels
from neoflow.expr.ir import (
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Scatter,
    Select,
    Slot,
    postorder,
    rewrite,
    substitute,
)
from neoflow.expr.tensor import Compute, Definition, Tensor, topological
from neoflow.loops.sides import MOST_FACTORS

MOST_TERMS = 16
"""Terms of what a selection is wrong by that are kept apart, so that sums of them stay contractions."""


def error_bounds(roots: Sequence[Tensor], is_whole: bool = False, with_classes: bool = False) -> list[Tensor | None]:
    """For each root the tensor of its bounds, or None where it is exact.

    is_whole: every float input holds integers, so that sums and products of them are exact while they are small.
    with_classes: a doubt also where an infinity is multiplied by what may vanish, and room for what does vanish in
    float64; such bounds take longer to evaluate.
    """
    errors: dict[Tensor, Tensor | None] = {}
    whole: set[Tensor] = set()
    for t in topological(list(roots)):
        if not isinstance(t, Compute):
            errors[t] = None
            if is_whole or not dt.is_float(t.dtype):
                whole.add(t)
            continue
        body = _Body(t, errors, whole, with_classes)
        errors[t] = body.tensor()
        if not dt.is_float(t.dtype) or body.whole.has(body.body):
            whole.add(t)
    return [errors[t] for t in roots]


# ------------------------------------------------------------------------------------------------------ bodies


@dataclass(frozen=True)
class Spread:
    """What the operands' errors come to, as a sum of `terms`; how many roundings of the value follow, of how many
    `points`; and `reach`, what its partial products may reach in any order, where it is a product of three or more."""

    terms: tuple[Expr, ...] = ()
    roundings: int = 0
    reach: Expr | None = None
    points: int = 1


class _Body:
    """The bounds of one tensor, from those of what it reads."""

    def __init__(self, t: Compute, errors: dict[Tensor, Tensor | None], whole: set[Tensor], with_classes: bool = False):
        self.t, self.with_classes = t, with_classes
        self.memo: dict[Expr, Expr | None] = {}
        self.spreads: dict[Expr, Spread] = {}
        self.magnitudes: dict[Expr, Expr] = {}
        self.sized: dict[Slot, Slot] = {}
        self.has_sums = any(isinstance(e, Reduce) for e in t.definition.nodes)
        self.inputs = list(t.inputs)
        self.slots: list[Slot | None] = []
        for s in t.inputs:
            error = errors[s]
            self.slots.append(None if error is None else self._slot(error))
        self.gathered: dict[Expr, Read] = {}
        """reads of tensors made of what data-dependent reads find, and those reads"""
        self.whole = Wholes([s in whole for s in t.inputs], self.gathered)
        self.body = rewrite(t.definition.body, self._looked_up)
        for root in (*self.gathered.values(), self.body):
            self._prepare(root)

    def _prepare(self, root: Expr) -> None:
        """Answer what is asked of each node before what is made of it asks: so nothing is too deep."""
        for e in postorder(root):
            if not isinstance(e, Axis | Scatter):
                if dt.is_float(e.dtype):
                    self.whole.has(e)
                    self.magnitude(e)
                self.error(e)

    def _slot(self, t: Tensor) -> Slot:
        self.inputs.append(t)
        return Slot(len(self.inputs) - 1, t.shape, t.dtype)

    def _looked_up(self, e: Expr) -> Expr | None:
        """A data-dependent read, as a read of a tensor of all it finds: then no bound has an index that is data."""
        if not isinstance(e, Read) or not any(isinstance(n, Read) for i in e.indices for n in postorder(i)):
            return None
        found = self._lookup(e)
        self.gathered[found] = e
        return found

    def _lookup(self, e: Read) -> Read:
        """An index that leaves the tensor does so where the value is not used, and is moved inside."""
        axes = sorted(e.free, key=lambda a: a.ident)
        own: dict[Expr, Expr] = {a: Axis(d, a.extent) for d, a in enumerate(axes)}
        indices = []
        for index, extent in zip(e.indices, e.source.shape, strict=True):
            index = substitute(index, own)
            for fn, end in (("maximum", 0), ("minimum", extent - 1)):
                index = Apply(fn, (index, Const(end, index.dtype)))
            indices.append(index)
        slots = tuple(Slot(n, t.shape, t.dtype) for n, t in enumerate(self.inputs))
        definition = Definition(tuple(a.extent for a in axes), Read(e.source, tuple(indices)), slots)
        made = Compute(definition, tuple(self.inputs), f"found by {self.t.name}")
        return Read(self._slot(made), tuple(axes))

    def tensor(self) -> Tensor | None:
        body = self.body
        if isinstance(body, Scatter):
            return self._scattered(body)
        return self._made(self._stored(body, self.error(body), self.t.dtype), "bound")

    def _made(self, body: Expr | None, what: str) -> Tensor | None:
        if body is None:
            return None
        slots = tuple(Slot(n, t.shape, t.dtype) for n, t in enumerate(self.inputs))
        definition = Definition(self.t.shape, body, slots)
        return Compute(definition, tuple(self.inputs), f"{what} of {self.t.name}")

    def _scattered(self, body: Scatter) -> Tensor | None:
        """Sums of what is scattered and of its errors, each a tensor of its own; then as for any sum."""
        if not dt.is_float(body.dtype):
            doubts = total([self.error(c) for c in body.children])
            return None if doubts is None else self._made(Scatter(body.axes, body.targets, doubts), "bound")
        errors = total([self.error(body.body), *(self.error(t) for t in body.targets)])
        points = math.prod(a.extent for a in body.axes)
        parts: list[Expr | None] = []
        for e in (self.magnitude(body.body), errors):
            made = None if e is None else self._made(Scatter(body.axes, body.targets, e), "scatter")
            own = tuple(Axis(d, n) if n > 1 else affine.integer(0) for d, n in enumerate(self.t.shape))
            parts.append(None if made is None else Read(self._slot(made), own))
        size, error = parts
        assert size is not None
        is_whole = self.whole.has(body.body)
        summed = self._rounded(
            size, Spread((), _in_a_row(points), None, points), error, computed_in(body.dtype), is_whole
        )
        if FORMATS[body.dtype] is not computed_in(body.dtype):
            summed = self._rounded(size, Spread((), 1), summed, FORMATS[body.dtype], is_whole)
        return self._made(summed, "bound")

    # ------------------------------------------------------------------------------------------------- floats

    def error(self, e: Expr) -> Expr | None:
        """The bound of an expression; None when it is exact."""
        if e not in self.memo:
            self.memo[e] = self._error(e) if dt.is_float(e.dtype) else self._doubt(e)
        return self.memo[e]

    def _doubt(self, e: Expr) -> Expr | None:
        return Doubts(self.error, self._read, self.t.definition).of(e)

    def _error(self, e: Expr) -> Expr | None:
        spread = self.spread(e)
        if not spread.roundings:
            return total(spread.terms)
        size = self.magnitude(e)
        return self._rounded(size, spread, total(spread.terms), computed_in(e.dtype), self.whole.has(e))

    def _rounded(self, size: Expr, how: Spread, error: Expr | None, form: Format, is_whole: bool) -> Expr:
        """`error`, and the roundings of a value of magnitude `size`; a doubt where it may overflow."""
        reach = size if how.reach is None else how.reach
        tiny: Expr = const(how.points * form.tiny)
        if how.reach is not None:
            tiny = add(tiny, mul(reach, form.tiny))
        own: Expr = add(mul(size, how.roundings * form.eps), tiny)
        if is_whole:
            own = Select(upto(reach, const(form.whole)), ZERO, own)
        elif not self.with_classes:  # in float64 `size` may have vanished itself
            own = Select(below(ZERO, size), own, ZERO)
        total = own if error is None else add(error, own)
        return Select(upto(add(reach, total), const(form.largest)), total, DOUBT)

    def magnitude(self, e: Expr) -> Expr:
        """|e|, and 0 where it is infinite or NaN; a product where e is one, so that sums of it stay contractions."""
        if e not in self.magnitudes:
            self.magnitudes[e] = self._magnitude(e)
        return self.magnitudes[e]

    def _magnitude(self, e: Expr) -> Expr:
        match e:
            case Apply(fn="neg" | "abs"):
                return self.magnitude(e.args[0])
            case Apply(fn="mul"):
                return mul(self.magnitude(e.args[0]), self.magnitude(e.args[1]))
            case Select():
                return Select(e.cond, self.magnitude(e.then), self.magnitude(e.other))
            case Const():
                return const(abs(float(e.value))) if math.isfinite(e.value) else ZERO
            case Read(source=Slot() as slot):
                return Read(self._sized(slot), e.indices)
        return finite(e)

    def _sized(self, slot: Slot) -> Slot:
        """The tensor of the magnitudes of an input, each worked out once however often it is read."""
        if slot not in self.sized:
            source, own = self.inputs[slot.position], Slot(0, slot.shape, slot.dtype)
            axes = tuple(Axis(d, n) if n > 1 else affine.integer(0) for d, n in enumerate(slot.shape))
            body = finite(Read(own, axes))
            self.sized[slot] = self._slot(
                Compute(Definition(slot.shape, body, (own,)), (source,), f"size of {source.name}")
            )
        return self.sized[slot]

    def spread(self, e: Expr) -> Spread:
        if e not in self.spreads:
            self.spreads[e] = self._spread(e)
        return self.spreads[e]

    def _spread(self, e: Expr) -> Spread:
        match e:
            case Const():
                value, eps = abs(float(e.value)), computed_in(e.dtype).eps
                stored = float(dt.NUMPY[e.dtype].type(e.value))
                return Spread((const(eps * value),) if math.isfinite(value) and stored != e.value else ())
            case Read():
                return Spread(self._present(*self._read(e)))
            case Select():
                return self._select(e)
            case Cast():
                return Spread(self._cast(e))
            case Reduce():
                return Spread(self._present(self._reduced(e)))
            case Apply(fn="neg" | "abs" | "relu"):
                return self.spread(e.args[0])
            case Apply(fn="mul"):
                return self._product(e, _factors(e))
            case Apply():
                return Spread(self._function(e), FUNCTIONS[e.fn].error or 0)
        raise TypeError(type(e).__name__)

    def _present(self, *terms: Expr | None) -> tuple[Expr, ...]:
        return tuple(t for t in terms if t is not None)

    def _read(self, e: Read) -> list[Expr | None]:
        """The bound of what is read, and the doubts of where."""
        read = self.gathered.get(e, e)
        slot = self.slots[read.slot]
        doubts = [self.error(i) for i in read.indices]
        if slot is None:
            return doubts
        error = Read(slot, read.indices)
        return [error if read is e else self._lookup(error), *doubts]

    def _select(self, e: Select) -> Spread:
        then, other = self.spread(e.then), self.spread(e.other)
        if self.has_sums:
            chosen = [Select(e.cond, t, ZERO) for t in then.terms] + [Select(e.cond, ZERO, t) for t in other.terms]
        else:
            one, two = (add(*s.terms) if s.terms else ZERO for s in (then, other))
            chosen = [Select(e.cond, one, two)] if then.terms or other.terms else []
        reach = None
        if then.reach is not None or other.reach is not None:
            one, two = (finite(x) if s.reach is None else s.reach for s, x in ((then, e.then), (other, e.other)))
            reach = Select(e.cond, one, two)
        if len(chosen) > MOST_TERMS:
            terms = self._present(self.error(e.cond), total(chosen))
        else:
            terms = self._present(self.error(e.cond), *chosen)
        return Spread(terms, max(then.roundings, other.roundings), reach)

    def _product(self, e: Expr, factors: list[Expr]) -> Spread:
        sizes, errors = [self.magnitude(f) for f in factors], [self.error(f) for f in factors]
        terms = []
        for n, error in enumerate(errors):
            if error is None:
                continue
            term = error
            for m, size in enumerate(sizes):
                grown = errors[m]
                if m != n:
                    term = mul(term, add(size, grown) if m < n and grown is not None else size)
            terms.append(term)
        if self.with_classes:
            terms.append(self._vanishing(e, factors, errors))
        reach = None
        if len(factors) > 2:
            reach = larger(sizes[0], const(1.0))
            for size in sizes[1:]:
                reach = mul(reach, larger(size, const(1.0)))
        return Spread(tuple(terms), len(factors) - 1, reach)

    def _vanishing(self, e: Expr, factors: list[Expr], errors: list[Expr | None]) -> Expr:
        """A doubt where an infinity meets what may be 0: a factor within its error, or a product of small ones."""
        sizes = [size_of(wide(f)) for f in factors]
        is_infinite = upto(DOUBT, larger(*sizes))
        least = Apply("minimum", (sizes[0], const(1.0)))
        for size in sizes[1:]:
            least = Apply("mul", (least, Apply("minimum", (size, const(1.0)))))
        doubt = both(upto(DOUBT, size_of(wide(e))), upto(least, const(computed_in(e.dtype).tiny)))
        for size, error in zip(sizes, errors, strict=True):
            if error is not None:
                doubt = Apply("or", (doubt, both(upto(size, error), is_infinite)))
        return Select(doubt, DOUBT, ZERO)

    def _function(self, e: Apply) -> tuple[Expr, ...]:
        args, errors = [wide(a) for a in e.args], [self.error(a) for a in e.args]
        if e.fn in ("sin", "cos") and e.dtype != WIDE:
            errors = [total([*errors, if_far(args[0])])]
        if all(x is None for x in errors):
            return ()
        if e.fn in ("add", "sub"):
            return self._present(*errors)
        if e.fn in ("maximum", "minimum"):
            return (larger(*self._present(*errors)),)
        if e.fn == "div":
            return (self._quotient(e, args, errors),)
        if e.fn in ("sin", "cos"):
            (error,) = self._present(*errors)
            return (add(Apply("minimum", (error, const(2.0))), if_doubt(error)),)
        assert FUNCTIONS[e.fn].monotone or e.fn == "pow", e.fn
        return (self._moved(e, args, errors),)

    def _quotient(self, e: Apply, args: list[Expr], errors: list[Expr | None]) -> Expr:
        dividend, divisor = errors
        size = size_of(args[1])
        if divisor is None:
            assert dividend is not None
            is_sure = below(dividend, size_of(args[0]))
            return Select(below(ZERO, size), Apply("div", (dividend, size)), Select(is_sure, if_doubt(dividend), DOUBT))
        carried = mul(divisor, finite(e)) if dividend is None else add(dividend, mul(divisor, finite(e)))
        any_error = divisor if dividend is None else add(dividend, divisor)
        certain = Apply("div", (carried, sub(size, divisor)))
        return Select(below(divisor, size), certain, Select(below(ZERO, any_error), DOUBT, ZERO))

    def _moved(self, e: Apply, args: list[Expr], errors: list[Expr | None]) -> Expr:
        """How far a function moves between the corners of its arguments' bounds."""
        value = Apply(e.fn, tuple(args))
        corners: list[tuple[Expr, ...]] = [()]
        for a, error in zip(args, errors, strict=True):
            ends = (a,) if error is None else (add(a, error), sub(a, error))
            corners = [(*c, x) for c in corners for x in ends]
        reach = larger(*(size_of(sub(Apply(e.fn, c), value)) for c in corners))
        error = total(errors)
        assert error is not None
        inside = both(below(ZERO, error), below(error, DOUBT))
        for a in args:
            inside = both(inside, below(size_of(a), DOUBT))
        return Select(inside, Select(upto(ZERO, reach), reach, DOUBT), if_doubt(error))

    def _cast(self, e: Cast) -> tuple[Expr, ...]:
        error = self.error(e.arg)
        if not dt.is_float(e.arg.dtype):
            low, high = affine.bounds(e.arg) if e.arg.dtype != "bool" else (0, 1)
            if max(abs(low), abs(high)) <= computed_in(e.dtype).whole and e.dtype in ("float32", WIDE):
                return self._present(error)
            return (self._rounded(finite(e.arg), Spread((), 1), error, FORMATS[e.dtype], True),)
        return self._present(self._stored(e.arg, error, e.dtype))

    def _stored(self, value: Expr, error: Expr | None, dtype: str) -> Expr | None:
        """The bound of a value after it is rounded to a type: no change where the type is the one it is computed in."""
        if not dt.is_float(dtype) or FORMATS[dtype].eps <= computed_in(value.dtype).eps:
            return error
        if value.dtype == dtype and isinstance(value, Read | Cast):
            return error
        return self._rounded(self.magnitude(value), Spread((), 1), error, FORMATS[dtype], self.whole.has(value))

    # --------------------------------------------------------------------------------------------- reductions

    def _reduced(self, e: Reduce) -> Expr | None:
        count = math.prod(a.extent for a in e.axes)
        if e.op in ("max", "min"):
            error = self.error(e.body)
            return None if error is None else Reduce("max", e.axes, error)
        if e.op == "prod":
            return self._multiplied(e, count)
        spread = self.spread(e.body)
        parts = [mul(t, count) if isinstance(t, Const) else Reduce("sum", e.axes, t) for t in spread.terms]
        size = Reduce("sum", e.axes, self.magnitude(e.body))
        reach = None if spread.reach is None else Reduce("sum", e.axes, spread.reach)
        how = Spread((), _steps(count) + spread.roundings, reach, count)
        return self._rounded(size, how, total(parts), computed_in(e.dtype), self.whole.has(e.body))

    def _multiplied(self, e: Reduce, count: int) -> Expr:
        error, size, form = self.error(e.body), self.magnitude(e.body), computed_in(e.dtype)
        grown = size if error is None else add(size, error)
        exact, most = Reduce("prod", e.axes, size), Reduce("prod", e.axes, grown)
        partial = Reduce("prod", e.axes, larger(grown, const(1.0)))
        moved = sub(most, exact)
        own = add(mul(most, count * form.eps), mul(partial, count * form.tiny))
        if self.whole.has(e.body):
            own = Select(upto(partial, const(form.whole)), ZERO, own)
        total = own if error is None else add(size_of(moved), own)
        return Select(upto(partial, const(form.largest)), total, DOUBT)


def _in_a_row(count: int) -> int:
    """Roundings of the sum of magnitudes that `count` terms added one after the other amount to."""
    return 4 + math.ceil(min(count, 2 * math.sqrt(count)))


def _steps(count: int) -> int:
    """The same of a sum of `count` terms in blocks."""
    return min(_in_a_row(count), 4 + math.ceil(2 * levels(count) * math.sqrt(BLOCK)))


def _factors(e: Expr) -> list[Expr]:
    """The factors of a product, signs dropped, which a kernel takes in any order; of a longer one its operands."""
    found: list[Expr] = []
    stack = [e]
    while stack:
        if len(found) + len(stack) > MOST_FACTORS:
            return list(e.children)
        part = stack.pop()
        if isinstance(part, Apply) and part.fn in ("mul", "neg"):
            stack += reversed(part.args)
        else:
            found.append(part)
    return found

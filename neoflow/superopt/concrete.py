"""Terms at numbers: families become definitions again, terms computes over given tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neoflow.errors import GraphError
from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select
from neoflow.expr.ir import Slot as Source
from neoflow.expr.tensor import Compute, Tensor
from neoflow.superopt.body import Body, Both, Call, Choose, Condition, Count, Family, Holds, Number, Over, Place, Slot
from neoflow.superopt.forms import Form, Quotient
from neoflow.superopt.term import Term, Variable, parts


def operator(
    family: Family, sizes: Mapping[str, int], inputs: Sequence[Tensor], dtype: str, label: str = ""
) -> Compute:
    """A family at sizes, of tensors of one type.

    Raises `GraphError` where the tensors do not fit, `ExpressionError` where a read leaves them.
    """
    for n, (slot, t) in enumerate(zip(family.slots, inputs, strict=True)):
        shape = tuple(f.value(sizes) for f in slot)
        if shape != t.shape:
            raise GraphError(f"{family.name} takes {shape} as argument {n}, not {t.shape}", t.where)
    shape = tuple(f.value(sizes) for f in family.shape)
    body = _Writer(family, sizes, dtype, inputs).body(family.body)
    return build(shape, body, tuple(inputs), label or family.name)


def computed(
    term: Term, sizes: Mapping[str, int], tensors: Mapping[str, Tensor], dtype: str, label: str = ""
) -> Tensor:
    """A term at sizes, of the tensors of one type that its variables stand for; equal parts are one tensor."""
    known: dict[int, Tensor] = {}
    made: dict[tuple, Tensor] = {}
    for t in parts(term):
        if isinstance(t, Variable):
            known[id(t)] = tensors[t.name]
            continue
        own = {s: f.value(sizes) for s, f in t.sizes}
        inputs = [known[id(a)] for a in t.args]
        key = (t.family.key, *own.values(), *(i.uid for i in inputs))
        if key not in made:
            made[key] = operator(t.family, own, inputs, dtype, label if t is term else "")
        known[id(t)] = made[key]
    return known[id(term)]


class _Writer:
    def __init__(self, family: Family, sizes: Mapping[str, int], dtype: str, inputs: Sequence[Tensor]):
        self.sizes, self.dtype, self.inputs = sizes, dtype, inputs
        self.axes: dict[str, Expr] = {
            a: Axis(n, f.value(sizes)) for n, (a, f) in enumerate(zip(family.axes, family.shape, strict=True))
        }
        self.count = len(self.axes)

    def form(self, f: Form) -> Expr:
        constant, terms = f.constant, list[tuple[Expr, int]]()
        for atom, k in f.terms:
            if isinstance(atom, Quotient):
                terms.append((Apply("floordiv", (self.form(atom.form), affine.integer(atom.divisor))), k))
            elif atom in self.axes:
                terms.append((self.axes[atom], k))
            else:
                constant += k * self.sizes[atom]
        total: Expr = affine.integer(constant)
        for e, k in terms:
            total = Apply("add", (total, Apply("mul", (affine.integer(k), e))))
        return affine.simplify(total)

    def body(self, b: Body) -> Expr:
        match b:
            case Number():
                return Const(b.value, self.dtype)
            case Count():
                count = 1
                for f in b.extents:
                    count *= f.value(self.sizes)
                return Const(float(count) ** b.power, self.dtype)
            case Place():
                return Cast(self.dtype, self.form(b.form))
            case Slot():
                t = self.inputs[b.position]
                return Read(Source(b.position, t.shape, t.dtype), tuple(map(self.form, b.indices)))
            case Call("select", (condition, then, other)):
                return Select(self.body(condition), self.body(then), self.body(other))
            case Call():
                return Apply(b.fn, tuple(map(self.body, b.args)))
            case Choose():
                return Select(self.condition(b.condition), self.body(b.then), self.body(b.other))
            case Over():
                own = []
                for a, f in b.axes:
                    axis = self.axes[a] = Axis(self.count, f.value(self.sizes))
                    self.count += 1
                    own.append(axis)
                return Reduce(b.op, tuple(own), self.body(b.body))

    def condition(self, c: Condition) -> Expr:
        if isinstance(c, Holds):
            terms, constant = affine.linear(self.form(c.form))
            return affine.simplify(_compared(terms, constant, c.is_equal))
        return affine.simplify(
            Apply("and" if isinstance(c, Both) else "or", (self.condition(c.a), self.condition(c.b)))
        )


def _compared(terms: Mapping[Expr, int], constant: int, is_equal: bool) -> Expr:
    """terms + constant >= 0, or == 0, as one writes it: i >= 1, i < 3."""
    falls = bool(terms) and all(k < 0 for k in terms.values())
    left = affine.from_linear(({e: -k if falls else k for e, k in terms.items()}, 0))
    if is_equal:
        return Apply("eq", (left, affine.integer(constant if falls else -constant)))
    if falls:
        return Apply("lt", (left, affine.integer(constant + 1)))
    return Apply("ge", (left, affine.integer(-constant)))

"""What holds of a family whatever it is applied to: found by walking its body, and proved.

    linear in x         op(x + y) = op(x) + op(y)                           and op(c * x) = c * op(x)
    passes d            op(concat(x, x'), w) = concat(op(x, w), op(x', w))  axis d of the result is one of x, untouched
    sums over k         op(concat(x, x'), concat(w, w')) = op(x, w) + op(x', w')
    pointwise           op(x[f]) = op(x)[f] for every reindexing f: each element is made of those at its own place
    reindexing          op only moves elements: it composes with others to one
    symmetric x, y      op(x, y) = op(y, x)
    associative x, y    op(op(x, y), z) = op(x, op(y, z))
    homogeneous in x    op(c * x) = c * op(x) for c > 0
    keeps zero in x     op(0) = 0, so padding with zeros moves through where the axes do
    zero                op(x) = 0, whatever x is: what is left of a product with a state that begins at zero

Whatever is a `Statement` is proved by the prover; pointwise, reindexing and homogeneous follow from the body's form, by
induction over it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from neoflow.errors import GraphError
from neoflow.superopt.body import Body, Call, Choose, Count, Family, Holds, Number, Over, Place, Slot
from neoflow.superopt.body import inner as bodies
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.prove import Proof, Statement, prove
from neoflow.superopt.term import Application, Shape, Term, Variable, apply

KINDS = (
    *("linear", "passes", "sums", "pointwise", "reindexing", "symmetric", "associative", "homogeneous", "keeps zero"),
    "zero",
)


@dataclass(frozen=True)
class Property:
    """kind: one of `KINDS`. slots: the arguments it is about, each with the dimension of it, None for all of it. axis:
    of the result, where it is about one. statements: what was proved, and how; none where it follows from the form."""

    kind: str
    slots: tuple[tuple[int, int | None], ...]
    axis: int | None = None
    statements: tuple[Statement, ...] = ()
    proofs: tuple[Proof, ...] = ()

    def __str__(self) -> str:
        about = ", ".join(f"argument {n}" + (f" along {d}" if d is not None else "") for n, d in self.slots)
        result = f" to axis {self.axis}" if self.axis is not None else ""
        proofs = "; ".join(dict.fromkeys(map(str, self.proofs)))
        where = f" in {about}" if about else ""
        return f"{self.kind}{where}{result}{f' ({proofs})' if proofs else ''}"


def properties(family: Family) -> tuple[Property, ...]:
    """Every property of a family that is proved."""
    return tuple(each_property(family))


def each_property(family: Family) -> Iterator[Property]:
    """`properties` one by one, for who has not the time for all: a proof may take a second."""
    for p in _stated(family):
        proofs = [proof for s in p.statements if isinstance(proof := prove(s), Proof)]
        if len(proofs) == len(p.statements):
            yield replace(p, proofs=tuple(proofs))
    yield from _of_form(family)


# ------------------------------------------------------------------------------------------- operators that rules need


def pointwise(fn: str, shape: Shape) -> Family:
    """`fn` of the elements of two tensors of a shape."""
    axes, symbols = _axes(len(shape)), tuple(name(f"E{d}") for d in range(len(shape)))
    own = tuple(map(name, axes))
    body = Call(fn, (Slot(0, own), Slot(1, own)))
    return Family((symbols, symbols), symbols, axes, body, name=f"{fn}{len(shape)}").canonical


def scaling(shape: Shape) -> Family:
    """A tensor of a shape times a number."""
    axes, symbols = _axes(len(shape)), tuple(name(f"E{d}") for d in range(len(shape)))
    body = Call("mul", (Slot(0, tuple(map(name, axes))), Slot(1, ())))
    return Family((symbols, ()), symbols, axes, body, name=f"scale{len(shape)}").canonical


def _axes(rank: int) -> tuple[str, ...]:
    return tuple(f"i{d}" for d in range(rank))


def concatenation(rank: int, dim: int) -> Family:
    """Two tensors, one behind the other along a dimension."""
    axes = _axes(rank)
    own = tuple(map(name, axes))
    first = tuple(name(f"E{d}") for d in range(rank))
    second = _with(first, dim, name("F"))
    behind = _with(own, dim, own[dim] - first[dim])
    body = Choose(Holds(first[dim] - own[dim] - 1), Slot(0, own), Slot(1, behind))
    shape = _with(first, dim, first[dim] + name("F"))
    return Family((first, second), shape, axes, body, name=f"concat{dim}of{rank}").canonical


def _with(forms: Shape, dim: int, f: Form) -> Shape:
    return (*forms[:dim], f, *forms[dim + 1 :])


def applied(family: Family, args: Sequence[Term], changed: dict[str, Form]) -> Application:
    """A family at its own symbols, but for those that are changed."""
    sizes = tuple((s, changed.get(s, name(s))) for s in family.symbols)
    return Application(family, sizes, tuple(args))


def _args(family: Family, mark: str = "") -> list[Term]:
    return [Variable(f"x{n}{mark}", slot) for n, slot in enumerate(family.slots)]


# ------------------------------------------------------------------------------------------------- what may hold


def _stated(family: Family) -> Iterator[Property]:
    every = range(len(family.slots))
    for slots in [(n,) for n in every] + ([tuple(every)] if len(every) > 1 else []):
        yield _linear(family, slots)
        yield _keeps_zero(family, slots)
    if family.slots and _multiplies_by_zero(family.body):
        yield replace(_keeps_zero(family, ()), kind="zero")
    for symbol in family.symbols:
        yield from _along(family, symbol)
    for m, n in itertools.combinations(every, 2):
        yield from _symmetric(family, m, n)
    if len(family.slots) == 2 and family.slots[0] == family.slots[1] == family.shape:
        yield _associative(family)


def _linear(family: Family, slots: Sequence[int]) -> Property:
    """In some arguments at once: a concatenation is linear in all of its parts."""
    args, others, factor = _args(family), _args(family, "b"), Variable("c", ())
    sums: list[Term] = list(args)
    scaled: list[Term] = list(args)
    second = list(args)
    for n in slots:
        sums[n] = apply(pointwise("add", family.slots[n]), args[n], others[n])
        scaled[n] = apply(scaling(family.slots[n]), args[n], factor)
        second[n] = others[n]
    whole = applied(family, args, {})
    added = apply(pointwise("add", family.shape), whole, applied(family, second, {}))
    statements = (
        Statement(applied(family, sums, {}), added),
        Statement(applied(family, scaled, {}), apply(scaling(family.shape), whole, factor)),
    )
    return Property("linear", tuple((n, None) for n in slots), None, statements)


def _keeps_zero(family: Family, slots: Sequence[int]) -> Property:
    args = _args(family)
    for n in slots:
        args[n] = _zeros(family, family.slots[n])
    statement = Statement(applied(family, args, {}), _zeros(family, family.shape))
    return Property("keeps zero", tuple((n, None) for n in slots), None, (statement,))


def _multiplies_by_zero(b: Body) -> bool:
    """Whether anything in a body is multiplied by the number 0."""
    return any(isinstance(e, Call) and e.fn == "mul" and Number(0.0) in e.args for e in bodies(b))


def _zeros(family: Family, shape: Shape) -> Application:
    zeros = Family((), shape, _axes(len(shape)), Number(0.0), name="zeros")
    zeros = replace(zeros, offsets=family.offsets & {*zeros.symbols})
    return applied(zeros, (), {})


def _along(family: Family, symbol: str) -> Iterator[Property]:
    """Along the dimensions whose extent is one symbol: an axis that passes through, or one that is summed over."""
    if symbol in family.offsets:
        return
    where = [(n, d) for n, s in enumerate(family.slots) for d, f in enumerate(s) if f == name(symbol)]
    slots = [n for n, _ in where]
    if not where or len(set(slots)) < len(slots):
        return
    second = "Z"
    args: list[Term] = _args(family)
    halves = [list(args), list(args)]
    for n, d in where:
        first = Variable(f"x{n}", family.slots[n])
        behind = Variable(f"x{n}b", _with(family.slots[n], d, name(second)))
        halves[0][n], halves[1][n] = first, behind
        args[n] = apply(concatenation(len(family.slots[n]), d), first, behind)
    whole = name(symbol) + name(second)
    axes = [d for d, f in enumerate(family.shape) if f == name(symbol)]
    bound = tuple(where)
    source = applied(family, args, {symbol: whole})
    parts = applied(family, halves[0], {}), applied(family, halves[1], {symbol: name(second)})
    if not axes:
        if any(f != form(0) and symbol in f.names for f in family.shape):
            return
        yield Property("sums", bound, None, (Statement(source, apply(pointwise("add", family.shape), *parts)),))
    for axis in axes if len(axes) == 1 else ():
        target = apply(concatenation(len(family.shape), axis), *parts)
        yield Property("passes", bound, axis, (Statement(source, target),))


def _symmetric(family: Family, m: int, n: int) -> Iterator[Property]:
    """Where the two arguments have one shape."""
    if len(family.slots[m]) != len(family.slots[n]):
        return
    equal = {}
    for a, b in zip(family.slots[m], family.slots[n], strict=True):
        if a != b:
            if a.alone is None or b.alone is None:
                return
            equal[b.alone] = a
    if any(s in f.names for f in equal.values() for s in equal):
        return
    args: list[Term] = [Variable(f"x{k}", tuple(f.put(equal) for f in s)) for k, s in enumerate(family.slots)]
    swapped = list(args)
    swapped[m], swapped[n] = args[n], args[m]
    try:
        sides = applied(family, args, equal), applied(family, swapped, equal)
    except GraphError:
        return
    yield Property("symmetric", ((m, None), (n, None)), None, (Statement(*sides),))


def _associative(family: Family) -> Property:
    """Where both arguments have the shape of the result."""
    x, y, z = (Variable(label, family.shape) for label in "xyz")
    first = applied(family, [applied(family, [x, y], {}), z], {})
    second = applied(family, [x, applied(family, [y, z], {})], {})
    return Property("associative", ((0, None), (1, None)), None, (Statement(first, second),))


# ------------------------------------------------------------------------------------------- what the form itself says


def _of_form(family: Family) -> Iterator[Property]:
    every = tuple((n, None) for n in range(len(family.slots)))
    if every and is_pointwise(family):
        yield Property("pointwise", every)
    if is_reindexing(family):
        yield Property("reindexing", every)
    for n in range(len(family.slots)):
        if degree(family.body, n) == 1:
            yield Property("homogeneous", ((n, None),))


def is_pointwise(family: Family) -> bool:
    """Whether axes stand only in reads, which are all at the result's own place: then a reindexing of the result is one
    of what is read, since it substitutes the same indices on both sides."""
    own = tuple(map(name, family.axes))
    if any(slot not in (family.shape, ()) for slot in family.slots):
        return False
    for b in bodies(family.body):
        if isinstance(b, Slot) and b.indices not in (own, ()):
            return False
        if isinstance(b, (Place, Choose, Over)):
            return False
    return any(isinstance(b, Slot) and b.indices == own for b in bodies(family.body))


def is_reindexing(family: Family) -> bool:
    """Whether each element is one of what is read, or 0."""
    return len(family.slots) > 0 and _moves(family.body)


def _moves(b: Body) -> bool:
    match b:
        case Slot() | Number(value=0.0):
            return True
        case Choose():
            return _moves(b.then) and _moves(b.other)
    return False


_ALIKE = ("relu", "abs", "neg", "maximum", "minimum", "add", "sub")
"""Functions of which f(c * x, c * y) = c * f(x, y) for c > 0."""
ANY = -1
"""The degree of zero, and of infinity among what is compared: every one."""


def degree(b: Body, slot: int) -> int | None:
    """k where the body times c^k is what it is of c times the argument, c > 0; `ANY`, or None where there is none."""
    match b:
        case Slot():
            return int(b.position == slot)
        case Number():
            return ANY if b.value == 0 or math.isinf(b.value) else 0
        case Count() | Place():
            return 0
        case Call("mul" | "div", (x, y)):
            left, right = degree(x, slot), degree(y, slot)
            if left is None or right is None or ANY in (left, right):
                return ANY if left == ANY and right is not None and b.fn == "mul" and right != ANY else None
            total = left + right if b.fn == "mul" else left - right
            return total if total >= 0 else None
        case Call(fn, args):
            found = _one([degree(a, slot) for a in args])
            return found if found in (None, 0) or (fn in _ALIKE and found in (1, ANY)) else None
        case Choose():
            return _one([degree(b.then, slot), degree(b.other, slot)])
        case Over():
            inside = degree(b.body, slot)
            return inside if b.op != "prod" or inside == 0 else None


def _one(degrees: Sequence[int | None]) -> int | None:
    """The degree of what is added or chosen among."""
    found = {d for d in degrees if d != ANY}
    return ANY if not found else found.pop() if len(found) == 1 else None

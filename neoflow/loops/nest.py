"""A subgraph as one kernel's formulas: producers inlined, reads flattened, axes fused. No loops yet, no tvm.

Reads of kernel inputs are flat: `Read(Slot(value number, (size,)), (address,))` with a simplified address, except
data-dependent ones, which keep an index per dimension because each is checked at run time. The anchor's value at the
point being written is `Read(Slot(its number, ()), ())`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

from neoflow.errors import CodegenError
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Slot, postorder, rewrite, substitute
from neoflow.expr.memo import from_below
from neoflow.graph import reads_at_own_point
from neoflow.partition.subgraph import Subgraph

FIRST_FUSED = 1 << 20
"""Idents of fused axes start here, above every axis of a definition."""

Boundary = tuple[bool, int]
"""Where two axes meet: whether both are reduced, and the position of the first."""


Formula = tuple[int, Expr, Expr]
"""Value number, address in its dense tensor, and what is there."""


@dataclass(frozen=True)
class Nest:
    """One kernel: for every point of `axes`, `outputs`; when `reduction` is given they read its result.

    outputs: a formula for each output of the subgraph. sums: of each sum that rides along, what it adds at a point, and
    the address of what that is added to. totals: the outputs that follow from these sums, which they read as
    `Read(Slot(value number, ()), ())`, at those addresses. others: what else is reduced at each point, over the axes of
    the reduction, by what the outputs read of it. terms: what is stored at each point of these axes, in their loop.
    """

    axes: tuple[Axis, ...]
    reduction: Reduce | None
    anchor: Read | None
    outputs: tuple[Formula, ...]
    sums: tuple[Formula, ...] = ()
    totals: tuple[Formula, ...] = ()
    others: tuple[tuple[Read, Reduce], ...] = ()
    terms: tuple[Formula, ...] = ()

    @property
    def bodies(self) -> tuple[Expr, ...]:
        """What is reduced, of every reduction."""
        return () if self.reduction is None else (self.reduction.body, *(r.body for _, r in self.others))

    @property
    def formulas(self) -> tuple[Formula, ...]:
        return self.outputs + self.sums + self.totals + self.terms

    @property
    def in_loop(self) -> tuple[Expr, ...]:
        """What is computed at each point of the axes that are reduced."""
        return self.bodies + tuple(e for _, address, value in self.terms for e in (address, value))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Every expression of the kernel."""
        return self.bodies + tuple(e for _, address, value in self.formulas for e in (address, value))

    def fused(self, apart: frozenset[Boundary] = frozenset()) -> Nest:
        """The same kernel over fewer, longer axes; axes stay apart at the boundaries of `apart`.

        Neighbours a, b become f with a = f // |b|, b = f % |b| wherever every address stays free of // and % of f.
        """
        return self.fusing(apart)[0]

    def fusing(self, apart: frozenset[Boundary], first: int = FIRST_FUSED) -> tuple[Nest, tuple[Boundary, ...]]:
        """`fused`, and the boundaries at which two axes, each longer than 1, became one. first: ident of a fused axis
        at least."""
        met: list[Boundary] = []
        nest = self._fuse(self.axes, False, apart, met, first, lambda n, axes: replace(n, axes=axes))
        if nest.reduction is not None:
            nest = nest._fuse(nest.reduction.axes, True, apart, met, first, _with_reduction_axes)
        return nest, tuple(sorted(met))

    def _fuse(
        self,
        axes: tuple[Axis, ...],
        reduced: bool,
        apart: frozenset[Boundary],
        met: list[Boundary],
        first: int,
        put: Callable[[Nest, tuple[Axis, ...]], Nest],
    ) -> Nest:
        nest, done = self, list(axes)
        for n in reversed(range(len(done) - 1)):
            outer, inner = done[n], done[n + 1]
            decides = outer.extent > 1 and inner.extent > 1
            if decides and (reduced, n) in apart:
                continue
            addresses = index_roots(nest.expressions)
            linear = [_go_as_one(e, outer, inner) for e in addresses] if decides else [None] * len(addresses)
            if False in linear:
                continue
            fused = fresh(nest, outer.extent * inner.extent, first)
            mapping = _split(fused, outer, inner)
            others = [e for e, found in zip(addresses, linear, strict=True) if found is None]
            if all(is_smooth(affine.simplify(substitute(e, mapping)), fused) for e in others):
                nest = nest.substituted(mapping)
                done[n : n + 2] = [fused]
                met += [(reduced, n)] if decides else []
        ones: dict[Expr, Expr] = {a: affine.integer(0) for a in done if a.extent == 1}
        if ones:
            nest, done = nest.substituted(ones), [a for a in done if a.extent > 1]
        return put(nest, tuple(done))

    def substituted(self, mapping: dict[Expr, Expr]) -> Nest:
        """Axes replaced by index expressions; the caller sets `axes` and the reduction's axes."""

        def of(formulas: tuple[Formula, ...]) -> tuple[Formula, ...]:
            return tuple((n, replaced(a, mapping), replaced(v, mapping)) for n, a, v in formulas)

        def reduced_so(r: Reduce) -> Reduce:
            return Reduce(r.op, r.axes, replaced(r.body, mapping))

        reduction = reduced_so(self.reduction) if self.reduction is not None else None
        others = tuple((anchor, reduced_so(r)) for anchor, r in self.others)
        made = of(self.outputs), of(self.sums), of(self.totals)
        found = replace(self, outputs=made[0], reduction=reduction, sums=made[1], totals=made[2])
        return replace(found, others=others, terms=of(self.terms))


def _with_reduction_axes(nest: Nest, axes: tuple[Axis, ...]) -> Nest:
    assert nest.reduction is not None
    reduction = Reduce(nest.reduction.op, axes, nest.reduction.body)
    others = tuple((anchor, Reduce(r.op, axes, r.body)) for anchor, r in nest.others)
    return replace(nest, reduction=reduction, others=others)


def fresh(nest: Nest, extent: int, first: int = FIRST_FUSED) -> Axis:
    reduced = nest.reduction.axes if nest.reduction is not None else ()
    used = max((a.ident for a in (*nest.axes, *reduced, *_free(nest.expressions))), default=0)
    return Axis(max(used + 1, first), extent)


def _free(expressions: tuple[Expr, ...]) -> set[Axis]:
    return set().union(*(e.free for e in expressions)) if expressions else set()


def _go_as_one(address: Expr, outer: Axis, inner: Axis) -> bool | None:
    """Whether an address that is linear in two axes goes along them as one; None where it is not linear."""
    terms, _ = affine.linear(address)
    for atom in terms:
        if atom is not outer and atom is not inner and (outer in atom.free or inner in atom.free):
            return None
    return terms.get(outer, 0) == terms.get(inner, 0) * inner.extent


def _split(fused: Axis, outer: Axis, inner: Axis) -> dict[Expr, Expr]:
    extent = affine.integer(inner.extent)
    return {outer: Apply("floordiv", (fused, extent)), inner: Apply("mod", (fused, extent))}


def index_roots(expressions: tuple[Expr, ...]) -> list[Expr]:
    """The maximal integer expressions over axes: addresses, the sides of comparisons, casts of axes."""
    roots: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(expressions)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_index(node):
            roots[node] = None
        else:
            stack.extend(node.children)
    return list(roots)


def _operands(e: Expr) -> tuple[Expr, ...]:
    """What integer arithmetic is of."""
    return e.args if isinstance(e, Apply) and e.dtype == dt.INDEX else ()


@from_below(_operands)
def is_index(e: Expr) -> bool:
    """Whether `e` is integer arithmetic of axes and constants alone."""
    match e:
        case Axis():
            return True
        case Const():
            return e.dtype == dt.INDEX
        case Apply():
            return e.dtype == dt.INDEX and all(map(is_index, e.args))
    return False


def is_smooth(e: Expr, fused: Axis) -> bool:
    """No // or % of the fused axis."""
    return not any(isinstance(n, Apply) and n.fn in ("floordiv", "mod") and fused in n.free for n in postorder(e))


def replaced(e: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """Axes replaced and every index simplified again."""
    return simplified(substitute(e, mapping)) if mapping else e


def simplified(e: Expr) -> Expr:
    """Every index and condition simplified."""

    def rule(node: Expr) -> Expr | None:
        if is_index(node):
            return affine.simplify(node)
        if isinstance(node, Apply) and node.dtype == "bool" and all(is_index(a) for a in node.args):
            return affine.simplify(node)
        return None

    return rewrite(e, rule)


def is_data_dependent(read: Read) -> bool:
    """Whether an index of the read is itself read from a tensor, and so is checked at run time."""
    return not all(is_index(i) for i in read.indices)


def reduced(nest: Nest) -> Reduce:
    """What a nest that reduces does."""
    assert nest.reduction is not None
    return nest.reduction


def flat_address(shape: tuple[int, ...], indices: tuple[Expr, ...]) -> Expr:
    """Position in a dense row-major tensor."""
    terms: dict[Expr, int] = {}
    constant, stride = 0, 1
    for extent, index in zip(reversed(shape), reversed(indices), strict=True):
        form, offset = affine.linear(index)
        for atom, coefficient in form.items():
            terms[atom] = terms.get(atom, 0) + coefficient * stride
        constant += offset * stride
        stride *= extent
    return affine.simplify(affine.from_linear(({a: c for a, c in terms.items() if c}, constant)))


def _anchor_read(subgraph: Subgraph) -> Read | None:
    """The anchor's value at the point being written."""
    if subgraph.anchor is None:
        return None
    number = len(subgraph.inputs) + subgraph.anchor
    return Read(Slot(number, (), subgraph.value(number).dtype), ())


def _total(subgraph: Subgraph, number: int) -> Read:
    """What a sum that rides along is in the end."""
    return Read(Slot(number, (), subgraph.value(number).dtype), ())


def _bodies(subgraph: Subgraph, wanted: Iterable[int]) -> dict[int, Expr]:
    """The bodies of some nodes over kernel inputs, producers inlined."""
    first, anchor = len(subgraph.inputs), subgraph.anchor
    anchor_read = _anchor_read(subgraph)

    def body(number: int) -> Expr:
        own = subgraph.nodes[number]

        def rule(node: Expr) -> Expr | None:
            if not isinstance(node, Read):
                return None
            source = own.inputs[node.slot]
            if source < first:
                return input_read(source, node)
            if source - first == anchor:
                return rounded(cast(Read, anchor_read))
            if source in subgraph.riders:
                return rounded(_total(subgraph, source))
            producer = subgraph.nodes[source - first].definition
            inlined = bodies[source - first]
            if not reads_at_own_point(node, producer.shape):
                inlined = replaced(inlined, dict(zip(producer.axes, node.indices, strict=True)))
            return rounded(inlined)

        return simplified(rewrite(own.definition.body, rule))

    bodies: list[Expr] = []
    for number in range(len(subgraph.nodes)):
        bodies.append(body(number))
    return {n: flat(bodies[n], first) for n in wanted}


@dataclass(frozen=True)
class ScatterNest:
    """A kernel that adds `value` at `targets` (one index for each dimension of `shape`) for every point of `axes`."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    targets: tuple[Expr, ...]
    value: Expr

    @property
    def columns(self) -> Axis | None:
        """The axis that is the index of the last dimension and of no other: its points go to neighbours in memory."""
        last = self.targets[-1]
        used = any(last in t.free for t in self.targets[:-1]) if isinstance(last, Axis) else True
        return None if used or not isinstance(last, Axis) else last


def scatter_of(subgraph: Subgraph) -> ScatterNest | None:
    """The kernel of a subgraph whose anchor scatters; None for any other."""
    if subgraph.anchor is None:
        return None
    body = _bodies(subgraph, [subgraph.anchor])[subgraph.anchor]
    if not isinstance(body, Scatter):
        return None
    shape = subgraph.nodes[subgraph.anchor].definition.shape
    return ScatterNest(shape, body.axes, body.targets, body.body)


def nest_of(subgraph: Subgraph) -> Nest:
    """The kernel of a subgraph, axes not yet fused."""
    first, anchor = len(subgraph.inputs), subgraph.anchor
    wanted = {o - first for o in (*subgraph.outputs, *subgraph.riders)} | ({anchor} if anchor is not None else set())
    anchor_read, bodies = _anchor_read(subgraph), _bodies(subgraph, wanted)
    shape = subgraph.value(subgraph.outputs[0]).shape
    axes = tuple(Axis(i, n) for i, n in enumerate(shape))
    address = flat_address(shape, axes)
    outputs = []
    for o in (o for o in subgraph.outputs if o not in subgraph.behind):
        is_anchor = anchor is not None and o - first == anchor
        outputs.append((o, address, anchor_read if is_anchor else bodies[o - first]))
    reduction = bodies[anchor] if anchor is not None else None
    if reduction is not None and not isinstance(reduction, Reduce):
        raise CodegenError("the anchor's reduction is not at the root of its body")
    nest = Nest(axes, reduction, anchor_read, cast("tuple[Formula, ...]", tuple(outputs)))
    return _with_sums(nest, subgraph, bodies) if subgraph.riders else nest


def _with_sums(nest: Nest, subgraph: Subgraph, bodies: dict[int, Expr]) -> Nest:
    """The kernel with the sums that ride along, over the axes of its points."""
    first = len(subgraph.inputs)

    def address(number: int) -> Expr:
        kept = tuple(nest.axes[d] for d in subgraph.behind[number])
        return flat_address(subgraph.value(number).shape, kept)

    sums, totals = list[Formula](), list[Formula]()
    for number, at in subgraph.riders.items():
        reduce = cast(Reduce, bodies[number - first])
        sums.append((number, address(number), replaced(reduce.body, dict(zip(at, nest.axes, strict=True)))))
    for number in (o for o in subgraph.outputs if o in subgraph.behind):
        own = subgraph.nodes[number - first].definition.axes
        kept: dict[Expr, Expr] = dict(zip(own, (nest.axes[d] for d in subgraph.behind[number]), strict=True))
        value = _total(subgraph, number) if number in subgraph.riders else replaced(bodies[number - first], kept)
        totals.append((number, address(number), value))
    return replace(nest, sums=tuple(sums), totals=tuple(totals))


def rounded(e: Expr) -> Expr:
    """A tensor of a narrow float has that precision although it is never stored."""
    return Cast(e.dtype, e) if e.dtype in ("float16", "bfloat16") else e


def input_read(number: int, read: Read) -> Read:
    """A node's read of a kernel input. It keeps an index per dimension until nothing takes the place of an axis in it
    any more, see `flat`: that may be data, which is checked by the extent of its own dimension."""
    return Read(Slot(number, read.source.shape, read.dtype), read.indices)


def flat(body: Expr, inputs: int) -> Expr:
    """A body whose reads of the first `inputs` values are flat unless data-dependent."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.slot >= inputs or is_data_dependent(node):
            return None
        return flat_read(node)

    return rewrite(body, rule)


def flat_read(read: Read) -> Read:
    """The same read by the address alone."""
    shape = read.source.shape
    return Read(Slot(read.slot, (math.prod(shape),), read.dtype), (flat_address(shape, read.indices),))


def stride(address: Expr, axis: Axis) -> int | None:
    """How far a step of `axis` moves `address`; None when that is not one number."""
    terms, _ = affine.linear(address)
    if any(axis in atom.free for atom in terms if atom is not axis):
        return None
    return terms.get(axis, 0)


def pitch(address: Expr, axis: Axis, element: str) -> int:
    """Bytes by which a step of `axis` moves `address`, forward or back; 0 where that is not one number."""
    return abs(stride(address, axis) or 0) * dt.itemsize(element)


def input_reads(e: Expr) -> list[Read]:
    """Reads of kernel inputs; the anchor's own value is not one."""
    return [n for n in postorder(e) if isinstance(n, Read) and n.indices]

"""The adjoint of one definition: from the cotangent of its value to a contribution for each tensor it reads.

Derived once for each definition and replayed (`Recipe`). Every read gives a term of its own, in gather form:

    y[i] = sum[r](F(..., A[f(i, r)], ...))    ->    dA[z] = sum over (i, r) with f(i, r) = z of  g[i] * dF/dA(i, r)

with (i, r) solved for z by `solve` and summed by `gather`, which splits a strided read's term by residues of z.

Where windows are few and large (most elements near a border) the products are summed first over the axes the read
does not use, and gathered after; where an index is data, they are scattered.

Source: NeoFlow, section 4.2.
"""

from __future__ import annotations

import itertools
import math

from neoflow.autodiff import rules, slices
from neoflow.autodiff.gather import IDENTS, gather, split_by_residue
from neoflow.autodiff.solve import solve
from neoflow.errors import Location
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.functions import ARG_REDUCERS
from neoflow.expr.guards import Guards, conjuncts
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
    postorder,
    rewrite,
    substitute,
)
from neoflow.expr.locality import memory_order, stays_inside
from neoflow.expr.memo import remembered
from neoflow.expr.normal import conjunction, normal_form, opened
from neoflow.expr.recipe import Name, Recipe, derived, stand_ins
from neoflow.expr.spans import factored, together
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, tensor_of, topological
from neoflow.expr.traits import is_exact

_BORDER, _REUSE = 1.5, 16
"""Points that share a place are summed first where they are so many and gathering visits so many times all points."""
_FAR, _ONCE = 1 << 18, 4
"""Elements of an operand, about those of a core's second-level cache, from which it had better be read once and in its
own order, where sums of what shares a place are fewer than these; so many times fewer, where one gathered sum reads it.
1.1 to 1.8 times as fast for 256 and 512 channels of 3x3, stride 2, 1.3 without strides."""
_MAX_PATHS = 16
"""Paths through selects to one expression that are told apart: nested selects that share their branches have as many as
there are ways through them."""
_SPARSE = 4
"""What is zero at so many of its points but one is computed at the others by itself, and put there: a step of a
recurrence that reads a diagonal of a table. Chosen, not measured."""
_SCATTER_GAIN = 2
"""A term is scattered where gathering visits so many times the points that are written and read: adding in memory is
slower than in a register. Chosen, not measured."""


@remembered
def adjoint(definition: Definition, positions: frozenset[int]) -> Recipe:
    """Contributions to the slots at `positions`, over inputs (slots..., value y, cotangent g); None: no gradient."""
    forward = normal_form(definition)
    (result,) = forward.outputs
    assert isinstance(result, Compute)
    y = Placeholder(result.shape, result.dtype, "y", None)
    g = Placeholder(result.shape, result.dtype, "g", None)
    order = topological([result])
    wanted: set[Tensor] = {forward.inputs[n] for n in positions}
    for t in order:
        if isinstance(t, Compute) and not wanted.isdisjoint(t.inputs):
            wanted.add(t)
    cotangents: dict[Tensor, list[Tensor]] = {result: [g]}
    for t in reversed(order):
        if not isinstance(t, Compute) or t not in cotangents or not dt.is_float(t.dtype):
            continue
        value = y if t is result else t
        for source, terms in contributions(t, value, accumulate(cotangents[t], _d(t)), wanted).items():
            cotangents.setdefault(source, []).extend(terms)
    outputs = tuple(accumulate(cotangents[s], _d(s)) if s in cotangents else None for s in forward.inputs)
    return Recipe((*forward.inputs, y, g), outputs)


@remembered
def adjoint_of_padded(definition: Definition, position: int, padding: Definition) -> Recipe | None:
    """The contribution to x, where `definition` is a sum that reads  `padding` of x  at `position`; None for others.

        xp[u] = select(inside(u), x[u - 1], 0),   y[i] = sum[r](xp[2*i + r] * w[r])     ->    dx[z] = sum[s](...)

    without dxp, whose border nobody needs. Over inputs (slots of `definition` with x for xp, value y, cotangent g).
    """
    if not (isinstance(definition.body, Reduce) and definition.body.op == "sum" and _is_padding(padding)):
        return None
    x = Placeholder(padding.slots[0].shape, padding.slots[0].dtype, Name("", position, ""), None)
    inputs = stand_ins(definition)
    element, padded = opened(padding.body, (x,)), inputs[position]

    def read_x(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.source is padded:
            return substitute(element, dict(zip(padding.axes, e.indices, strict=True)))
        return None

    whole = define(definition.shape, definition.axes, rewrite(opened(definition.body, inputs), read_x), "y")
    at = next((n for n, t in enumerate(whole.inputs) if t is x), None)
    if at is None:  # every point that is read lies in the border
        return None
    recipe = adjoint(whole.definition, frozenset((at,)))
    *_, y, g = recipe.inputs
    part = recipe.instantiate((*whole.inputs, y, g))[at]
    return Recipe((*inputs[:position], x, *inputs[position + 1 :], y, g), (part,))


def _is_padding(definition: Definition) -> bool:
    """select(..., x[axes shifted by constants], constant)"""
    match definition.body:
        case Select(then=Read(indices=indices), other=Const()) if len(definition.slots) == 1:
            forms = [affine.linear(i)[0] for i in indices]
            places = [a for terms in forms for a in terms]
            is_shift = all(isinstance(a, Axis) and terms[a] == 1 and len(terms) == 1 for terms in forms for a in terms)
            return is_shift and len(set(places)) == len(places)
    return False


def _d(t: Tensor, suffix: str = "") -> str:
    """The name of the cotangent of t."""
    return derived(t.name, "d_", suffix)


def accumulate(terms: list[Tensor], name: str, where: Location | None = None) -> Tensor:
    """Their sum, element by element, as one compute; slices that lie beside each other are put there, not added.

    where: what they are the cotangent of was written there.
    """
    if len(terms) == 1:
        return terms[0]
    axes = fresh_axes(terms[0].shape)
    found = slices.beside_each_other(terms)
    joined = [
        slices.joined(g, axes, lambda same: accumulate(same, name, where), terms[0].dtype) for g in found.values()
    ]
    apart = {t for group in found.values() for t in group.terms}
    added = joined + [Read(t, axes) for t in terms if t not in apart]
    total = added[0]
    for e in added[1:]:
        total = Apply("add", (total, e))
    return define(terms[0].shape, axes, total, name, where)


def fresh_axes(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(next(IDENTS), n) for n in shape)


def contributions(t: Compute, value: Tensor, g: Tensor, wanted: set[Tensor]) -> dict[Tensor, list[Tensor]]:
    """For a compute in normal form: the terms it adds to the cotangent of each wanted float tensor it reads."""
    body = opened(t.definition.body, t.inputs)
    outputs = t.definition.axes
    if isinstance(body, Scatter):
        return {source: [term] for source, term in _cotangent_of_scattered(body, g).items() if source in wanted}
    inner, domain = body, outputs
    seed: Expr = Read(g, outputs)
    if isinstance(body, Reduce):
        if body.op in ARG_REDUCERS:
            return {}
        inner, domain = body.body, outputs + body.axes
        if body.op in ("max", "min"):
            inner, seed = _share_among_ties(t, body, value, g)
        elif body.op == "prod":
            seed = rules.mul(seed, _product_of_others(body))
    terms = cotangent_of_reads(inner, seed)
    reuse = {body: Read(value, outputs)} if body is inner else {}
    elementwise: dict[Tensor, list[tuple[Expr, tuple[Axis, ...]]]] = {}
    result: dict[Tensor, list[Tensor]] = {}
    for (read, guards), e in terms.items():
        source = tensor_of(read)
        if source not in wanted:
            continue
        targets = fresh_axes(source.shape)
        term = _rounded_late(read, rewrite(e, reuse.get) if reuse else e, guards, domain, targets)
        if isinstance(term, Tensor):
            result.setdefault(source, []).append(term)
        else:
            elementwise.setdefault(source, []).append((term, targets))
    for source, found in elementwise.items():
        axes = fresh_axes(source.shape)
        total: Expr | None = None
        for e, targets in found:
            e = substitute(e, dict(zip(targets, axes, strict=True)))
            total = e if total is None else rules.add(total, e)
        assert total is not None
        result.setdefault(source, []).append(define(source.shape, axes, total, _d(source)))
    return result


def _rounded_late(
    read: Read, e: Expr, guards: Guards, domain: tuple[Axis, ...], targets: tuple[Axis, ...]
) -> Tensor | Expr:
    """The same as `_term`. What comes through a cast of a narrow float is added in the wide type and rounded once.

    y[i] = sum[k](cast(x[i, k], float32) * w[k])   ->   dx[i, k] = cast(g[i] * w[k], float16), never a sum of such casts
    """
    if not (isinstance(e, Cast) and dt.is_float(e.arg.dtype) and dt.itemsize(e.dtype) < dt.itemsize(e.arg.dtype)):
        return _term(read, e, guards, domain, targets)
    term = _term(read, e.arg, guards, domain, targets)
    if not isinstance(term, Tensor):
        return Cast(e.dtype, term)
    return define(term.shape, targets, Cast(e.dtype, Read(term, targets)), _d(tensor_of(read)))


def _term(read: Read, e: Expr, guards: Guards, domain: tuple[Axis, ...], targets: tuple[Axis, ...]) -> Tensor | Expr:
    """The sum of e over the points of `domain` that read element `targets`: a tensor, or one point's expression.

    Of a read at constant indices it is that of the slice which is read, see `slices`. Else the cheapest of: gathering,
    by residue classes or not; storing sums over the axes the read does not use and gathering these, where windows are
    few and most places near a border, or an operand is large; scattering, where the index is data.
    """
    source = tensor_of(read)
    name = _d(source)
    constant = slices.constant_dims(read)
    if constant:
        inner = slices.slice_read(read, constant)
        own = fresh_axes(inner.source.shape)
        sliced = _term(inner, e, guards, domain, own)
        sliced = sliced if isinstance(sliced, Tensor) else define(inner.source.shape, own, sliced, name)
        return slices.in_place(sliced, source.shape, constant, fresh_axes(source.shape), name)
    points = math.prod(a.extent for a in domain)
    solution = solve(read.indices, targets, domain, IDENTS)
    if solution.matches and source.size * solution.trips > _SCATTER_GAIN * (source.size + points):
        return _scattered(read, e, guards, domain)
    split, visits = split_by_residue(solution, targets, e, guards, name)
    others = math.prod(a.extent for a in domain if all(a not in i.free for i in read.indices))
    is_sparse = visits > (_BORDER if others >= _REUSE else _SPARSE) * points
    places = points // others * (1 if split is not None else _ONCE)
    is_near = others >= _REUSE and _has_windows(read) and _largest(e) >= max(places, _FAR)
    if (is_sparse or is_near) and not solution.matches:
        e, over, guards = _summed_before_guards(read, e, guards, domain)
        solution = solve(read.indices, targets, over, IDENTS)
        split, _ = split_by_residue(solution, targets, e, guards, name)
    if split is not None:
        return split
    gathered = gather(solution, e, guards)
    return define(source.shape, targets, gathered, name) if isinstance(gathered, Reduce) else gathered


def _has_windows(read: Read) -> bool:
    """Whether several points of an operand meet in an index."""
    return any(len(i.free) > 1 for i in read.indices)


def _largest(e: Expr) -> int:
    """Elements of the largest tensor that is read."""
    return max((math.prod(n.source.shape) for n in postorder(e) if isinstance(n, Read)), default=0)


def cotangent_of_reads(root: Expr, seed: Expr) -> dict[tuple[Read, Guards], Expr]:
    """Reverse accumulation inside one expression, kept apart by the select branches a path goes through."""
    adjoints: dict[Expr, dict[Guards, Expr]] = {root: {(): seed}}
    found: dict[tuple[Read, Guards], Expr] = {}

    def add(node: Expr, guards: Guards, e: Expr | None) -> None:
        if e is None or not dt.is_float(node.dtype):
            return
        slots = adjoints.setdefault(node, {})
        slots[guards] = rules.add(slots[guards], e) if guards in slots else e
        if len(slots) > _MAX_PATHS:
            adjoints[node] = _together(slots)

    for node in reversed(list(postorder(root))):
        for guards, e in adjoints.pop(node, {}).items():
            match node:
                case Read():
                    found[(node, guards)] = e
                case Apply():
                    for arg, part in zip(node.args, rules.pullback(node, e), strict=True):
                        add(arg, guards, part)
                case Select():
                    add(node.then, together(guards, conjuncts(node.cond, True)), e)
                    add(node.other, together(guards, conjuncts(node.cond, False)), e)
                case Cast() if dt.is_float(node.arg.dtype):
                    add(node.arg, guards, Cast(node.arg.dtype, e))
    return found


def _together(paths: dict[Guards, Expr]) -> dict[Guards, Expr]:
    """What comes on several paths as one term: on each what it has there, under what all paths have in common."""
    common, rests = factored(tuple(paths))
    total: Expr | None = None
    for rest, e in zip(rests, paths.values(), strict=True):
        term = Select(conjunction(rest), e, Const(0, e.dtype)) if rest else e
        total = term if total is None else rules.add(total, term)
    assert total is not None
    return {common: total}


def _scattered(read: Read, e: Expr, guards: Guards, domain: tuple[Axis, ...]) -> Tensor:
    """The term of a data-dependent read: e added where the read was, summed first over the axes it does not use.

    y[i] = F(A[ids[i]])   ->   dA[ids[i]] += g[i] * dF/dA(i)
    """
    indices, source = read.indices, tensor_of(read)
    if not isinstance(e, Read):  # which is there, and in its own order
        domain = memory_order(domain, (*indices, e), [(source.shape, indices)])
    value, over = _summed_first(read, e, guards, domain)
    if guards:
        indices = tuple(Select(conjunction(guards), i, affine.integer(0)) for i in indices)
    return define(source.shape, fresh_axes(source.shape), Scatter(over, indices, value), _d(source))


def _summed_first(read: Read, e: Expr, guards: Guards, domain: tuple[Axis, ...]) -> tuple[Read, tuple[Axis, ...]]:
    """The term e of a read, 0 outside of its branch, stored over the axes the read uses and summed over the others."""
    used = frozenset().union(*(i.free for i in (*read.indices, *guards)))
    over = tuple(a for a in domain if a in used)
    others = tuple(a for a in domain if a not in used)
    if guards:
        e = Select(conjunction(guards), e, Const(0, e.dtype))
    if others:
        e = Reduce("sum", others, e)
    stored = define(tuple(a.extent for a in over), over, e, _d(tensor_of(read), "_terms"))
    return Read(stored, over), over


def _summed_before_guards(
    read: Read, e: Expr, guards: Guards, domain: tuple[Axis, ...]
) -> tuple[Read, tuple[Axis, ...], Guards]:
    """The same, and the guards that it is still read under: all where it can be computed everywhere, a plain sum.

    What is read lies at the end of it as in the source where that is at the end there, too: for vectors of both.
    """
    tail = [
        i for i in itertools.takewhile(lambda i: isinstance(i, Axis), reversed(read.indices)) if isinstance(i, Axis)
    ]
    last = frozenset(tail)
    domain = (*(a for a in domain if a not in last), *dict.fromkeys(reversed(tail)))
    used = frozenset[Axis]().union(*(i.free for i in read.indices))
    if not all(c.free <= used for c in guards) or not stays_inside(e):
        return *_summed_first(read, e, guards, domain), ()
    return *_summed_first(read, e, (), domain), guards


def _cotangent_of_scattered(body: Scatter, g: Tensor) -> dict[Tensor, Tensor]:
    """t[f(i)] += v[i]   ->   dv[i] = g[f(i)]."""
    assert isinstance(body.body, Read)
    source = tensor_of(body.body)
    if not dt.is_float(source.dtype):
        return {}
    return {source: define(source.shape, body.axes, Read(g, body.targets), _d(source))}


def _share_among_ties(t: Compute, body: Reduce, value: Tensor, g: Tensor) -> tuple[Expr, Expr]:
    """max/min: the cotangent goes to the elements equal to the extreme, in equal parts.

    What is compared must have the bits of the forward pass, so anything inexact is stored first.
    """
    inner, outputs = body.body, t.definition.axes
    if not is_exact(inner):
        domain = outputs + body.axes
        used = tuple(a for a in domain if a in inner.free)
        stored = define(tuple(a.extent for a in used), used, inner, derived(t.name, suffix="_of"))
        inner = Read(stored, used)
    one, zero = Const(1, t.dtype), Const(0, t.dtype)
    wins = Apply("eq", (inner, Read(value, outputs)))
    count = define(t.shape, outputs, Reduce("sum", body.axes, Select(wins, one, zero)), derived(t.name, suffix="_ties"))
    share = define(t.shape, outputs, Apply("div", (Read(g, outputs), Read(count, outputs))), _d(t, "_share"))
    return body.body, Select(wins, Read(share, outputs), zero)


def _product_of_others(body: Reduce) -> Expr:
    """prod over all points but this one: exact with any number of zeros, and again differentiable."""
    others = tuple(Axis(next(IDENTS), a.extent, a.name) for a in body.axes)
    differs: Expr = Apply("ne", (others[0], body.axes[0]))
    for a, b in zip(others[1:], body.axes[1:], strict=True):
        differs = Apply("or", (differs, Apply("ne", (a, b))))
    inner = substitute(body.body, dict(zip(body.axes, others, strict=True)))
    return Reduce("prod", others, Select(differs, inner, Const(1, body.dtype)))

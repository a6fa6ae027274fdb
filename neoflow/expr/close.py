"""From what a user wrote to a closed `Definition`: scopes checked, axes numbered, tensors turned into slots."""

from __future__ import annotations

from typing import cast

from neoflow import dtype as dt
from neoflow.errors import ExpressionError, Location
from neoflow.expr import affine
from neoflow.expr.check import check_bounds
from neoflow.expr.deep import Walk, run
from neoflow.expr.ir import (
    Apply,
    Axis,
    Binder,
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
)
from neoflow.expr.limits import excess
from neoflow.expr.memo import memo_of
from neoflow.expr.tensor import Compute, Definition, Tensor, tensor_of


class _Closer:
    """Numbers axes and slots in the order a reader meets them; an axis keeps its number in sibling reductions."""

    def __init__(self, outputs: tuple[Axis, ...]):
        self.numbered: dict[Axis, Axis] = {}
        self.names: list[str] = []
        self.slots: dict[Tensor, Slot] = {}
        self.memo: dict[Expr, Expr] = {}
        self.scope: list[Axis] = list(outputs)
        for a in outputs:
            self.number(a)

    def number(self, a: Axis) -> Axis:
        if a not in self.numbered:
            self.numbered[a] = Axis(len(self.names), a.extent)
            self.names.append(a.name)
        return self.numbered[a]

    def slot(self, tensor: Tensor) -> Slot:
        known = self.slots.get(tensor)
        if known is None:
            known = self.slots[tensor] = Slot(len(self.slots), tensor.shape, tensor.dtype)
        return known

    def closed(self, e: Expr) -> Walk[Expr]:
        """`e` with its axes numbered and its tensors as slots."""
        (done,) = yield from self._each((e,))
        return done

    def _each(self, exprs: tuple[Expr, ...]) -> Walk[tuple[Expr, ...]]:
        closed = []
        for e in exprs:
            done = self.memo.get(e)
            if done is None:
                done = self.memo[e] = (yield self._made_of(e)) if e.children else self._leaf(e)
            closed.append(done)
        return tuple(closed)

    def _leaf(self, e: Expr) -> Expr:
        match e:
            case Axis():
                return self.numbered[e]
            case Const():
                return Const(e.value, e.dtype)
        assert isinstance(e, Read)
        return Read(self.slot(tensor_of(e)), ())

    def _made_of(self, e: Expr) -> Walk[Expr]:
        match e:
            case Apply():
                closed = Apply(e.fn, (yield from self._each(e.args)))
                return _constant_right(affine.simplify(closed)) if closed.dtype in (dt.INDEX, "bool") else closed
            case Read():
                slot = self.slot(tensor_of(e))
                return Read(slot, tuple(map(affine.simplify, (yield from self._each(e.indices)))))
            case Select():
                cond = affine.simplify((yield from self.closed(e.cond)))
                if isinstance(cond, Const):
                    return (yield from self.closed(e.then if cond.value else e.other))
                then, other = yield from self._each((e.then, e.other))
                return Select(cond, then, other)
            case Cast():
                arg = yield from self.closed(e.arg)
                return arg if arg.dtype == e.dtype else Cast(e.dtype, arg)
            case Binder():
                return (yield from self._bound(e))
        raise TypeError(type(e).__name__)

    def _bound(self, e: Binder) -> Walk[Binder]:
        for a in e.axes:
            if any(a is outer for outer in self.scope):
                raise ExpressionError(
                    f"axis `{a.name}` is bound twice in nested scopes; give the inner reduction an axis of its own "
                    "(nf.axis)",
                    e.where,
                )
        self.scope.extend(e.axes)
        axes = tuple(self.number(a) for a in e.axes)
        children = yield from self._each(e.children)
        del self.scope[-len(e.axes) :]
        return _unplaced(e.rebind(axes, children))


def _unplaced(e: Binder) -> Binder:
    """Closed nodes do not know the line they were written on."""
    if isinstance(e, Scatter):
        return Scatter(e.axes, tuple(affine.simplify(t) for t in e.targets), e.body)
    assert isinstance(e, Reduce)
    return Reduce(e.op, e.axes, e.body)


_MIRROR = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _constant_right(e: Expr) -> Expr:
    """0 <= x is x >= 0."""
    if isinstance(e, Apply) and e.fn in _MIRROR and isinstance(e.args[0], Const) and not isinstance(e.args[1], Const):
        return Apply(_MIRROR[e.fn], e.args[::-1])
    return e


def first_met(body: Expr) -> tuple[list[Slot], list[Axis]]:
    """Slots and reduction axes in the order in which a reader of a closed body meets them."""
    slots: dict[Slot, None] = {}
    axes: dict[Axis, None] = {}
    seen: set[int] = set()
    stack = [body]
    while stack:
        e = stack.pop()
        if e.uid in seen:
            continue
        seen.add(e.uid)
        if isinstance(e, Read):
            slots[cast(Slot, e.source)] = None
        elif isinstance(e, Binder):
            axes.update(dict.fromkeys(e.axes))
        stack.extend(e.children[::-1])
    return list(slots), list(axes)


def _close(axes: tuple[Axis, ...], body: Expr) -> tuple[Expr, tuple[Tensor, ...], tuple[str, ...]]:
    """The closed body, the tensors of its slots and the names of its axes.

    Simplification may drop or reorder what was numbered on the way, so closing is repeated until the numbers follow
    the order of reading.
    """
    while True:
        closer = _Closer(axes)
        closed = run(closer.closed(body))
        slots, bound = first_met(closed)
        in_order = [a.ident for a in bound] == list(range(len(axes), len(closer.names)))
        if in_order and [s.position for s in slots] == list(range(len(closer.slots))):
            return closed, tuple(closer.slots), tuple(closer.names)
        named = {new: Axis(-1 - new.ident, new.extent, old.name) for old, new in closer.numbered.items()}
        axes = tuple(named[closer.numbered[a]] for a in axes)
        body = _opened(closed, tuple(closer.slots), named)


def _opened(body: Expr, inputs: tuple[Tensor, ...], axes: dict[Axis, Axis]) -> Expr:
    """A closed body as it might have been written: slots replaced by the tensors `inputs`, axes as `axes` says."""

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and isinstance(e.source, Slot):
            return Read(inputs[e.slot], e.indices)
        if isinstance(e, Binder):
            return e.rebind(tuple(axes.get(a, a) for a in e.axes), e.children)
        return axes.get(e) if isinstance(e, Axis) else None

    return rewrite(body, rule)


def define(
    shape: tuple[int, ...], axes: tuple[Axis, ...], body: Expr, name: str, where: Location | None = None
) -> Compute:
    """The compute `name[axes] = body`, its bounds proved. Raises `ExpressionError`.

    Source: NeoFlow, section 4.1 (single-level IR).
    """
    wrong = excess(shape)
    if wrong is not None:
        raise ExpressionError(f"`{name}`: {wrong}", where)
    for a in sorted(body.free.difference(axes), key=lambda a: a.uid):
        raise ExpressionError(
            f"axis `{a.name}` is used in `{name}` outside the reduction that binds it; add it to that reduction's "
            "axis=[...] or make it an output axis",
            a.where or where,
        )
    if isinstance(body, Scatter) and len(body.targets) != len(shape):
        raise ExpressionError(
            f"`{name}` has {len(shape)} dimensions but scatters to {len(body.targets)} indices", where
        )
    if any(isinstance(n, Scatter) and n is not body for n in postorder(body)):
        raise ExpressionError(
            f"`{name}` scatters inside an expression; what is scattered is a tensor of its own", where
        )
    made = unproved(axes, body, name, where)
    check_bounds(made.definition, made.axis_names, tuple(t.name for t in made.inputs), where)
    return made


def unproved(axes: tuple[Axis, ...], body: Expr, name: str, where: Location | None = None) -> Compute:
    """`define` without a proof: of what is only looked at, or was proved in parts."""
    closed, inputs, names = _close(axes, body)
    slots = tuple(Slot(n, t.shape, t.dtype) for n, t in enumerate(inputs))
    definition = Definition(tuple(a.extent for a in axes), closed, slots)
    return Compute(definition, inputs, name, names, where)


def build(shape: tuple[int, ...], body: Expr, inputs: tuple[Tensor, ...], name: str) -> Compute:
    """A compute of a body that is already closed over `inputs` (axes 0..rank-1 its own); drops unread inputs.

    What the compiler itself derives comes through here: numbering is made canonical again, bounds are proved again. Of
    equal bodies that is done once: what is repeated in a program is rewritten alike.
    """
    known, place = memo_of(body), dict[Tensor, int]()
    key = (build, shape, tuple((place.setdefault(t, n), t.shape, t.dtype) for n, t in enumerate(inputs)))
    if key not in known:
        made = define(shape, tuple(Axis(i, n) for i, n in enumerate(shape)), _opened(body, inputs, {}), name)
        if not any(isinstance(n, Read) and isinstance(n.source, Tensor) for n in postorder(body)):
            known[key] = made.definition, tuple(place[t] for t in made.inputs), made.axis_names
        return made
    definition, used, names = known[key]
    return Compute(definition, tuple(inputs[n] for n in used), name, names)

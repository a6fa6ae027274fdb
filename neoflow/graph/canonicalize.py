"""One canonical form: reductions at the root, constants folded, copies gone, equal computes merged, dead ones gone."""

from __future__ import annotations

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select, rewrite, same
from neoflow.expr.memo import remembered
from neoflow.expr.normal import normalize
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.graph import Graph


def map_graph(graph: Graph, new: dict[Tensor, Tensor]) -> Graph:
    """The graph with its roots replaced."""
    outputs = tuple(new.get(t, t) for t in graph.outputs)
    return Graph(graph.inputs, outputs, tuple((p, new.get(v, v)) for p, v in graph.updates))


def canonicalize(graph: Graph) -> Graph:
    """Normal form, constant folding, copy forwarding and common subexpressions in one sweep. Values stay the same."""
    new: dict[Tensor, Tensor] = {}
    known: dict[tuple, Tensor] = {}
    normal = [normalize(t) if isinstance(t, Compute) else t for t in graph.roots]
    for root, t in zip(graph.roots, normal, strict=True):
        new[root] = t
    for t in _normal_order(normal):
        if not isinstance(t, Compute):
            continue
        inputs = tuple(_final(new, i) for i in t.inputs)
        current: Tensor = t if same(inputs, t.inputs) else Compute(t.definition, inputs, t.name, t.axis_names, t.where)
        current = _simplify(current, t.where)  # type: ignore[arg-type]
        if isinstance(current, Compute):
            key = (current.definition, current.inputs)
            current = known.setdefault(key, current)
        new[t] = current
    return map_graph(graph, {root: _final(new, root) for root in graph.roots})


def _normal_order(roots: list[Tensor]) -> list[Tensor]:
    """Every tensor that the normal forms of the roots need, in normal form, each after what it reads."""
    order: list[Tensor] = []
    entered: set[Tensor] = set()
    finished: set[Tensor] = set()
    stack = [(t, False) for t in reversed(roots)]
    while stack:
        t, done = stack.pop()
        t = normalize(t) if isinstance(t, Compute) else t
        if done and t not in finished:
            finished.add(t)
            order.append(t)
        elif t not in entered:
            entered.add(t)
            stack.append((t, True))
            if isinstance(t, Compute):
                stack.extend((i, False) for i in reversed(t.inputs))
    return order


def _final(new: dict[Tensor, Tensor], t: Tensor) -> Tensor:
    t = normalize(t) if isinstance(t, Compute) else t
    while t in new and new[t] is not t:
        t = new[t]
    return t


def _simplify(t: Compute, where: object) -> Tensor:
    """Fold constants into the body; a plain copy is its source."""
    constants = tuple(_constant(i) for i in t.inputs)
    definition = t.definition
    body = fold(definition, constants)
    if body is not definition.body:
        t = build(definition.shape, body, t.inputs, t.name)
        body = t.definition.body
    is_copy = isinstance(body, Read) and t.inputs[0].shape == t.shape and same(body.indices, _own_indices(t.shape))
    return t.inputs[0] if is_copy else t


def _own_indices(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(Const(0, dt.INDEX) if n == 1 else Axis(d, n) for d, n in enumerate(shape))


def _constant(t: Tensor) -> Const | None:
    """The value of a tensor that has one value everywhere."""
    body = t.definition.body if isinstance(t, Compute) else None
    return body if isinstance(body, Const) else None


@remembered
def fold(definition: Definition, constants: tuple[Const | None, ...]) -> Expr:
    """The body with constant inputs put in and what follows from it; only rules that are exact for every value."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Read() if constants[e.slot] is not None:
                return constants[e.slot]
            case Apply():
                return _fold_apply(e)
            case Select(cond=Const()):
                return e.then if e.cond.value else e.other  # type: ignore[attr-defined]
            case Select() if e.then is e.other:
                return e.then
            case Cast(arg=Const()):
                return _fold_cast(e)
            case Reduce(op="sum", body=Const()) if dt.is_float(e.dtype):
                count = int(np.prod([a.extent for a in e.axes]))
                return Const(e.body.value * count, e.dtype)  # type: ignore[attr-defined]
        return None

    return rewrite(definition.body, rule)


def _fold_cast(e: Cast) -> Expr | None:
    """The cast of a constant as NumPy does it; none of a float that no integer of the type stands for."""
    assert isinstance(e.arg, Const)
    value = e.arg.value
    if dt.is_float(e.arg.dtype) and dt.is_int(e.dtype) and not abs(value) < 2.0**31:
        return None
    if dt.is_int(e.dtype):
        return Const(np.asarray(int(value)).astype(dt.NUMPY[e.dtype]).item(), e.dtype)
    return Const(bool(value) if e.dtype == "bool" else float(value), e.dtype)


def _is(e: Expr, value: float) -> bool:
    return isinstance(e, Const) and e.value == value and not isinstance(e.value, bool)


def _fold_apply(e: Apply) -> Expr | None:
    if e.dtype == dt.INDEX:
        return None
    if all(isinstance(a, Const) for a in e.args) and dt.is_float(e.args[0].dtype):
        with np.errstate(all="ignore"):
            value = FUNCTIONS[e.fn].numpy(*(np.float64(a.value) for a in e.args))  # type: ignore[attr-defined]
        return Const(value.item(), e.dtype)
    a, b = e.args[0], e.args[-1]
    match e.fn:
        case "mul" if _is(a, 1):
            return b
        case "mul" if _is(b, 1):
            return a
        case "add" if a is b and dt.is_float(a.dtype):
            return Apply("mul", (Const(2, a.dtype), a))
        case "div" if _is(b, 1):
            return a
        case "sub" if isinstance(b, Const) and _is(b, 0) and not np.signbit(b.value):
            return a
        case "mul" if isinstance(a, Const) and isinstance(b, Apply) and b.fn == "neg":
            return Apply("mul", (Const(-a.value, a.dtype), b.args[0]))
        case "neg" if isinstance(a, Apply) and a.fn == "neg":
            return a.args[0]
        case "add" if isinstance(b, Apply) and b.fn == "neg":
            return Apply("sub", (a, b.args[0]))
        case "add" if isinstance(a, Apply) and a.fn == "neg":
            return Apply("sub", (b, a.args[0]))
        case "sub" if isinstance(b, Apply) and b.fn == "neg":
            return Apply("add", (a, b.args[0]))
        case "div" if isinstance(b, Const) and dt.is_float(b.dtype) and _has_reciprocal(float(b.value), b.dtype):
            return Apply("mul", (a, Const(1 / float(b.value), b.dtype)))
    return None


def _has_reciprocal(value: float, dtype: str) -> bool:
    """Whether value and 1 / value are exact in `dtype`: a power of two which is neither too small nor too large."""
    if value == 0 or not np.isfinite(value) or abs(np.frexp(value)[0]) != 0.5:
        return False
    with np.errstate(all="ignore"):
        return all(float(dt.NUMPY[dtype].type(x)) == x for x in (value, 1 / value))

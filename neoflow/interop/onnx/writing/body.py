"""The value of a tensor, from its definition: expressions bottom-up, each with a dimension for every axis it uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import DataError
from neoflow.expr.deep import Walk, run
from neoflow.expr.functions import ARG_REDUCERS
from neoflow.expr.interp.analysis import analysed
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select
from neoflow.expr.tensor import Compute, Tensor
from neoflow.interop.onnx.writing import boxes, reads, sums, windows
from neoflow.interop.onnx.writing.facts import can_fault, has_reads, own_axes, table
from neoflow.interop.onnx.writing.functions import REDUCERS, WRITERS, wrapped
from neoflow.interop.onnx.writing.nodes import HELD, Nodes, Value, among, held, position, without

FOLDED = 1 << 16
"""Elements of a table of places or conditions that is written into the file; larger ones are computed by nodes."""
MOST = 1 << 31
"""Elements of what is between two nodes."""


class Body:
    """name_of: of tensors, as they are stored."""

    def __init__(self, nodes: Nodes, tensor: Compute, name_of: Callable[[Tensor], str]):
        self.nodes, self.tensor, self.name_of = nodes, tensor, name_of
        self.analysis = analysed(tensor.definition)
        self.memo: dict[tuple[Expr, bool], Value] = {}
        self.inputs: dict[Tensor, str] = {}

    def write(self) -> str:
        """The nodes of the tensor; the name of what they give, in the type that it is stored in."""
        body, tensor = self.tensor.definition.body, self.tensor
        if isinstance(body, Scatter):
            name = run(self._scattered(body))
        else:
            value = run(self.value(body))
            name = self.nodes.whole(value, tensor.shape, tensor.definition.axes)
        return self.nodes.cast(name, held(tensor.dtype), tensor.dtype)

    def input(self, t: Tensor) -> str:
        """The name of a tensor in the type that values have."""
        if t not in self.inputs:
            self.inputs[t] = self.nodes.cast(self.name_of(t), t.dtype, held(t.dtype))
        return self.inputs[t]

    def read(self, t: Tensor, e: Read, is_guarded: bool = False) -> Walk[Value]:
        """What `e` reads, of this tensor."""
        return reads.write(self.nodes, self.input(t), e, lambda i: self.value(i, is_guarded), is_guarded, t.dtype)

    def fits(self, axes: Sequence[Axis]) -> None:
        """Raise `DataError` for what is too large to be between two nodes."""
        size = math.prod(a.extent for a in axes)
        if size > MOST:
            raise DataError(
                f"tensor {self.tensor.name}: the operators of ONNX that compute it have an array of {size} elements "
                "between them; write it as several smaller tensors",
                self.tensor.where,
            )

    # -------------------------------------------------------------------------------------------------- expressions

    def value(self, e: Expr, is_guarded: bool = False) -> Walk[Value]:
        """The value of `e`. is_guarded: nothing takes it at some of its points, and no place there is out of range."""
        key = (e, is_guarded and can_fault(e))
        if key not in self.memo:
            found = self._known(e)
            self.memo[key] = (yield from self._written(e, key[1])) if found is None else found
            self.fits(self.memo[key].axes)
        return self.memo[key]

    def _known(self, e: Expr) -> Value | None:
        """Of what follows from axes and numbers alone, and is small."""
        axes = own_axes(e)
        if isinstance(e, Const):
            found: np.ndarray = np.array(e.value).astype(dt.NUMPY[e.dtype])
        elif isinstance(e, Axis):
            found = np.arange(e.extent).reshape([a.extent for a in axes])
        elif has_reads(e) or math.prod(a.extent for a in axes) > FOLDED or (dt.is_float(e.dtype) and e.dtype in HELD):
            return None
        else:
            found = table(e)
        return Value(self.nodes.table(found.astype(dt.NUMPY[held(e.dtype)])), axes, e.dtype)

    def _written(self, e: Expr, is_guarded: bool) -> Walk[Value]:
        match e:
            case Read():
                return (yield from self.read(self.tensor.inputs[e.slot], e, is_guarded))
            case Apply():
                return (yield from self._applied(e, is_guarded))
            case Cast():
                arg = yield self.value(e.arg, is_guarded)
                name = self.nodes.cast(arg.name, held(arg.dtype), e.dtype)
                return Value(self.nodes.cast(name, e.dtype, held(e.dtype)), arg.axes, e.dtype)
            case Select():
                parts = boxes.padded(self, e, is_guarded) or boxes.joined(self, e, is_guarded)
                if parts is not None:
                    return (yield from parts)
                cond = yield self.value(e.cond, is_guarded)
                then = yield self.value(e.then, True)
                other = yield self.value(e.other, True)
                return self.chosen(cond, then, other)
            case Reduce():
                return (yield from self._reduced(e, is_guarded))
        raise TypeError(type(e).__name__)

    def chosen(self, cond: Value, then: Value, other: Value) -> Value:
        (c, a, b), axes = self.nodes.aligned([cond, then, other])
        self.fits(axes)
        if then.dtype == "bool":
            yes = self.nodes.add("And", [c, a])
            name = self.nodes.add("Or", [yes, self.nodes.add("And", [self.nodes.add("Not", [c]), b])])
        else:
            name = self.nodes.add("Where", [c, a, b])
        return Value(name, axes, then.dtype)

    def _applied(self, e: Apply, is_guarded: bool) -> Walk[Value]:
        if e.fn not in WRITERS:
            raise DataError(f"tensor {self.tensor.name}: ONNX has no operator that computes {e.fn}", self.tensor.where)
        args = []
        for n, a in enumerate(e.args):
            args.append((yield self.value(a, is_guarded or (n == 1 and e.fn in ("and", "or")))))
        return self.applied(e.fn, args, e.dtype)

    def applied(self, fn: str, args: Sequence[Value], dtype: str) -> Value:
        """A function of values."""
        names, axes = self.nodes.aligned(args)
        self.fits(axes)
        name = WRITERS[fn](self.nodes, names, args[0].dtype)
        return Value(wrapped(self.nodes, name, dtype), axes, dtype)

    # --------------------------------------------------------------------------------------------------- reductions

    def _reduced(self, e: Reduce, is_guarded: bool) -> Walk[Value]:
        parts = windows.pooled(self, e) or windows.convolved(self, e) or sums.write(self, e, is_guarded)
        if parts is not None:
            return (yield from parts)
        return self.reduced(e.op, (yield self.value(e.body, is_guarded)), e.axes)

    def reduced(self, op: str, value: Value, axes: Sequence[Axis]) -> Value:
        """The reduction of a value over axes, some of which it may not depend on."""
        own = [a for a in axes if a.extent > 1]
        if op in ARG_REDUCERS:
            if not own:
                return Value(self.nodes.table(np.array(0)), (), dt.INDEX)
            value = self.nodes.expanded(value, own)
            name = self.nodes.add(REDUCERS[op], [value.name], axis=position(value.axes, own[0]), keepdims=0)
            return Value(name, tuple(a for a in value.axes if a is not own[0]), dt.INDEX)
        times = math.prod(a.extent for a in without(own, value.axes))
        if op == "prod" and times > 1:
            value = self.nodes.expanded(value, own)
        dims = [position(value.axes, a) for a in among(value.axes, own)]
        rest = tuple(without(value.axes, own))
        if dims:
            name = self.nodes.add(REDUCERS[op], [value.name, self.nodes.ints(dims)], keepdims=0)
            value = Value(wrapped(self.nodes, name, value.dtype), rest, value.dtype)
        if op == "sum" and times > 1:
            factor = self.nodes.table(np.array(times).astype(dt.NUMPY[held(value.dtype)]))
            value = self.applied("mul", [value, Value(factor, (), value.dtype)], value.dtype)
        return value

    def _scattered(self, e: Scatter) -> Walk[str]:
        """Zeros, and an addition to the elements one after the other."""
        nodes, shape = self.nodes, self.tensor.shape
        box = [a.extent for a in e.axes if a.extent > 1]
        at: Value | None = None
        for n, target in enumerate(e.targets):
            index: Value = yield self.value(target)
            index = Value(nodes.cast(index.name, held(index.dtype), dt.INDEX), index.axes, dt.INDEX)
            stride = math.prod(shape[n + 1 :])
            if stride > 1:
                factor = Value(nodes.table(np.array(stride)), (), dt.INDEX)
                index = self.applied("mul", [index, factor], dt.INDEX)
            at = index if at is None else self.applied("add", [at, index], dt.INDEX)
        at = Value(nodes.table(np.array(0)), (), dt.INDEX) if at is None else at
        added: Value = yield self.value(e.body)
        count = math.prod(box)
        places = nodes.whole(at, [count], e.axes)
        terms = nodes.whole(added, [count], e.axes)
        zero = nodes.table(np.zeros(1, dt.NUMPY[held(self.tensor.dtype)]))
        zeros = nodes.add("Expand", [zero, nodes.ints([math.prod(shape)])])
        name = nodes.add("ScatterElements", [zeros, places, terms], axis=0, reduction="add")
        return wrapped(nodes, nodes.reshape(name, [math.prod(shape)], shape), self.tensor.dtype)

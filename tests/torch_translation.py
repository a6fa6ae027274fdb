"""A third meaning of the language: each tensor in PyTorch, float64, so that its autograd can judge our gradients.

Written from the grammar alone. Inside a body every value has one dimension for each axis of the definition; a read is
advanced indexing by index tensors. The conventions at kinks are the ones of the language: `amax` and `maximum` share
a tie equally, relu'(0) = 0, abs'(0) = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select
from neoflow.expr.tensor import Compute, Tensor, topological

_DTYPES = {f"int{n}": getattr(torch, f"int{n}") for n in (8, 16, 32, 64)} | {"bool": torch.bool}


def dtype_of(name: str) -> torch.dtype:
    return _DTYPES.get(name, torch.float64)


def inputs_of(feeds: Mapping[Tensor, np.ndarray]) -> dict[Tensor, torch.Tensor]:
    """A leaf for each placeholder, with gradient where it is a float."""
    leaves = {t: torch.tensor(np.asarray(a)).to(dtype_of(t.dtype)) for t, a in feeds.items()}
    for leaf in leaves.values():
        leaf.requires_grad_(leaf.is_floating_point())
    return leaves


def translate(tensors: Sequence[Tensor], leaves: Mapping[Tensor, torch.Tensor]) -> list[torch.Tensor]:
    """The values of `tensors`, differentiable with respect to the leaves."""
    known = dict(leaves)
    for t in topological(list(tensors)):
        if isinstance(t, Compute):
            known[t] = _Body(t, [known[s] for s in t.inputs]).run()
    return [known[t] for t in tensors]


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "or": torch.logical_or,
    "and": torch.logical_and,
    "not": torch.logical_not,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floordiv": torch.floor_divide,
    "mod": torch.remainder,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "bitwise_not": torch.bitwise_not,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "neg": torch.neg,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "abs": torch.abs,
    "relu": torch.relu,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "stop_gradient": torch.detach,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "pow": torch.pow,
}


class _Body:
    def __init__(self, tensor: Compute, inputs: list[torch.Tensor]):
        self.tensor, self.inputs = tensor, inputs
        axes = (*tensor.definition.axes, *tensor.definition.reduction_axes)
        self.rank = 1 + max((a.ident for a in axes), default=-1)
        self.known: dict[Expr, torch.Tensor] = {}

    def run(self) -> torch.Tensor:
        value, shape = self.value(self.tensor.definition.body), self.tensor.shape
        return value.reshape(value.shape[: len(shape)]).expand(shape)

    def value(self, e: Expr) -> torch.Tensor:
        if e not in self.known:
            self.known[e] = self._value(e)
        return self.known[e]

    def _value(self, e: Expr) -> torch.Tensor:
        match e:
            case Const():
                return torch.tensor(e.value, dtype=dtype_of(e.dtype)).reshape((1,) * self.rank)
            case Axis():
                return torch.arange(e.extent).reshape([-1 if d == e.ident else 1 for d in range(self.rank)])
            case Read():
                return self._read(e)
            case Apply():
                return _FUNCTIONS[e.fn](*(self.value(a) for a in e.args)).to(dtype_of(e.dtype))
            case Select():
                return torch.where(*(self.value(c) for c in e.children))
            case Cast():
                return self.value(e.arg).to(dtype_of(e.dtype))
            case Reduce():
                return self._reduce(e)
        raise TypeError(type(e).__name__)

    def _read(self, e: Read) -> torch.Tensor:
        source = self.inputs[e.source.position]
        if not e.indices:
            return source.reshape((1,) * self.rank)
        # a read that leaves its tensor is one in a branch that is not chosen
        at = [self.value(i).to(torch.int64).clamp(0, n - 1) for i, n in zip(e.indices, source.shape, strict=True)]
        return source[tuple(torch.broadcast_tensors(*at))]

    def _reduce(self, e: Reduce) -> torch.Tensor:
        body = self.value(e.body)
        dims = [a.ident for a in e.axes]
        body = body.expand([max([n, *(a.extent for a in e.axes if a.ident == d)]) for d, n in enumerate(body.shape)])
        if e.op in ("argmax", "argmin"):
            extreme = body.amax(dims, keepdim=True) if e.op == "argmax" else body.amin(dims, keepdim=True)
            return (body == extreme).to(torch.int64).argmax(dims[0], keepdim=True)  # the first one
        if e.op == "sum":
            return body.sum(dims, keepdim=True).to(body.dtype)
        if e.op == "prod":
            for d in dims:
                body = body.prod(d, keepdim=True).to(body.dtype)
            return body
        return (body.amax if e.op == "max" else body.amin)(dims, keepdim=True)

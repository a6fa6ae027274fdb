"""NumPy's functions on tensors and expressions: `np.exp(x)` is `nf.exp(x)`, and what has no counterpart says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from neoflow.errors import shown
from neoflow.expr import dsl, products, reducers
from neoflow.expr.dsl import apply, reduction
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Expr
from neoflow.expr.shape import cumulative, fill, indexing, join, ordering, padding, rearrange
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import fail, operand

_SAME_NAME = {
    "absolute": "abs",
    "add": "add",
    "ceil": "ceil",
    "cos": "cos",
    "divide": "div",
    "equal": "eq",
    "exp": "exp",
    "expm1": "expm1",
    "fabs": "abs",
    "floor": "floor",
    "floor_divide": "floordiv",
    "greater": "gt",
    "greater_equal": "ge",
    "left_shift": "left_shift",
    "less": "lt",
    "less_equal": "le",
    "log": "log",
    "log1p": "log1p",
    "logical_and": "and",
    "logical_not": "not",
    "logical_or": "or",
    "logical_xor": "ne",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow",
    "remainder": "mod",
    "right_shift": "right_shift",
    "rint": "round",
    "sign": "sign",
    "sin": "sin",
    "sqrt": "sqrt",
    "subtract": "sub",
    "tanh": "tanh",
}
"""NumPy's element-wise functions, and the row of `functions.FUNCTIONS` that each of them is."""

_UFUNCS: dict[str, Callable[..., Any]] = {
    **{name: partial(apply, fn) for name, fn in _SAME_NAME.items() if fn in FUNCTIONS},
    "bitwise_and": dsl.bitwise_and,
    "bitwise_or": dsl.bitwise_or,
    "bitwise_xor": dsl.bitwise_xor,
    "invert": dsl.bitwise_not,
    "isnan": lambda x: apply("ne", x, x),
    "matmul": products.matmul,
    "positive": lambda x: x,
    "reciprocal": lambda x: apply("div", 1.0, x),
    "square": lambda x: apply("mul", x, x),
}
_REDUCED = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


def _reducer(op: str) -> Callable[..., Any]:
    return lambda a, axis=None, *, keepdims=False: reduction(op, a, axis, keepdims)


_CALLS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.all: lambda a, axis=None, *, keepdims=False: reducers.all(a, axis, keepdims),
    np.amax: _reducer("max"),
    np.amin: _reducer("min"),
    np.any: lambda a, axis=None, *, keepdims=False: reducers.any(a, axis, keepdims),
    np.argmax: lambda a, axis=None, *, keepdims=False: reduction("argmax", a, axis, keepdims),
    np.argmin: lambda a, axis=None, *, keepdims=False: reduction("argmin", a, axis, keepdims),
    np.argsort: lambda a, axis=-1: ordering.argsort(a, axis),
    np.broadcast_to: rearrange.broadcast_to,
    np.clip: lambda a, a_min=None, a_max=None: dsl.clip(a, a_min, a_max),
    np.concatenate: lambda arrays, axis=0: join.concat([operand(t) for t in arrays], axis),
    np.cumsum: lambda a, axis=None: cumulative.cumsum(a, axis),
    np.diagonal: indexing.diagonal,
    np.dot: lambda a, b: _dot(a, b),
    np.einsum: products.einsum,
    np.expand_dims: lambda a, axis: rearrange.expand_dims(a, axis),
    np.flip: lambda m, axis=None: rearrange.flip(m, axis),
    np.full_like: lambda a, fill_value: fill.full_like(a, fill_value),
    np.max: _reducer("max"),
    np.mean: lambda a, axis=None, *, keepdims=False: dsl.mean(a, axis, keepdims),
    np.min: _reducer("min"),
    np.moveaxis: lambda a, source, destination: rearrange.moveaxis(a, source, destination),
    np.ndim: lambda a: a.rank,
    np.ones_like: lambda a: fill.ones_like(a),
    np.pad: lambda array, pad_width, mode="constant", *, constant_values=0: padding.pad(
        array, pad_width, mode, constant_values
    ),
    np.prod: _reducer("prod"),
    np.ravel: lambda a: rearrange.ravel(a),
    np.repeat: lambda a, repeats, axis: join.repeat(a, repeats, axis),
    np.reshape: lambda a, shape: rearrange.reshape(a, shape),
    np.roll: lambda a, shift, axis=None: rearrange.roll(a, shift, axis),
    np.around: lambda a: dsl.round(a),
    np.round: lambda a: dsl.round(a),
    np.shape: lambda a: a.shape,
    np.size: lambda a: a.size,
    np.sort: lambda a, axis=-1: ordering.sort(a, axis),
    np.split: lambda ary, indices_or_sections, axis=0: join.split(ary, indices_or_sections, axis),
    np.squeeze: lambda a, axis=None: rearrange.squeeze(a, axis),
    np.stack: lambda arrays, axis=0: join.stack([operand(t) for t in arrays], axis),
    np.std: lambda a, axis=None, *, ddof=0, keepdims=False: reducers.std(a, axis, keepdims, ddof),
    np.sum: _reducer("sum"),
    np.swapaxes: lambda a, axis1, axis2: rearrange.swapaxes(a, axis1, axis2),
    np.take: lambda a, indices, axis=None: indexing.take(a, _array_of(indices), axis),
    np.take_along_axis: lambda arr, indices, axis=-1: indexing.gather(arr, _array_of(indices), axis),
    np.tile: lambda A, reps: join.tile(A, reps),
    np.transpose: lambda a, axes=None: rearrange.transpose(a, axes),
    np.tril: lambda m, k=0: indexing.tril(m, k),
    np.triu: lambda m, k=0: indexing.triu(m, k),
    np.var: lambda a, axis=None, *, ddof=0, keepdims=False: reducers.var(a, axis, keepdims, ddof),
    np.where: lambda condition, x, y: dsl.select(condition, x, y),
    np.zeros_like: lambda a: fill.zeros_like(a),
}
"""What each of NumPy's other functions is; the arguments that a row lacks have no counterpart."""


def _array_of(indices: Any) -> Any:
    try:
        return np.asarray(indices) if isinstance(indices, (list, tuple)) else indices
    except ValueError as e:
        raise fail(f"the indices {shown(indices)} are no array: {e}") from None


def _dot(a: Any, b: Any) -> Tensor:
    """As matmul, but for stacks of matrices, which NumPy combines each with each."""
    if len(b.shape) > 2:
        raise _none("dot of more than two dimensions")
    return products.matmul(a, b)


def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """What NumPy calls for `np.exp(x)` and for `array * x`."""
    name = ufunc.__name__
    if method == "reduce" and name in _REDUCED:
        given = {"axis": 0, **{k: v for k, v in options.items() if v is not None or k == "axis"}}
        return _called(f"np.{name}.reduce", _reducer(_REDUCED[name]), inputs, given)
    if method != "__call__" or name not in _UFUNCS:
        raise _none(name if method == "__call__" else f"{name}.{method}")
    if options:
        raise fail(f"np.{name} of {_what(self)} takes no {', '.join(options)}: it gives a new one")
    return _UFUNCS[name](*inputs)


def array_function(self: Any, func: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What NumPy calls for `np.sum(x)`."""
    if func not in _CALLS:
        raise _none(getattr(func, "__name__", str(func)))
    return _called(f"np.{func.__name__}", _CALLS[func], args, kwargs)


def _called(name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as e:
        raise fail(f"{name} of a tensor takes {inspect.signature(function)}: {e}") from None
    if not isinstance(kwargs.get("keepdims", False), (int, np.bool_)):
        raise fail(f"{name} of a tensor: keepdims is {shown(kwargs['keepdims'])}; it is True or False")
    return function(*args, **kwargs)


def _none(name: str) -> Exception:
    return fail(
        f"np.{name} has no counterpart for tensors; write it with the functions of nf, or apply it to arrays before "
        "they become tensors"
    )


def _what(x: Any) -> str:
    return "a tensor" if isinstance(x, Tensor) else "an expression"


def install() -> None:
    """Let NumPy's functions take tensors and expressions."""
    for cls in (Expr, Tensor):
        for name, method in (("__array_ufunc__", array_ufunc), ("__array_function__", array_function)):
            setattr(cls, name, method)

"""What Python's own syntax means on expressions and tensors: operators, brackets, iteration, `in` of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from neoflow.errors import ExpressionError
from neoflow.expr import dsl, numpy_calls, products
from neoflow.expr.dsl import apply
from neoflow.expr.equality import Incomparable
from neoflow.expr.ir import Expr
from neoflow.expr.shape.rearrange import transpose
from neoflow.expr.shape.subscript import subscript
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import fail

_FUNCTIONS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floordiv",
    "mod": "mod",
    "pow": "pow",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_INFIX: dict[str, Callable[[Any, Any], Any]] = {
    "and": dsl.bitwise_and,
    "or": dsl.bitwise_or,
    "xor": dsl.bitwise_xor,
    **{python: partial(apply, fn) for python, fn in _FUNCTIONS.items()},
}
"""Operators that also stand to the right of a number or an array."""


def _no_array(value: Expr | Tensor, dtype: Any = None, copy: Any = None) -> Any:
    what = value.name if isinstance(value, Tensor) else f"`{value}`"
    raise fail(
        f"{what} has no value while the program is written, so NumPy cannot take it; nf.compile and nf.evaluate "
        "compute it, nf.get_value gives that of a parameter"
    )


def _no_getitem(e: Expr, key: Any) -> Any:
    raise fail(f"`{e}` is a scalar and cannot be indexed; index the tensor it is read from")


def _rows(x: Tensor) -> Iterator[Tensor]:
    """x[0], x[1], ...: for iteration, unpacking and `list(x)`."""
    return (x[n] for n in range(_length(x)))


def _length(x: Tensor) -> int:
    """The first extent."""
    if not x.rank:
        raise fail(f"{x.name} has rank 0: it has no first dimension to go over")
    return x.shape[0]


def _contains(x: Tensor, value: Any) -> bool:
    raise fail(f"what {x.name} contains is not known while the program is written; use nf.any(nf.equal(x, value))")


def _equal(a: Tensor, b: Any) -> Any:
    """a == b, element by element; as a truth (`in`, `index` of a list) it is whether the two are the same tensor."""
    return _compared("eq", a, b, a is b)


def _not_equal(a: Tensor, b: Any) -> Any:
    """a != b, element by element; as a truth it is whether the two are different tensors."""
    return _compared("ne", a, b, a is not b)


def _compared(fn: str, a: Tensor, b: Any, truth: bool) -> Any:
    if b is None or isinstance(b, (str, bytes, dict)):
        return NotImplemented
    if not isinstance(b, Tensor):
        return apply(fn, a, b)
    try:
        result = apply(fn, a, b)
    except ExpressionError as refusal:
        return Incomparable(truth, refusal)
    object.__setattr__(result, "truth", truth)
    return result


def install() -> None:
    """Give expressions and tensors their operators."""
    numpy_calls.install()
    for cls in (Expr, Tensor):
        for python, function in _INFIX.items():
            setattr(cls, f"__{python}__", lambda a, b, function=function: function(a, b))
            setattr(cls, f"__r{python}__", lambda a, b, function=function: function(b, a))
        for fn in ("lt", "le", "gt", "ge", "eq", "ne"):
            setattr(cls, f"__{fn}__", lambda a, b, fn=fn: apply(fn, a, b))
        rest: dict[str, Callable[..., Any]] = {
            "__neg__": lambda a: apply("neg", a),
            "__pos__": lambda a: a,
            "__invert__": dsl.bitwise_not,
            "__abs__": lambda a: apply("abs", a),
            "__hash__": lambda a: a.uid,
            "__array__": _no_array,
        }
        rest["__getitem__"] = _no_getitem if cls is Expr else subscript
        for python, method in rest.items():
            setattr(cls, python, method)
    of_tensors: dict[str, Any] = {
        "__iter__": _rows,
        "__len__": _length,
        "__contains__": _contains,
        "__eq__": _equal,
        "__ne__": _not_equal,
        "__matmul__": products.matmul,
        "__rmatmul__": lambda a, b: products.matmul(b, a),
        "T": property(transpose, doc="The tensor with its dimensions in reverse order."),
    }
    for python, method in of_tensors.items():
        setattr(Tensor, python, method)

"""The Python notation: operators and functions on scalar expressions and, element by element, on tensors."""

from __future__ import annotations

import builtins
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import Location, shown
from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS
from neoflow.expr.given import check_initial, checked_dtype, checked_name, checked_shape
from neoflow.expr.ir import Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select, substitute
from neoflow.expr.limits import unsaved
from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor
from neoflow.expr.typed import Operand, as_expr, fail, operand, scalar, unified

_axis_idents = itertools.count(1)
_auto_names = itertools.count(1)


# ---------------------------------------------------------------------------------------------- tensors and axes


def placeholder(shape: Sequence[int], dtype: object = "float32", name: str = "") -> Placeholder:
    """An input of the given static shape and dtype, passed at every call."""
    name = checked_name(name) or f"x{next(_auto_names)}"
    return Placeholder(checked_shape(shape), checked_dtype(dtype), name, caller())


def parameter(shape: Sequence[int], dtype: object = "float32", name: str = "", init: Any = None) -> Parameter:
    """A trained tensor. `init`: an array of that shape, or a function (shape, generator) -> array; None means zeros."""
    name = checked_name(name) or f"w{next(_auto_names)}"
    wrong = unsaved(name)
    if wrong is not None:
        raise fail(wrong)
    dims = checked_shape(shape)
    check_initial(name, dims, init)
    return Parameter(dims, checked_dtype(dtype), name, caller(), init=init)


def axis(extent: int, name: str = "") -> Axis:
    """A reduction axis: an integer in [0, extent)."""
    (n,) = checked_shape(extent)
    ident = next(_axis_idents)
    return Axis(-ident, n, checked_name(name) or f"r{ident}", caller())


def unnamed_axes(shape: Sequence[int], where: Location | None) -> tuple[Axis, ...]:
    """New axes i, j, k ... for tensors that are written without any."""
    names = itertools.chain("ijklmnpqtuvw", (f"i{n}" for n in itertools.count()))
    return tuple(Axis(-next(_axis_idents), n, name, where) for n, name in zip(shape, names, strict=False))


def compute(shape: Sequence[int], body: Callable[..., Operand], name: str = "") -> Compute:
    """The tensor whose element at (i, j, ...) is `body(i, j, ...)`.

    shape: static extents, one for each argument of `body`. Raises `ExpressionError` when a read can leave its tensor.
    """
    dims = checked_shape(shape)
    try:
        parameters = inspect.signature(body).parameters.values()
    except ValueError:
        raise fail(f"the body is a function of axes, not {shown(body)}") from None
    names = [p.name for p in parameters if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        names = [f"i{n}" for n in range(len(dims))]
    if len(names) != len(dims):
        raise fail(f"shape {dims} has {len(dims)} extents but the function takes {len(names)} axes")
    where = caller()
    axes = tuple(Axis(-next(_axis_idents), n, a, where) for n, a in zip(dims, names, strict=True))
    result = body(*axes)
    expr = as_expr(result, "float32")
    return define(dims, axes, expr, checked_name(name) or f"t{next(_auto_names)}", where)


def read(tensor: Tensor, indices: Sequence[Operand]) -> Read:
    """The element of `tensor` at scalar integer `indices`, one for each dimension; -1 is the last of its dimension."""
    if len(indices) != tensor.rank:
        raise fail(
            f"{tensor.name} has rank {tensor.rank} (shape {tensor.shape}) but is read with {len(indices)} indices"
        )
    where = caller()
    closed = []
    for n, (index, extent) in enumerate(zip(indices, tensor.shape, strict=True)):
        if isinstance(index, (int, np.integer)) and -extent <= index < 0:
            index = int(index) + extent
        closed.append(_index(index, f"index {n} of {tensor.name}"))
    return Read(tensor, tuple(closed), where)


def _index(index: Operand, what: str) -> Expr:
    """A scalar integer as an index, which errors call `what`."""
    e = as_expr(index, dt.INDEX)
    if not dt.is_int(e.dtype):
        raise fail(f"{what} is `{e}` of type {e.dtype}; an index is an integer")
    if affine.written_nodes(e) > affine.MOST_NODES:
        raise fail(f"{what} is too long: written out it has more than {affine.MOST_NODES} operations")
    return e if e.dtype == dt.INDEX else Cast(dt.INDEX, e)


# -------------------------------------------------------------------------------------------- element by element


def operands(args: tuple[Operand, ...]) -> tuple[Any, ...]:
    """Arrays as constants, unless expressions are among the operands: these have no place for whole tensors."""
    if not any([isinstance(a, np.ndarray) for a in args]) or any(isinstance(a, Expr) for a in args):
        return args
    return tuple(map(operand, args))


def _is_lifted(args: Sequence[Operand]) -> bool:
    return any([isinstance(a, Tensor) for a in args]) and not any(isinstance(a, Expr) for a in args)


def broadcast_shapes(*tensors: Tensor) -> tuple[int, ...]:
    """NumPy's broadcasting rule over static shapes."""
    rank = builtins.max((t.rank for t in tensors), default=0)
    aligned = [(1,) * (rank - t.rank) + t.shape for t in tensors]
    dims = [{n for n in extents if n != 1} for extents in zip(*aligned, strict=True)]
    if any(len(extents) > 1 for extents in dims):
        shapes = ", ".join(f"{t.name}{list(t.shape)}" for t in tensors)
        raise fail(f"shapes do not broadcast: {shapes}")
    return tuple(extents.pop() if extents else 1 for extents in dims)


def lift(body: Callable[..., Expr], args: Sequence[Operand], name: str) -> Compute:
    """`body` applied element by element, with NumPy broadcasting of the tensors among `args`."""
    shape = broadcast_shapes(*(a for a in args if isinstance(a, Tensor)))
    where = caller()
    axes = unnamed_axes(shape, where)
    zero = Const(0, dt.INDEX)

    def element(a: Operand) -> Operand:
        if not isinstance(a, Tensor):
            return a
        own = axes[len(axes) - a.rank :]
        return Read(a, tuple(zero if n == 1 else i for n, i in zip(a.shape, own, strict=True)), where)

    return define(shape, axes, body(*(element(a) for a in args)), name, where)


def apply(fn: str, *args: Operand) -> Any:
    """`fn` of scalar expressions, or element by element when a tensor or an array is among the operands."""
    args = operands(args)
    if _is_lifted(args):
        return lift(lambda *es: scalar(fn, *es), args, fn)
    return scalar(fn, *args)


# ----------------------------------------------------------------------------------------------------- functions


def _function(fn: str, doc: str) -> Callable[..., Any]:
    def call(*args: Operand) -> Any:
        if len(args) != FUNCTIONS[fn].arity:
            raise fail(f"{fn} takes {FUNCTIONS[fn].arity} argument(s), got {len(args)}")
        return apply(fn, *args)

    call.__name__ = call.__qualname__ = fn
    call.__doc__ = doc + " Of a scalar expression, or element by element of a tensor (NumPy broadcasting)."
    return call


exp = _function("exp", "e to the power of x.")
log = _function("log", "Natural logarithm.")
log1p = _function("log1p", "log(1 + x), to the last digits of a small x.")
expm1 = _function("expm1", "exp(x) - 1, to the last digits of a small x.")
tanh = _function("tanh", "Hyperbolic tangent.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x)).")
sqrt = _function("sqrt", "Square root.")
rsqrt = _function("rsqrt", "1 / sqrt(x).")
erf = _function("erf", "Gauss error function.")
sin = _function("sin", "Sine of x in radians; compiled, up to 2^30.")
cos = _function("cos", "Cosine of x in radians; compiled, up to 2^30.")
pow = _function("pow", "x to the power of y.")
abs = _function("abs", "Absolute value; its derivative at 0 is 0.")
sign = _function("sign", "-1, 0 or 1.")
floor = _function("floor", "Largest whole number not above x.")
ceil = _function("ceil", "Smallest whole number not below x.")
round = _function("round", "The nearest whole number, of two the even one.")
stop_gradient = _function("stop_gradient", "x, a constant to derivatives.")
relu = _function("relu", "max(x, 0); its derivative at 0 is 0.")
maximum = _function("maximum", "The larger of two, NaN of NaN; at a tie both get half of the cotangent.")
minimum = _function("minimum", "The smaller of two, NaN of NaN; at a tie both get half of the cotangent.")
logical_and = _function("and", "Both conditions.")
logical_or = _function("or", "Either condition.")
logical_not = _function("not", "The opposite condition.")
left_shift = _function("left_shift", "x << n of integers; 0 where n is negative or not below the width of the type.")
right_shift = _function("right_shift", "x >> n of integers, rounding down; for such n it is 0, or -1 of negative x.")
equal = _function("eq", "x == y.")
not_equal = _function("ne", "x != y.")


def select(cond: Operand, then: Operand, other: Operand) -> Any:
    """`then` where `cond` holds, else `other`; only the chosen branch is evaluated, read and differentiated."""

    def pick(c: Operand, a: Operand, b: Operand) -> Expr:
        condition = as_expr(c, "bool")
        if condition.dtype != "bool":
            raise fail(f"select needs a condition, but `{condition}` is {condition.dtype}; compare it: x != 0")
        a, b = unified("select", (a, b))
        return Select(condition, a, b, caller())

    args = operands((cond, then, other))
    if not _is_lifted(args):
        return pick(*args)
    result = lift(pick, args, "select")
    if not any(isinstance(a, Tensor) for a in args[1:]):

        def retype(dtype: str) -> Tensor:
            return lift(lambda c: pick(c, *(Const(a, dtype) for a in args[1:])), args[:1], "select")

        object.__setattr__(result, "choice", (args[1:], retype))
    return result


where = select


def _joined(name: str, of_conditions: str, symbol: str, doc: str) -> Callable[[Operand, Operand], Any]:
    def call(x: Operand, y: Operand) -> Any:
        x, y = operands((x, y))
        dtypes = [a.dtype for a in (x, y) if isinstance(a, (Expr, Tensor))]
        if all(map(dt.is_int, dtypes)):
            return apply(name, x, y)
        if name == "bitwise_xor" and not all(d == "bool" for d in dtypes):
            raise fail(f"^ takes integers or conditions, but `{x}` and `{y}` are not; a power is written x ** y")
        return apply(of_conditions, x, y)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{doc}: x {symbol} y. Of conditions, or of the bits of integers; element by element of tensors."
    return call


bitwise_and = _joined("bitwise_and", "and", "&", "Both")
bitwise_or = _joined("bitwise_or", "or", "|", "Either")
bitwise_xor = _joined("bitwise_xor", "ne", "^", "One of the two")


def bitwise_not(x: Operand) -> Any:
    """The opposite condition, or the opposite bits of an integer: ~x."""
    x = operand(x)
    if isinstance(x, (Expr, Tensor)):
        return apply("bitwise_not" if dt.is_int(x.dtype) else "not", x)
    return apply("bitwise_not" if isinstance(x, int) and not isinstance(x, bool) else "not", x)


def clip(x: Operand, low: Operand | None = None, high: Operand | None = None) -> Any:
    """x, but not below `low` and not above `high` (None: no limit). Its derivative is 1 at the limits themselves.

    A cotangent goes to the limit where that is taken, and to x elsewhere. NaN stays NaN.
    """
    if low is not None:
        x = select(apply("lt", x, low), low, x)
    return x if high is None else select(apply("gt", x, high), high, x)


def cast(x: Operand, dtype: object) -> Any:
    """x converted to `dtype`; floats to integers truncate, integers wrap.

    A float that does not fit the integer type, and NaN, give an integer that is not defined: compiled it is the lowest
    of int32 and int64, the low bits of that int32 for int8 and int16.
    """
    target, x = checked_dtype(dtype), operand(x)
    if _is_lifted((x,)):
        return lift(lambda e: Cast(target, e, caller()), (x,), "cast")
    e = as_expr(x, target)
    if isinstance(e, Const) and e.dtype == target:
        return Const(e.value, target, e.where)
    is_same = e.dtype == target and (not e.weak or dt.is_int(target))
    return e if is_same else Cast(target, e, caller())


# ---------------------------------------------------------------------------------------------------- reductions


def reduction(op: str, x: Operand, axis: Any, keepdims: bool = False) -> Any:
    """A reduction of a scalar expression over `axis=[...]`, or of a tensor over integer dimensions."""
    x = operand(x)
    if isinstance(x, Tensor) and (axis is None or not _has_axes(axis)):
        return _reduce_tensor(op, x, axis, keepdims)
    e = as_expr(x, "float32")
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    for a in axes:
        if not isinstance(a, Axis):
            raise fail(f"{op} reduces over axes made by nf.axis, not {a!r}")
    if not axes or len(set(axes)) != len(axes):
        raise fail(f"{op} needs one or more distinct axes: axis=[r, s]")
    if op in ARG_REDUCERS and len(axes) != 1:
        raise fail(f"{op} goes over exactly one axis, not {len(axes)}")
    if e.dtype == "bool":
        raise fail(f"{op} takes numbers, but `{e}` is bool; cast it: nf.cast(..., 'int32')")
    return Reduce(op, axes, e, caller())


def _has_axes(axis: Any) -> bool:
    return isinstance(axis, Axis) or (isinstance(axis, (list, tuple)) and any(isinstance(a, Axis) for a in axis))


def checked_dims(x: Tensor, axis: Any) -> tuple[int, ...]:
    """Dimension numbers made non-negative, checked and sorted; None means all."""
    dims = range(x.rank) if axis is None else axis if isinstance(axis, (list, tuple, range)) else (axis,)
    for d in dims:
        if not isinstance(d, (int, np.integer)) or isinstance(d, bool):
            raise fail(
                f"the dimensions of {x.name} (shape {x.shape}) are numbers: axis=0 or axis=[0, 1], not {shown(axis)}"
            )
        if not -x.rank <= d < x.rank:
            raise fail(f"{x.name} has rank {x.rank} (shape {x.shape}); there is no dimension {shown(d)}")
    return tuple(sorted({d % x.rank for d in dims}))


def _reduce_tensor(op: str, x: Tensor, dims: Any, keepdims: bool) -> Tensor:
    over = checked_dims(x, dims)
    if not over:
        return x
    if op in ARG_REDUCERS and len(over) != 1:
        raise fail(f"{op} goes over exactly one dimension: axis=d")
    if x.dtype == "bool":
        raise fail(f"{op} takes numbers, but `{x.name}` is bool; cast it: nf.cast(..., 'int32')")
    where = caller()
    axes = unnamed_axes(x.shape, where)
    bound = tuple(axes[d] for d in over)
    body = Reduce(op, bound, Read(x, axes, where), where)
    if keepdims:
        ones = {d: Axis(-next(_axis_idents), 1, "", where) for d in over}
        outer = tuple(ones.get(d, a) for d, a in enumerate(axes))
    else:
        outer = tuple(a for d, a in enumerate(axes) if d not in over)
    return define(tuple(a.extent for a in outer), outer, body, op, where)


def _reducer(op: str, doc: str) -> Callable[..., Any]:
    def call(x: Operand, axis: Any = None, keepdims: bool = False) -> Any:
        return reduction(op, x, axis, keepdims)

    call.__name__ = call.__qualname__ = op
    call.__doc__ = doc + " `axis`: nf.axis objects for a scalar expression, dimension numbers (None: all) for a tensor."
    return call


sum = _reducer("sum", "Sum.")
prod = _reducer("prod", "Product.")
max = _reducer("max", "Largest; tied elements share the cotangent equally.")
min = _reducer("min", "Smallest; tied elements share the cotangent equally.")
argmax = _reducer("argmax", "Position of the first largest, int64; it has no gradient.")
argmin = _reducer("argmin", "Position of the first smallest, int64; it has no gradient.")


def scatter(
    shape: Sequence[int], axes: Sequence[Axis], index: Sequence[Operand], value: Operand, name: str = ""
) -> Compute:
    """A tensor of zeros with `value` added at `index`, for every point of `axes`: the adjoint of a data-dependent read.

    `nf.scatter((v, h), [b, j], (ids[b], j), g[b, j])` adds row b of g to row ids[b]. An index outside is a fault at
    run time. index: one for each dimension of `shape`.
    """
    dims, where = checked_shape(shape), caller()
    outputs = tuple(Axis(-next(_axis_idents), n, "", where) for n in dims)
    return define(dims, outputs, scattered(axes, index, value), checked_name(name) or f"t{next(_auto_names)}", where)


def scattered(axes: Sequence[Axis], index: Sequence[Operand], value: Operand) -> Scatter:
    """The body of `scatter`."""
    for a in axes:
        if not isinstance(a, Axis):
            raise fail(f"scatter goes over axes made by nf.axis, not {a!r}")
    if len(set(axes)) != len(axes):
        raise fail("scatter goes over distinct axes")
    targets = tuple(_index(i, f"index {n} of the scatter") for n, i in enumerate(index))
    return Scatter(tuple(axes), targets, as_expr(value, "float32"), caller())


def mean(x: Operand, axis: Any = None, keepdims: bool = False) -> Any:
    """Arithmetic mean of a tensor over dimensions (None: all), or of a scalar expression over `axis=[...]`."""
    x = operand(x)
    return apply("mul", reduction("sum", x, axis, keepdims), 1.0 / points_over(x, axis))


def points_over(x: Operand, axis: Any) -> int:
    """How many values a reduction of x over `axis` takes."""
    if isinstance(x, Tensor) and (axis is None or not _has_axes(axis)):
        return math.prod(x.shape[d] for d in checked_dims(x, axis))
    return math.prod(a.extent for a in (axis if isinstance(axis, (list, tuple)) else [axis]) if isinstance(a, Axis))


def renamed_axes(x: Operand, axes: Axis | Sequence[Axis]) -> tuple[Expr, list[Axis]]:
    """A scalar expression over new axes in place of `axes`, so that it can be reduced inside a reduction over these."""
    own = [axes] if isinstance(axes, Axis) else list(axes)
    new = [axis(a.extent, a.name) for a in own]
    return substitute(as_expr(x, "float32"), dict(zip(own, new, strict=True))), new

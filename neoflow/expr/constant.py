"""Tensors whose elements are known when the program is written: `nf.constant(array)`, and arrays in expressions."""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import ExpressionError, Location, shown
from neoflow.expr.limits import excess, unusable
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Constant, Tensor

_WEAK = (np.dtype(np.float64), np.dtype(np.int64))
"""What NumPy makes of Python numbers: an array of these takes the dtype of what it meets, as they do."""
_numbers = itertools.count(1)
_written: WeakValueDictionary[str, Constant] = WeakValueDictionary()
"""Arrays in expressions by their content, so that one written at every step of a recurrence is one tensor."""


def constant(value: Any, dtype: object = None, name: str = "") -> Constant:
    """A tensor with the elements of `value`: an array, or (nested lists of) numbers. It is no input and no parameter.

    The elements are copied. dtype: by default the array's own; float32 for Python floats, int64 for integers. An array
    can also stand in an expression by itself, `x * array`; of NumPy's own types float64 and int64 it then takes, as a
    number does, the dtype of what it meets. What depends on constants alone is computed once, when the program is
    compiled. Raises `ExpressionError` for what is no array of a known dtype, or is empty.
    """
    where = caller()
    if (wrong := unusable(name)) is not None:
        raise ExpressionError(wrong, where)
    if isinstance(value, Constant):
        value = value.value
    if isinstance(value, Tensor):
        raise ExpressionError(f"{value.name} is a tensor of the program, not an array", where)
    array = _array(value, where)
    if dtype is not None:
        try:
            wanted = dt.NUMPY[dt.canonical(dtype)]
        except KeyError:
            raise ExpressionError(f"dtype {shown(dtype)} is not one of {', '.join(dt.NUMPY)}", where) from None
        if dt.is_int(wanted.name) and not np.can_cast(array.dtype, wanted, "same_kind") and array.dtype != np.bool_:
            raise ExpressionError(
                f"a constant of type {wanted.name} is given {array.dtype}s; convert them first", where
            )
        array = _converted(array, wanted.name, where)
    elif array.dtype == np.float64 and not hasattr(value, "dtype"):
        array = array.astype(np.float32)
    return Constant(array, name or f"c{next(_numbers)}", where)


def written(array: np.ndarray) -> Constant:
    """The constant that stands for an array in an expression; equal arrays are one."""
    where = caller()
    made = Constant(_array(array, where), f"c{next(_numbers)}", where, is_weak=array.dtype in _WEAK)
    return _written.setdefault(made.digest, made)


@remembered
def retyped(c: Constant, dtype: str) -> Constant:
    """A weak constant with its elements converted to `dtype`."""
    return Constant(_converted(c.value, dtype, c.where), c.name, c.where, is_weak=True)


def _array(value: Any, where: Location | None) -> np.ndarray:
    """`value` as a contiguous array of a dtype of the language."""
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        value = np.from_dlpack(value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ExpressionError(
            "a constant has a value everywhere, but this array is masked; fill it: array.filled(0)", where
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as e:
        raise ExpressionError(f"a constant is an array or numbers, not {shown(value)}: {e}", where) from None
    if array.dtype.name not in dt.NUMPY:
        known = ", ".join(dt.NUMPY)
        raise ExpressionError(
            f"a constant of type {array.dtype} is none of {known}; convert it: array.astype(...)", where
        )
    if not array.size:
        raise ExpressionError(f"a constant of shape {array.shape} has no element", where)
    if (wrong := excess(array.shape)) is not None:
        raise ExpressionError(wrong, where)
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)


def _converted(array: np.ndarray, dtype: str, where: Location | None) -> np.ndarray:
    """The array in another type; an integer that this does not hold is refused."""
    if dt.is_int(dtype) and array.dtype != np.bool_:
        info = np.iinfo(dtype)
        if array.min() < info.min or array.max() > info.max:
            raise ExpressionError(f"the constant has elements that do not fit {dtype}: up to {array.max()}", where)
    with np.errstate(all="ignore"):
        return array.astype(dt.NUMPY[dtype])

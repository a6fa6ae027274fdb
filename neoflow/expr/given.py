"""What a tensor is declared with: its shape, dtype, name and first value, each checked."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import shown
from neoflow.expr.limits import MOST_RANK, excess, unusable
from neoflow.expr.typed import fail


def checked_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    """A static shape: integers > 0."""
    if isinstance(shape, (int, np.integer)):
        dims: tuple[Any, ...] = (shape,)
    elif isinstance(shape, Iterable) and not isinstance(shape, (str, bytes, Mapping)):
        dims = tuple(itertools.islice(shape, MOST_RANK + 1))
    else:
        raise fail(f"a shape is one integer greater than 0 for each dimension, not {shown(shape)}")
    for n in dims:
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n <= 0:
            raise fail(f"shape {shown(dims)} has extent {shown(n)}; extents are integers greater than 0")
    extents = tuple(int(n) for n in dims)
    wrong = excess(extents)
    if wrong is not None:
        raise fail(wrong)
    return extents


def checked_name(name: str) -> str:
    """A name that can be printed and saved; "" where none is given."""
    wrong = unusable(name)
    if wrong is not None:
        raise fail(wrong)
    return name


def checked_dtype(dtype: object) -> str:
    try:
        if dtype is None:  # NumPy's float64, which nobody means
            raise KeyError(dtype)
        return dt.canonical(dtype)
    except KeyError:
        raise fail(f"dtype {shown(dtype)} is not one of {', '.join(dt.NUMPY)}") from None


def check_initial(name: str, shape: tuple[int, ...], init: Any) -> None:
    """Raise `ExpressionError` unless `init` can give the first value of a parameter."""
    what = f"the initial value of parameter {name}"
    if init is None:
        return
    if callable(init):
        try:
            inspect.signature(init).bind(shape, None)
        except TypeError as error:
            raise fail(f"{what} is a function that is called with (shape, generator): {error}") from None
        except ValueError:  # nothing is known of it
            pass
        return
    try:
        array = np.asarray(init)
    except ValueError as error:
        raise fail(f"{what} is no array: {error}") from None
    if array.dtype.kind in "OSUmM":
        raise fail(f"{what} is an array, or a function (shape, generator) -> array, not {shown(init)}")
    if array.shape != shape and (array.size != 1 or isinstance(init, np.ndarray)):
        raise fail(f"parameter {name} has shape {shape}, its initial value {array.shape}")

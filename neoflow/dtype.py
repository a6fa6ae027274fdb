"""The element types and the one rule for mixing them: integers widen, floats never do silently."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np

NUMPY: dict[str, np.dtype] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "int16": np.dtype(np.int16),
    "int8": np.dtype(np.int8),
    "bool": np.dtype(np.bool_),
}
NAMES: dict[np.dtype, str] = {dtype: name for name, dtype in NUMPY.items()}
FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64")
INDEX = "int64"
"""The type of axes and of index arithmetic."""


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_int(dtype: str) -> bool:
    return dtype in INTS


ENDS = {d: (int(np.iinfo(d).min), int(np.iinfo(d).max)) for d in INTS}
"""The smallest and the largest number of the integer types."""


def holds(dtype: str, value: float) -> bool:
    """Whether a number lies between the smallest and the largest of an integer type."""
    low, high = ENDS[dtype]
    return low <= value <= high


def canonical(dtype: object) -> str:
    """The name of a dtype given as a name, a NumPy dtype or a scalar type; KeyError for what the language lacks."""
    name = given = cast(Any, dtype)
    if not isinstance(dtype, (str, bytes)):  # of a text NumPy would take codes, and warn of some
        try:
            name = np.dtype(given).name
        except (TypeError, ValueError):
            raise KeyError(dtype) from None
    if not isinstance(name, str) or name not in NUMPY:
        raise KeyError(dtype)
    return name


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return NUMPY[dtype].itemsize

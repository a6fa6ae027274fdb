"""The element types and the one rule for mixing them: integers widen, floats never do silently."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np


class _Types(dict[str, np.dtype | None]):
    """NumPy's types by name. Its own lack bfloat16: that is had when first asked for, from a library which takes longer
    to import than most packages take to run."""

    def __getitem__(self, name: str) -> np.dtype:
        found = super().__getitem__(name)
        if found is None:
            import ml_dtypes

            found = self[name] = np.dtype(ml_dtypes.bfloat16)
        return found


NUMPY = _Types(
    {
        "float64": np.dtype(np.float64),
        "float32": np.dtype(np.float32),
        "float16": np.dtype(np.float16),
        "bfloat16": None,
        "int64": np.dtype(np.int64),
        "int32": np.dtype(np.int32),
        "int16": np.dtype(np.int16),
        "int8": np.dtype(np.int8),
        "bool": np.dtype(np.bool_),
    }
)
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
    return known(name)


def known(name: str) -> str:
    """The name of a dtype, which NumPy knows from now on: it learns bfloat16 here. KeyError for what the language
    lacks."""
    _ = NUMPY[name]
    return name


@lru_cache(maxsize=64)
def name_of(dtype: np.dtype) -> str:
    """The name of NumPy's type; KeyError for what the language lacks, or has in another order of bytes."""
    if not isinstance(dtype, np.dtype) or dtype != NUMPY[dtype.name]:
        raise KeyError(dtype)
    return dtype.name


def type_of(dtype: str | np.dtype) -> np.dtype:
    """NumPy's type by its name, also one that the language lacks; a type is its own."""
    return NUMPY[dtype] if isinstance(dtype, str) and dtype in NUMPY else np.dtype(dtype)


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return NUMPY[dtype].itemsize

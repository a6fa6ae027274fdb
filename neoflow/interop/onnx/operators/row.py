"""A row of the table of operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.errors import DataError


@dataclass(frozen=True)
class Row:
    """An operator of ONNX and the function that writes it.

    function: takes a tensor for each input, or None for one that is left out, and attributes by their names, whose
    defaults are ONNX's; an attribute that a later version made an input is an argument of that name. It gives a tensor,
    an array where the elements follow from shapes, or several of these. It may take less than ONNX allows: an attribute
    that it lacks is an error.
    known: the inputs that it takes as arrays, since shapes follow from them; those after the last are as the last one
    when that is -1. fixed: the inputs that are statistics, no parameters, where the file has their values.
    counts: whether it takes outputs=, the names of the node's outputs, "" for those that are left out. joins: whether
    inputs without elements, which the language has no tensors for, add nothing to it.
    """

    name: str
    function: Callable[..., Any]
    known: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    counts: bool = False
    joins: bool = False

    def keeps(self, value: Any) -> bool:
        """Whether it is called with this input."""
        return not (self.joins and isinstance(value, np.ndarray) and not value.size)


def expect(condition: object, message: str) -> None:
    """Raise `DataError` with `message` unless the condition holds."""
    if not condition:
        raise DataError(message)


def dims_of(axes: Any, rank: int) -> list[int]:
    """Dimension numbers from 0 on. Raises `DataError` for those that there are not."""
    found = [int(a) for a in axes]
    for a in found:
        expect(-rank <= a < rank, f"axis {a} is not in [{-rank}, {rank})")
    return [a % rank for a in found]

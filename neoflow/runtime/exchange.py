"""How arrays get to a program on the CPU, and results from it: as they are. Of a GPU: `neoflow.runtime.transfer`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault
from neoflow.runtime.arrays import array_of, converted, is_bare
from neoflow.runtime.declared import Declared
from neoflow.runtime.device import ALIGNMENT
from neoflow.runtime.executor import Executor


class Exchange(Protocol):
    """The arrays of a call."""

    def bind(self, arrays: Sequence[Any]) -> None:
        """Make these the inputs of the next run. Raises `RuntimeFault`."""
        ...

    def ahead(self, arrays: Sequence[Any]) -> None:
        """Bring the first arrays of the next call to the device while a step runs there. Raises `RuntimeFault`."""
        ...

    def results(self) -> list[Any]:
        """What the last run has returned."""
        ...


def checked(t: Declared, value: Any) -> np.ndarray:
    """`value` as an array of its shape and dtype. Raises `RuntimeFault`."""
    what = f"input {t.name}"
    array = array_of(value, what, t.where)
    if array.shape != t.shape:
        raise RuntimeFault(f"{what} has shape {t.shape}, the array {array.shape}", t.where)
    if is_bare(value):
        array = converted(array, t.dtype, what, t.where)
    if array.dtype != dt.NUMPY[t.dtype]:
        raise RuntimeFault(
            f"{what} is {t.dtype}, the array {array.dtype}; convert it: array.astype('{t.dtype}')", t.where
        )
    return array


def _references(array: np.ndarray | None) -> tuple[int, int]:
    """How often an array and the memory under it (the base of its views) are held: more than at first means outside."""
    return (0, 0) if array is None else (sys.getrefcount(array), sys.getrefcount(array.base))


_Lies = tuple[int, tuple[int, ...], tuple[int, ...], np.dtype, bool]
_DATA = object.__basicsize__
"""Where NumPy's arrays keep the address of their elements: first in what is public of them in C, `PyArrayObject`."""


class _Place:
    """Where an array lies in memory, in what order, and what: all that can be changed in place but its values."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self._word = ctypes.c_size_t.from_address(id(array) + _DATA) if _IS_KNOWN else None
        self._then = self._now()

    def _now(self) -> _Lies:
        array, word = self._array, self._word
        address = array.ctypes.data if word is None else word.value
        return address, array.shape, array.strides, array.dtype, array.flags.writeable

    def holds(self, value: Any) -> bool:
        """Whether this is the array, and lies as it did."""
        return value is self._array and self._now() == self._then


def _is_known() -> bool:
    """Whether the address is where C has it: it takes a tenth of the time there."""
    array = np.zeros(3, np.int16)
    return ctypes.c_size_t.from_address(id(array) + _DATA).value == array.ctypes.data


_IS_KNOWN = _is_known()


class OnHost:
    """Arrays are used where they lie; what is not contiguous, writable and aligned to 64 bytes is copied.

    Results are the caller's: their memory is used again only once nobody holds it.
    """

    def __init__(self, executor: Executor, inputs: Sequence[Declared]):
        plan = executor.plan
        self._executor, self._inputs = executor, tuple(zip(plan.inputs, inputs, strict=True))
        self._copied: set[str] = set()
        self._bound: dict[int, _Place] = {}
        """by the number of an input: the array that it is, and how that lay"""
        self._copies: dict[int, np.ndarray] = {}
        """by the number of an input: the memory that arrays are copied to which kernels do not take as they are"""
        self._held: dict[int, tuple[int, int]] = {}
        self._outputs = plan.outputs
        self._fresh = [n for n, b in enumerate(plan.buffers) if b.kind == "output"]

    def bind(self, arrays: Sequence[Any]) -> None:
        executor = self._executor
        bound = executor.arrays
        for (number, t), value in zip(self._inputs, arrays, strict=True):
            if value is not None and bound[number] is value and self._bound[number].holds(value):
                continue
            array = self._accept(number, t, value)
            if bound[number] is not array or not self._bound[number].holds(array):
                self._bound[number] = _Place(array)  # before: what is bound has a place, whatever comes in between
                executor.bind(number, array)
        for number in self._fresh:
            if self._held.get(number) != _references(bound[number]):
                b = executor.plan.buffers[number]
                executor.bind(number, executor.device.allocate(b.shape, b.dtype))
                self._held[number] = _references(bound[number])

    def ahead(self, arrays: Sequence[Any]) -> None:
        """They are where they are used."""

    def results(self) -> list[Any]:
        arrays = self._executor.arrays
        return [r for n in self._outputs if (r := arrays[n]) is not None]

    def _accept(self, number: int, t: Declared, value: Any) -> np.ndarray:
        """`value` as an aligned contiguous array, copied only when needed."""
        array = checked(t, value)
        if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0:
            return array
        if t.name not in self._copied and array.size > 4096:
            self._copied.add(t.name)
            if "logging" in sys.modules:  # where nobody has imported it, nobody listens
                logging = import_module("logging")
                logging.getLogger("neoflow").info(
                    "input %s is copied at every call: kernels take contiguous, writable arrays aligned to 64 bytes",
                    t.name,
                )
        if number not in self._copies:
            self._copies[number] = self._executor.device.allocate(t.shape, t.dtype)
        copy = self._copies[number]
        copy[...] = array
        return copy

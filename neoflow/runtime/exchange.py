"""How arrays get to a program on the CPU, and results from it: as they are. Of a GPU: `neoflow.runtime.transfer`."""

from __future__ import annotations

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


def _layout(array: Any) -> tuple[dict[str, Any], np.dtype]:
    """Where an array lies in memory, in what order, and what: all that can be changed in place but its values."""
    return array.__array_interface__, array.dtype


class OnHost:
    """Arrays are used where they lie; what is not contiguous, writable and aligned to 64 bytes is copied.

    Results are the caller's: their memory is used again only once nobody holds it.
    """

    def __init__(self, executor: Executor, inputs: Sequence[Declared]):
        plan = executor.plan
        self._executor, self._inputs = executor, tuple(zip(plan.inputs, inputs, strict=True))
        self._copied: set[str] = set()
        self._bound: dict[int, tuple[dict[str, Any], np.dtype]] = {}
        """by the number of an input that is taken as it is: where its array lay, and of what dtype it was"""
        self._held: dict[int, tuple[int, int]] = {}
        self._fresh = [n for n, b in enumerate(plan.buffers) if b.kind == "output"]

    def bind(self, arrays: Sequence[Any]) -> None:
        executor = self._executor
        bound = executor.arrays
        for (number, t), value in zip(self._inputs, arrays, strict=True):
            if value is None or value is not bound[number] or _layout(value) != self._bound.get(number):
                array = self._accept(t, value)
                executor.bind(number, array)
                self._bound[number] = _layout(array)
        for number in self._fresh:
            if self._held.get(number) != _references(bound[number]):
                b = executor.plan.buffers[number]
                executor.bind(number, executor.device.allocate(b.shape, b.dtype))
                self._held[number] = _references(bound[number])

    def ahead(self, arrays: Sequence[Any]) -> None:
        """They are where they are used."""

    def results(self) -> list[Any]:
        results = [self._executor.arrays[n] for n in self._executor.plan.outputs]
        return [r for r in results if r is not None]

    def _accept(self, t: Declared, value: Any) -> np.ndarray:
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
        copy = self._executor.device.allocate(t.shape, t.dtype)
        copy[...] = array
        return copy

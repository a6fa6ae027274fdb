"""`OnDevice`: how arrays get to a program on a GPU, ahead of its step or with it, and results from it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.architectures import ACCESS_BYTES
from neoflow.errors import RuntimeFault
from neoflow.runtime.declared import Declared
from neoflow.runtime.device.cuda import Cuda, DeviceArray, Pinned
from neoflow.runtime.exchange import checked
from neoflow.runtime.executor import Executor
from neoflow.runtime.plan import Plan


def needs(plan: Plan, parameters: int, constants: int) -> dict[str, int]:
    """Bytes that a program allocates on a GPU before it first runs, by what they are for; given: what of its parameters
    and constants is not there yet."""
    carried = [b for b in plan.buffers if b.kind in ("input", "output")]
    arrays = sum(math.prod(b.shape) * dt.itemsize(b.dtype) for b in carried)
    return {
        "temporaries": plan.arena_bytes,
        "parameters": parameters,
        "constants": constants,
        "inputs and outputs": arrays,
    }


class _Room:
    """Memory for one input: on the device, and pinned on the host from where it is uploaded."""

    def __init__(self, device: Cuda, t: Declared):
        self.memory, self.pinned = device.allocate(t.shape, t.dtype), Pinned(device.driver, t.shape, t.dtype)

    def fill(self, device: Cuda, array: np.ndarray) -> None:
        self.pinned.array[...] = array
        device.driver.upload(self.memory.address, self.pinned.address, self.pinned.nbytes)


class OnDevice:
    """Arrays of the host are copied there, those that are there are used as they are; results stay where inputs were.

    Every input has two rooms: one is used by a step, the other may be filled meanwhile. Memory of results that stay is
    used again only once nobody holds it.
    """

    def __init__(self, executor: Executor, inputs: Sequence[Declared], device: Cuda):
        plan = executor.plan
        self._executor, self._device, self._driver = executor, device, device.driver
        self._inputs = tuple(zip(plan.inputs, inputs, strict=True))
        self._rooms: dict[int, list[_Room]] = {n: [_Room(device, t)] for n, t in self._inputs}
        """by input: that of the step, and, once something came ahead, the other one"""
        self._ahead: dict[int, Any] = {}
        """by input: the array that is in its other room"""
        self._moment: int | None = None
        """before the last step"""
        self._stays = self._is_borrowing = False
        self._held: dict[int, tuple[int, int]] = {}
        self._outputs = [n for n, b in enumerate(plan.buffers) if b.kind == "output"]
        for number, rooms in self._rooms.items():
            executor.bind(number, rooms[0].memory)
        for number in self._outputs:
            self._renew(number)

    def _renew(self, number: int) -> None:
        b = self._executor.plan.buffers[number]
        self._executor.bind(number, self._device.allocate(b.shape, b.dtype))
        self._held[number] = _references(self._executor.arrays[number])

    def bind(self, arrays: Sequence[Any]) -> None:
        ahead, self._ahead = self._ahead, {}
        there = [self._adopted(t, value) for (_, t), value in zip(self._inputs, arrays, strict=True)]
        here = [
            checked(t, value) if memory is None and not (n in ahead and ahead[n] is value) else None
            for (n, t), value, memory in zip(self._inputs, arrays, there, strict=True)
        ]
        self._stays = any(memory is not None for memory in there)
        self._is_borrowing = any(m is not None and m is not v for m, v in zip(there, arrays, strict=True))
        if any(array is not None for array in here):
            self._wait_for_rooms()
        for (number, _), array, memory in zip(self._inputs, here, there, strict=True):
            rooms = self._rooms[number]
            if array is not None:
                rooms[0].fill(self._device, array)
            elif memory is None:
                rooms.reverse()
            self._use(number, rooms[0].memory if memory is None else memory)
        self._driver.join_uploads()
        for number in self._outputs:
            self._prepare(number)
        self._remember()

    def _wait_for_rooms(self) -> None:
        """Until their pinned memory has been read; uploads wait for the steps that still read the device's."""
        self._driver.finish_uploads()
        moment = self._driver.event()
        self._driver.hold_uploads(moment)
        self._driver.free_event(moment)

    def _use(self, number: int, memory: DeviceArray) -> None:
        if self._executor.arrays[number] is not memory:
            self._executor.bind(number, memory)

    def _prepare(self, number: int) -> None:
        """An output's memory for the next step: new where somebody holds it."""
        if self._held[number] != _references(self._executor.arrays[number]):
            self._renew(number)
            return
        memory = self._executor.arrays[number]
        while memory is not None and memory.block.readers:
            self._driver.follow(memory.block.readers.pop())

    def _remember(self) -> None:
        """The moment before the step that comes now."""
        if self._moment is not None:
            self._driver.free_event(self._moment)
        self._moment = self._driver.event()

    def _adopted(self, t: Declared, value: Any) -> DeviceArray | None:
        """The memory of a value that is on the device, such as kernels take it; None where it is on the host."""
        what = f"input {t.name}"
        try:
            found = self._device.adopted(value)
        except RuntimeFault as fault:
            raise RuntimeFault(f"{what}: {fault.message}", t.where) from None
        if found is None:
            return None
        if found.shape != t.shape:
            raise RuntimeFault(f"{what} has shape {t.shape}, the array {found.shape}", t.where)
        if found.dtype != t.dtype:
            raise RuntimeFault(f"{what} is {t.dtype}, the array {found.dtype}; convert it to {t.dtype}", t.where)
        if found.address % ACCESS_BYTES == 0:
            return found
        copy = self._device.allocate(t.shape, t.dtype)
        self._device.copy(copy, found)
        return copy

    def ahead(self, arrays: Sequence[Any]) -> None:
        """Upload these while a step runs: those of its inputs that the next call gives are there then, if unchanged.

        Raises `RuntimeFault` for wrong arrays.
        """
        here = {n: checked(t, v) for (n, t), v in zip(self._inputs, arrays, strict=False) if _is_host(v)}
        self._ahead.clear()
        if self._moment is None:
            return
        self._driver.finish_uploads()
        self._driver.hold_uploads(self._moment)
        for (number, t), value in zip(self._inputs, arrays, strict=False):
            if number in here:
                if len(self._rooms[number]) == 1:
                    self._rooms[number].append(_Room(self._device, t))
                self._rooms[number][1].fill(self._device, here[number])
                self._ahead[number] = value

    def results(self) -> list[Any]:
        executor = self._executor
        if self._is_borrowing:  # who gave inputs may change them now
            self._driver.synchronize()
        if self._stays:
            return [executor.arrays[n] for n in executor.plan.outputs]
        found = []
        for number in executor.plan.outputs:
            b = executor.plan.buffers[number]
            found.append(np.empty(b.shape, dt.NUMPY[b.dtype]))
            self._device.copy(found[-1], executor.arrays[number])
        return found


def _is_host(value: Any) -> bool:
    """Whether a value is an array of NumPy: the others are looked at when they are given."""
    return isinstance(value, np.ndarray)


def _references(array: DeviceArray | None) -> tuple[int, int]:
    """How often an array and the memory under it are held: more than at first means outside."""
    return (0, 0) if array is None else (sys.getrefcount(array), sys.getrefcount(array.block))

"""`OnDevice`: how arrays get to a program on a GPU, ahead of its step or with it, and results from it."""

from __future__ import annotations

import math
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.architectures import ACCESS_BYTES
from neoflow.errors import RuntimeFault
from neoflow.runtime.arrays import HOSTS
from neoflow.runtime.declared import Declared
from neoflow.runtime.device import Memory
from neoflow.runtime.device.cuda import Cuda, DeviceArray, Driver, Moment, Pinned
from neoflow.runtime.device.cuda.libraries import follower
from neoflow.runtime.exchange import checked
from neoflow.runtime.executor import Executor
from neoflow.runtime.plan import Plan

MOST_LENT = 8
"""Of how many steps what they have borrowed is held at most: the host is no further ahead of them."""
ADDRESSES = 4
"""How many places of an input are used as they are, in turn."""
SPARES = 3
"""How many results of an output that were held by somebody are looked at again before there is new memory."""


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

    Every input has two rooms: one is used by a step, the other may be filled meanwhile. What lies there but never where
    it lay lately is copied into a room: a graph is captured for its addresses. Memory of results that stay is used
    again only once nobody holds it. What another library lends is held until the step is over; the stream in which that
    library goes on waits for the step, and not the host.
    """

    def __init__(self, executor: Executor, inputs: Sequence[Declared], device: Cuda):
        plan = executor.plan
        self._executor, self._device, self._driver = executor, device, device.driver
        self._inputs = tuple(zip(plan.inputs, inputs, strict=True))
        self._rooms: dict[int, list[_Room]] = {n: [_Room(device, t)] for n, t in self._inputs}
        """by input: that of the step, and, once something came ahead, the other one"""
        self._ahead: dict[int, Any] = {}
        """by input: the array that is in its other room"""
        self._moment: Moment | None = None
        """before the last step"""
        self._stays = False
        self._borrowed: list[DeviceArray] = []
        """what belongs to other libraries, of the next step or of the last one"""
        self._lent: deque[tuple[Moment, list[DeviceArray]]] = deque()
        """the same of steps before it, and the moments when they are over"""
        weakref.finalize(self, _ended, self._driver).atexit = False
        self._seen: dict[int, dict[int, None]] = {n: {} for n in self._rooms}
        """by input: addresses, that of the last step at the end"""
        self._held: dict[int, tuple[int, int]] = {}
        self._outputs = [n for n, b in enumerate(plan.buffers) if b.kind == "output"]
        self._spares: dict[int, deque[Memory]] = {n: deque() for n in self._outputs}
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
        self._give_back()
        followers: dict[int, None] = {}
        there = [self._adopted(t, value, followers) for (_, t), value in zip(self._inputs, arrays, strict=True)]
        here = [
            checked(t, value) if memory is None and not (n in ahead and ahead[n] is value) else None
            for (n, t), value, memory in zip(self._inputs, arrays, there, strict=True)
        ]
        self._stays = any(memory is not None for memory in there)
        self._executor.followers = tuple(followers)
        if any(array is not None for array in here):
            self._wait_for_rooms()
        for (number, _), array, memory in zip(self._inputs, here, there, strict=True):
            rooms = self._rooms[number]
            if array is not None:
                rooms[0].fill(self._device, array)
            elif memory is None:
                rooms.reverse()
            self._use(number, rooms[0].memory if memory is None else self._placed(number, memory))
        self._driver.join_uploads()
        for number in self._outputs:
            self._prepare(number)
        self._moment = Moment(self._driver)

    def _wait_for_rooms(self) -> None:
        """Until their pinned memory has been read; uploads wait for the steps that still read the device's."""
        self._driver.finish_uploads()
        moment = Moment(self._driver)
        self._driver.hold_uploads(moment.event)

    def _use(self, number: int, memory: DeviceArray) -> None:
        if self._executor.arrays[number] is not memory:
            self._executor.bind(number, memory)

    def _placed(self, number: int, memory: DeviceArray) -> DeviceArray:
        """An input's memory where it lies, or copied where it lies somewhere new each time."""
        seen = self._seen[number]
        is_new = memory.address not in seen and len(seen) == ADDRESSES
        seen.pop(next(iter(seen)) if is_new else memory.address, None)
        seen[memory.address] = None
        if not is_new:
            return memory
        room = self._rooms[number][0].memory
        self._device.copy(room, memory)
        return room

    def _prepare(self, number: int) -> None:
        """An output's memory for the next step: such as nobody holds."""
        arrays, spares = self._executor.arrays, self._spares[number]
        if arrays[number] is None:  # an exception from outside came while another was bound
            self._renew(number)
        for _ in range(len(spares) + 1):
            if self._held[number] == _references(arrays[number]):
                _await_readers(arrays[number])
                return
            spares.append(arrays[number])
            self._executor.bind(number, spares.popleft())
        spares.append(arrays[number])
        if len(spares) > SPARES:
            spares.popleft()
        self._renew(number)

    def _give_back(self) -> None:
        """What a step has borrowed, once it is over; of the last few steps, whose end nobody has waited for."""
        lent, driver = self._lent, self._driver
        if self._borrowed:
            lent.append((Moment(driver), self._borrowed))
            self._borrowed = []
        while lent and (len(lent) > MOST_LENT or driver.is_over(lent[0][0].event)):
            driver.wait_for(lent[0][0].event)
            lent.popleft()

    def _adopted(self, t: Declared, value: Any, followers: dict[int, None]) -> DeviceArray | None:
        """The memory of a value that is on the device, such as kernels take it; None where it is on the host.

        followers: gets the streams in which somebody may change that memory after the step.
        """
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
        found.block.follow_readers()
        followers.update(dict.fromkeys(found.block.readers))
        if found is not value:
            self._borrowed.append(found)
            stream = follower(value, self._driver.gpu.ordinal)
            followers.update({} if stream is None else {stream: None})
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
        self._driver.hold_uploads(self._moment.event)
        for (number, t), value in zip(self._inputs, arrays, strict=False):
            if number in here:
                if len(self._rooms[number]) == 1:
                    self._rooms[number].append(_Room(self._device, t))
                self._rooms[number][1].fill(self._device, here[number])
                self._ahead[number] = value

    def results(self) -> list[Any]:
        executor = self._executor
        if self._stays:
            return [executor.arrays[n] for n in executor.plan.outputs]
        found = []
        for number in executor.plan.outputs:
            b = executor.plan.buffers[number]
            found.append(np.empty(b.shape, dt.NUMPY[b.dtype]))
            self._device.copy(found[-1], executor.arrays[number])
        return found


def _is_host(value: Any) -> bool:
    """Whether a value is an array of the host: the others are looked at when they are given."""
    if isinstance(value, np.ndarray):
        return True
    return hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) in HOSTS


def _await_readers(memory: Memory) -> None:
    """They come before what is written there now."""
    memory.block.follow_readers()
    memory.block.readers.clear()


def _ended(driver: Driver) -> None:
    """Nothing that was borrowed goes back before the last step is over."""
    with suppress(RuntimeFault):  # of a GPU that runs nothing any more
        driver.synchronize()


def _references(array: DeviceArray | None) -> tuple[int, int]:
    """How often an array and the memory under it are held: more than at first means outside."""
    return (0, 0) if array is None else (sys.getrefcount(array), sys.getrefcount(array.block))

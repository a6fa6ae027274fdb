"""`Cuda`: memory of a GPU, and launches there as one graph a step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.runtime.device import Launch, Memory, Recording, Status
from neoflow.runtime.device.cuda.driver import Driver
from neoflow.runtime.device.cuda.memory import DeviceArray, allocated
from neoflow.runtime.device.cuda.recording import COPY, CudaRecording


class CudaLibrary:
    """A loaded module; unloaded with its last holder."""

    def __init__(self, driver: Driver, data: bytes):
        self._driver, self._module = driver, driver.load(data)
        weakref.finalize(self, driver.unload, self._module).atexit = False

    def address(self, symbol: str) -> int:
        """The handle of a function."""
        return self._driver.function(self._module, symbol)


class Cuda:
    """A GPU, through its driver."""

    is_host = False

    def __init__(self, driver: Driver):
        self.driver = driver

    @property
    def copy_function(self) -> int:
        return COPY

    def allocate(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        return allocated(self.driver, shape, dtype)

    def view(self, memory: DeviceArray, start: int, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        return DeviceArray(memory.block, memory.offset + start, shape, dtype)

    def copy(self, target: Memory, source: Memory) -> None:
        """Copy all elements; returns when NumPy's side may be used again."""
        if isinstance(target, DeviceArray) and isinstance(source, DeviceArray):
            self.driver.copy(target.address, source.address, target.nbytes)
        elif isinstance(target, DeviceArray):
            array = np.ascontiguousarray(np.broadcast_to(source, target.shape), dt.NUMPY[target.dtype])
            self.driver.to_device(target.address, array.ctypes.data, target.nbytes)
            self.driver.synchronize()
        elif isinstance(source, DeviceArray):
            array = np.empty(source.shape, dt.NUMPY[source.dtype])
            self.driver.to_host(array.ctypes.data, source.address, source.nbytes)
            target[...] = array
        else:
            target[...] = source

    def copy_all(self, targets: Sequence[Memory], sources: Sequence[Memory]) -> None:
        """Copy each source to its target: all of them, or, with an exception, none that a kernel sees."""
        staged = [self.allocate(t.shape, t.dtype) for t in targets]
        for memory, source in zip(staged, sources, strict=True):
            self.copy(memory, source)
        for target, memory in zip(targets, staged, strict=True):
            self.driver.copy(target.address, memory.address, target.nbytes)
        self.synchronize()

    def address(self, memory: DeviceArray) -> int:
        return memory.address

    def load(self, data: bytes) -> CudaLibrary:
        return CudaLibrary(self.driver, data)

    def status(self, count: int) -> Status:
        memory = self.allocate((max(1, count),), "int32")
        self.driver.clear(memory.address, memory.nbytes)
        words = np.zeros(max(1, count), np.int32)

        def read() -> np.ndarray:
            self.driver.to_host(words.ctypes.data, memory.address, words.nbytes)
            return words

        return Status(memory, read, lambda: None)  # every graph clears them first

    def record(
        self, launches: Sequence[Launch], table: np.ndarray, status: Status, threads: int, timed: bool = False
    ) -> CudaRecording:
        failing = any(launch.status is not None for launch in launches)
        return CudaRecording(self.driver, launches, table, status if failing else None, timed)

    def launch(self, recording: Recording) -> None:
        recording.run()

    def synchronize(self) -> None:
        """Raises `RuntimeFault` for what has gone wrong on the GPU since."""
        self.driver.synchronize()

"""`Cuda`: memory of a GPU, and launches there as one graph a step."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Launch, Memory, Recording, Status
from neoflow.runtime.device.cuda.dlpack import CUDA, Foreign, imported
from neoflow.runtime.device.cuda.driver import CudaDriver, Driver
from neoflow.runtime.device.cuda.memory import Borrowed, DeviceArray, allocated, require
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

    @property
    def loop_function(self) -> int:
        return 0

    def allocate(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        return allocated(self.driver, shape, dtype)

    def adopted(self, value: Any) -> DeviceArray | None:
        """The memory of an object that lies on this GPU, as it is; None where it lies on a host.

        Raises `RuntimeFault` for another GPU's, and where its library does not give it.
        """
        if isinstance(value, DeviceArray):
            return value
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
            return None
        kind, ordinal = (int(n) for n in value.__dlpack_device__())
        if kind != CUDA:
            return None
        if ordinal != self.driver.gpu.ordinal:
            raise RuntimeFault(f"it is on device cuda:{ordinal}, the program on cuda:{self.driver.gpu.ordinal}")
        found = imported(value, self.driver.stream)
        borrowed = DeviceArray(Borrowed(self.driver, found), 0, found.shape, found.dtype)
        return borrowed if found.is_dense else self._gathered(borrowed, found)

    def _gathered(self, memory: DeviceArray, found: Foreign) -> DeviceArray:
        """Strided memory as dense one, by way of the host. Raises `RuntimeFault` for a dtype that there is not."""
        if found.dtype not in dt.NUMPY:
            return memory
        width = dt.itemsize(found.dtype)
        reached = [(n - 1) * s for n, s in zip(found.shape, found.strides, strict=True)]
        first, last = sum(min(0, r) for r in reached), sum(max(0, r) for r in reached)
        content = np.empty(last - first + 1, dt.NUMPY[found.dtype])
        self.driver.to_host(content.ctypes.data, found.address + first * width, content.nbytes)
        strides = [s * width for s in found.strides]
        dense = self.allocate(found.shape, found.dtype)
        self.copy(dense, np.lib.stride_tricks.as_strided(content[-first:], found.shape, strides))
        return dense

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

    def require(self, needs: Mapping[str, int]) -> None:
        """Raises `RuntimeFault` where what a program needs, bytes by what they are for, is not free."""
        told = ", ".join(f"{name} {nbytes / 1e9:.3f}" for name, nbytes in needs.items() if nbytes)
        require(self.driver, sum(needs.values()), f"({told})")

    def address(self, memory: DeviceArray) -> int:
        return memory.address

    def load(self, data: bytes) -> CudaLibrary:
        return CudaLibrary(self.driver, data)

    def status(self, count: int) -> Status:
        memory = self.allocate((max(1, count),), "int32")
        self.driver.clear(memory.address, memory.nbytes)
        words, handed = np.zeros((2, max(1, count)), np.int32)

        def read() -> np.ndarray:
            self.driver.to_host(words.ctypes.data, memory.address, words.nbytes)
            return words | handed

        return Status(memory, handed, read, lambda: None)  # every graph clears them first

    def record(
        self, launches: Sequence[Launch], table: np.ndarray, status: Status, threads: int, timed: bool = False
    ) -> CudaRecording:
        return CudaRecording(self.driver, launches, table, status, timed)

    def launch(self, recording: Recording, followers: Sequence[int] = ()) -> None:
        recording.run(followers)

    def synchronize(self) -> None:
        """Raises `RuntimeFault` for what has gone wrong on the GPU since."""
        self.driver.synchronize()


@lru_cache(maxsize=1)
def this_gpu() -> Cuda:
    """The GPU of this machine. Raises `RuntimeFault` when there is none that this process may use."""
    return Cuda(CudaDriver())

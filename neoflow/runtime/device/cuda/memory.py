"""Memory of a GPU: allocated in pieces that are used again, freed when nobody holds them."""

from __future__ import annotations

import ctypes
import math
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault
from neoflow.runtime.device.cuda.dlpack import CUDA, Foreign, exported
from neoflow.runtime.device.cuda.driver import Driver
from neoflow.runtime.device.cuda.libraries import LEGACY

ALIGNMENT = 256


class Block:
    """Bytes of a GPU; freed with its last holder, once what was launched before has ended.

    readers: streams of other libraries that may still use it.
    """

    def __init__(self, driver: Driver, nbytes: int):
        self.driver, self.address, self.nbytes = driver, driver.allocate(nbytes), nbytes
        self.readers: set[int] = set()
        weakref.finalize(self, driver.free, self.address).atexit = False

    def follow_readers(self) -> None:
        """What is put into the stream from now on waits for them."""
        for stream in self.readers:
            self.driver.follow(stream)


class Borrowed(Block):
    """Another library's memory, given back to it with the last holder."""

    def __init__(self, driver: Driver, memory: Foreign):
        self.driver, self.address, self.memory, self.readers = driver, memory.address, memory, set()


class Moment:
    """A moment in the stream: now."""

    def __init__(self, driver: Driver):
        self.event = driver.event()
        weakref.finalize(self, driver.free_event, self.event).atexit = False


class Pinned:
    """Bytes of the host that a GPU reads by itself, and a view of them as an array."""

    def __init__(self, driver: Driver, shape: tuple[int, ...], dtype: str):
        self.nbytes = math.prod(shape) * dt.itemsize(dtype)
        self.address = driver.pinned(max(1, self.nbytes))
        weakref.finalize(self, driver.free_pinned, self.address).atexit = False
        content = memoryview((ctypes.c_char * self.nbytes).from_address(self.address))
        self.array = np.frombuffer(content, dt.NUMPY[dtype]).reshape(shape)


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """Dense row-major memory of a shape and dtype, from byte `offset` of a block on.

    Other libraries take it without a copy, by DLPack: `torch.from_dlpack(y)`; `np.asarray(y)` is a copy on the host.
    """

    block: Block = field(repr=False)
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def address(self) -> int:
        return self.block.address + self.offset

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dt.itemsize(self.dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """A copy on the host."""
        if copy is False:
            raise ValueError("what is on a GPU is an array of NumPy only as a copy")
        array = np.empty(self.shape, dt.NUMPY[self.dtype])
        self.block.follow_readers()
        self.block.driver.to_host(array.ctypes.data, self.address, self.nbytes)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.block.driver.gpu.ordinal

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """A capsule of this memory. stream: the one it will be used in, which waits for what is under way here, and the
        host does not; -1: nobody waits.

        Raises `BufferError` for a copy, or another device.
        """
        place = options.get("dl_device")
        if options.get("copy") or place not in (None, self.__dlpack_device__()):
            raise BufferError("memory on a GPU is given as it is and where it is")
        if stream != -1:
            self.block.driver.lead(stream or LEGACY)
            self.block.readers.add(stream or LEGACY)
        return exported(self.address, self.shape, self.dtype, self.block.driver.gpu.ordinal, self)


def allocated(driver: Driver, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    """Uninitialised memory. Raises `RuntimeFault` with what was asked for and what there is."""
    nbytes = rounded(math.prod(shape) * dt.itemsize(dtype))
    require(driver, nbytes, f"for {dtype}{list(shape)}")
    return DeviceArray(Block(driver, nbytes), 0, shape, dtype)


def rounded(nbytes: int) -> int:
    """What so many bytes take."""
    return -(-max(1, nbytes) // ALIGNMENT) * ALIGNMENT


def require(driver: Driver, nbytes: int, what: str) -> None:
    """Raises `RuntimeFault` where there is less memory than that; `what` says for what."""
    free = driver.free_bytes()
    if nbytes > free:
        raise RuntimeFault(
            f"out of memory on the GPU: {nbytes / 1e9:.3f} GB are needed {what}, {free / 1e9:.3f} GB "
            f"of {driver.gpu.nbytes / 1e9:.1f} GB are free; take a smaller batch"
        )

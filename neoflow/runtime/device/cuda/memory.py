"""Memory of a GPU: allocated in pieces that are used again, freed when nobody holds them."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.runtime.device.cuda.driver import Driver

ALIGNMENT = 256


class Block:
    """Bytes of a GPU; freed with its last holder, once what was launched before has ended."""

    def __init__(self, driver: Driver, nbytes: int):
        self.address, self.nbytes = driver.allocate(nbytes), nbytes
        weakref.finalize(self, driver.free, self.address).atexit = False


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """Dense row-major memory of a shape and dtype, from byte `offset` of a block on."""

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


def allocated(driver: Driver, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    """Uninitialised memory. Raises `RuntimeFault` with what was asked for and what there is."""
    nbytes = -(-max(1, math.prod(shape) * dt.itemsize(dtype)) // ALIGNMENT) * ALIGNMENT
    free = driver.free_bytes()
    if nbytes > free:
        raise RuntimeFault(
            f"out of memory on the GPU: {nbytes / 1e9:.3f} GB are needed for {dtype}{list(shape)}, {free / 1e9:.3f} GB "
            f"of {driver.gpu.nbytes / 1e9:.1f} GB are free; take a smaller batch"
        )
    return DeviceArray(Block(driver, nbytes), 0, shape, dtype)

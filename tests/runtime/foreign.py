"""Arrays of other libraries in the memory of a GPU, which is the emulator."""

import copy
import ctypes
import math
import sys
from types import SimpleNamespace

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.runtime.device.cuda import dlpack
from tests.emulator.machine import MEMORY
from tests.emulator.streams import OTHERS

STREAM = 7
_LENT: list[object] = []
"""What was lent and may not have been given back: as of other libraries, it outlasts the tensor that it was made of."""


class Tensor:
    """Another library's tensor: memory of the emulator of its own. streams: those that it was told."""

    def __init__(self, array, shift=0, strides=None, shape=None, place=(dlpack.CUDA, 0)):
        array = np.asarray(array)
        self.shape, self.strides = array.shape if shape is None else shape, strides
        self.dtype, self.place, self.streams, self.released = dt.name_of(array.dtype), place, [], 0
        self.buffer = MEMORY.allocate(array.nbytes + 16)
        self.address = self.buffer.address + shift
        MEMORY.write(self.address, array)

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        rank = len(self.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * rank)(*self.strides)
        extents, deleter = (ctypes.c_int64 * rank)(*self.shape), dlpack._Deleter(self._release)
        kind = dlpack.KINDS[self.dtype]
        tensor = dlpack.Tensor(self.address - 16, *self.place, rank, *kind, extents, strides, 16)
        managed = dlpack.Managed(tensor, None, ctypes.cast(deleter, ctypes.c_void_p))
        _LENT.append((managed, extents, strides, deleter, self))
        return dlpack._new(ctypes.addressof(managed), b"dltensor", None)

    def _release(self, _):
        self.released += 1


class Torch(Tensor):
    """A tensor of a library that tells its stream, and does there what it does."""

    def __init__(self, gpu, array):
        super().__init__(array)
        self.gpu = gpu

    def __dlpack__(self, *, stream=None):
        self.gpu.driver.follow(STREAM)  # as PyTorch does it: the stream that is named waits for its own
        return super().__dlpack__(stream=stream)

    def __getitem__(self, part):
        """Of a slice of the first dimension: the same memory."""
        start, stop, _ = (part[0] if isinstance(part, tuple) else part).indices(self.shape[0])
        found = copy.copy(self)
        found.shape = (stop - start, *self.shape[1:])
        found.address += start * math.prod(self.shape[1:]) * dt.itemsize(self.dtype)
        return found

    def fill(self, array):
        """Overwritten when its library's stream comes to it."""
        self.gpu.driver.streams.put(OTHERS, lambda: MEMORY.write(self.address, array))


Torch.__module__ = "torch.of_this_test"


class Jax(Tensor):
    """An array that nobody overwrites."""


Jax.__module__ = "jaxlib.of_this_test"


def known(monkeypatch):
    """The libraries are there, as far as they are asked."""
    torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda n: SimpleNamespace(cuda_stream=STREAM + n)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "jaxlib", SimpleNamespace())

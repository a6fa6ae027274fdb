"""PyTorch's CUDA in software: its kernels for CPUs on memory of the emulator, in the stream of the emulator's driver.

`emulated_torch(monkeypatch, place)` makes it PyTorch's only GPU. What is put into the stream is done at once, after
all that was put there before. It is no cuDNN: that its weights lie as cuDNN wants them, no test here can see.
"""

import ctypes
import math
import weakref
from contextlib import contextmanager

import numpy as np
import torch

from neoflow.runtime import torch_cuda
from tests.emulator.machine import MEMORY


class Stream:
    """Of somebody else, by its handle."""

    def __init__(self, cuda_stream, device):
        self.cuda_stream, self.device = cuda_stream, device


class Stood:
    """What stands for PyTorch on a GPU. precisions: of recurrent networks, at every entry of the stream."""

    def __init__(self, driver):
        self.driver, self.precisions = driver, []
        self._made = []
        """tensors, where they are, and how often each had been written to"""
        self._as_tensor = torch.as_tensor

    def as_tensor(self, data, *rest, device=None, **options):
        """Of an object with the CUDA array interface: its memory, no copy."""
        said = getattr(data, "__cuda_array_interface__", None)
        if said is None:
            return self._as_tensor(data, *rest, device=device, **options)
        assert (said["version"], said["strides"], said["stream"]) == (3, None, None) and device is not None
        address, is_read_only = said["data"]
        kind, count = np.dtype(said["typestr"]), math.prod(said["shape"])
        assert not is_read_only
        MEMORY.at(address, count * kind.itemsize)  # or it lies in no buffer
        raw = (ctypes.c_byte * (count * kind.itemsize)).from_address(address)
        made = torch.from_numpy(np.frombuffer(raw, kind, count).reshape(said["shape"]))
        self._made.append((weakref.ref(made), address, made._version))
        return made

    @contextmanager
    def stream(self, stream):
        """Meanwhile work goes into that stream."""
        assert stream.cuda_stream == self.driver.stream, "work of a step goes into its stream"
        assert not self.driver.is_capturing, "it is no part of a graph"
        self.driver.calls.append("torch")
        self.driver.streams.finish()
        yield
        self.precisions.append(torch.backends.cudnn.rnn.fp32_precision)
        known, self._made = self._made, []
        for reference, address, version in known:
            made = reference()
            if made is not None:
                self._made.append((reference, address, made._version))
                if made._version != version:
                    MEMORY.write(address, made.numpy().copy())  # now it counts as written to


def emulated_torch(monkeypatch, place):
    """PyTorch reaches the emulator, as long as the patches last."""
    stood = Stood(place.driver)
    major, minor = divmod(int(place.driver.gpu.architecture.removeprefix("sm_")), 10)
    for module, name, found in (
        (torch.backends.cuda, "is_built", lambda: True),
        (torch.cuda, "is_available", lambda: True),
        (torch.backends.cudnn, "is_available", lambda: True),
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "get_device_capability", lambda ordinal: (major, minor)),
        (torch.cuda, "ExternalStream", Stream),
        (torch.cuda, "stream", stood.stream),
        (torch, "as_tensor", stood.as_tensor),
        (torch_cuda, "DEVICE", "cpu"),
    ):
        monkeypatch.setattr(module, name, found)
    return stood

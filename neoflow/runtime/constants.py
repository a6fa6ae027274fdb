"""Memory of constants: filled once, shared by all functions that use equal ones, let go with the last of them."""

from __future__ import annotations

from weakref import WeakValueDictionary

from neoflow.expr.tensor import Constant
from neoflow.runtime.device import Device, Memory

_memory: WeakValueDictionary[tuple[int, str], Memory] = WeakValueDictionary()
"""By device and content."""


def is_there(device: Device, c: Constant) -> bool:
    """Whether a device's memory has the elements of a constant already."""
    return (id(device), c.digest) in _memory


def constant_memory(device: Device, c: Constant) -> Memory:
    """A device's memory with the elements of a constant, which nothing writes."""
    key = (id(device), c.digest)
    memory = _memory.get(key)
    if memory is None:
        memory = device.allocate(c.shape, c.dtype)
        device.copy(memory, c.value)
        _memory[key] = memory
    return memory

"""Values of parameters: one array for each, shared by every function that reads or updates it."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from neoflow.errors import CheckpointError, RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Parameter
from neoflow.runtime.device import Device, Memory
from neoflow.runtime.device.cpu import CPU


class ParameterStore:
    """A device's memory by parameter, at first from its `init`: an array or a function (shape, generator) -> array."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._memory: dict[int, Memory] = {}  # by id, since `==` of tensors is an expression

    def memory(self, p: Parameter) -> Memory:
        """The live memory of a parameter (not a copy)."""
        self.initialize(p, 0)
        return self._memory[id(p)]

    def get(self, p: Parameter) -> np.ndarray:
        """A copy of a parameter's value."""
        value = np.empty(p.shape, dt.NUMPY[p.dtype])
        self.device.synchronize()
        self.device.copy(value, self.memory(p))
        return value

    def initialize(self, p: Parameter, seed: int) -> None:
        """Give a parameter that has no value yet its first one, drawn with `seed` where it is random."""
        if id(p) not in self._memory:
            memory = self.device.allocate(p.shape, p.dtype)
            self.device.copy(memory, np.broadcast_to(_initial(p, seed), p.shape))
            self._memory[id(p)] = memory
            weakref.finalize(p, self._memory.pop, id(p), None)

    def set(self, p: Parameter, value: np.ndarray) -> None:
        """Overwrite a parameter's value. Raises `RuntimeFault` for another shape."""
        value = np.asarray(value)
        if value.shape != p.shape:
            raise RuntimeFault(f"parameter {p.name} has shape {p.shape}, the value {value.shape}", p.where)
        self.device.copy(self.memory(p), value)


STORE = ParameterStore(CPU)
"""The process's parameters on the CPU."""


def _initial(p: Parameter, seed: int) -> np.ndarray:
    if p.init is None:
        return np.zeros(())
    generator = np.random.default_rng((seed, zlib.crc32(p.name.encode())))
    value = p.init(p.shape, generator) if callable(p.init) else p.init
    value = np.asarray(value)
    if value.shape != p.shape and value.size != 1:
        raise RuntimeFault(f"the initial value of parameter {p.name} has shape {value.shape}, not {p.shape}", p.where)
    return value if value.shape == p.shape else value.reshape(())


def get_value(p: Parameter) -> np.ndarray:
    """A copy of a parameter's present value."""
    return STORE.get(p)


def set_value(p: Parameter, value: np.ndarray) -> None:
    """Set a parameter's value for every function that uses it."""
    STORE.set(p, value)


def _named(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    named: dict[str, Parameter] = {}
    for p in parameters:
        if p.name in named:
            raise CheckpointError(f"two parameters are named {p.name}; names identify them in the file", p.where)
        named[p.name] = p
    return named


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Write under a temporary name, flush to the disk, then rename: the file is there whole, or not at all.

    Not `durable`: without the flush; after the machine has lost its power the file may be empty.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def pack_parameters(parameters: Iterable[Parameter], metadata: dict[str, str] | None = None) -> bytes:
    """Parameters by name as the content of a safetensors file."""
    from safetensors.numpy import save

    arrays = {name: get_value(p) for name, p in _named(parameters).items()}
    for array in arrays.values():
        if array.dtype == dt.NUMPY["bfloat16"]:
            raise CheckpointError("bfloat16 parameters cannot be saved yet; keep a float32 copy")
    return save(arrays, metadata={"format": "neoflow", **(metadata or {})})


def save_parameters(
    path: str | os.PathLike, parameters: Iterable[Parameter], metadata: dict[str, str] | None = None
) -> None:
    """Write parameters to a safetensors file, by name; the file appears whole or not at all."""
    write_atomically(Path(path), pack_parameters(parameters, metadata))


def load_parameters(path: str | os.PathLike, parameters: Iterable[Parameter]) -> dict[str, str]:
    """Set parameters from a safetensors file; returns its metadata. Nothing is changed when anything does not fit.

    Raises `CheckpointError` for a file that is missing, truncated or foreign, or lacks a parameter.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        data = Path(path).read_bytes()
        arrays = load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path} is no readable safetensors file: {error}") from error
    named = _named(parameters)
    for name, p in named.items():
        if name not in arrays:
            raise CheckpointError(f"{path} has no parameter {name}; it holds {', '.join(sorted(arrays)) or 'nothing'}")
        if arrays[name].shape != p.shape or str(arrays[name].dtype) != p.dtype:
            found = f"{arrays[name].dtype}{arrays[name].shape}"
            raise CheckpointError(f"{path}: {name} is {found}, the program wants {p.dtype}{p.shape}")
    for name, p in named.items():
        set_value(p, arrays[name])
    return metadata

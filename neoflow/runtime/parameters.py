"""Values of parameters: one array for each, shared by every function that reads or updates it."""

from __future__ import annotations

import json
import os
import re
import weakref
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from neoflow.errors import CheckpointError, RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Parameter
from neoflow.runtime.arrays import array_of, converted
from neoflow.runtime.device import Device, Memory
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.files import remove_leftovers, write_atomically
from neoflow.runtime.sharing import Sharing


class ParameterStore:
    """Memory by parameter, at first from its `init`: an array or a function (shape, generator) -> array.

    A parameter's value is on one device at a time, `device` at first: that of the function which used it last. Its
    memory on another stays for when it comes back. Values that are got or set here are whole, whatever other threads'
    functions do (`sharing`). moves: how often a value has gone to another device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.sharing = Sharing()
        self.moves = 0
        self._memory: dict[int, dict[int, Memory]] = {}  # by id, since `==` of tensors is an expression; by device's id
        self._home: dict[int, Device] = {}

    def memory(self, p: Parameter, device: Device | None = None) -> Memory:
        """The live memory of a parameter (not a copy), on this device from now on, the store's own when None."""
        self.initialize(p, 0)
        wanted = self.device if device is None else device
        if self._home[id(p)] is not wanted:
            self._move(p, wanted)
        return self._memory[id(p)][id(wanted)]

    def is_there(self, p: Parameter, device: Device) -> bool:
        """Whether a parameter has memory on a device."""
        return id(device) in self._memory.get(id(p), ())

    def settle(self, parameters: Iterable[Parameter], device: Device) -> int:
        """Have the values of parameters on a device; what `moves` is then."""
        for p in parameters:
            self.memory(p, device)
        return self.moves

    def _move(self, p: Parameter, device: Device) -> None:
        home, places = self._home[id(p)], self._memory[id(p)]
        if id(device) not in places:
            places[id(device)] = device.allocate(p.shape, p.dtype)
        home.synchronize()
        between = home if device.is_host else device
        between.copy(places[id(device)], places[id(home)])
        self._home[id(p)] = device
        self.moves += 1

    def get(self, p: Parameter) -> np.ndarray:
        """A copy of a parameter's value."""
        return self.get_all([p])[0]

    def get_all(self, parameters: Iterable[Parameter]) -> list[np.ndarray]:
        """Copies of the values that parameters have at one moment."""
        parameters = list(parameters)
        for p in parameters:
            self.initialize(p, 0)
        values = [np.empty(p.shape, dt.NUMPY[p.dtype]) for p in parameters]

        def copy() -> None:
            for device, numbers in self._by_home(parameters).items():
                device.synchronize()
                for n in numbers:
                    device.copy(values[n], self._memory[id(parameters[n])][id(device)])

        self.sharing.read(frozenset(map(id, parameters)), copy)
        return values

    def _by_home(self, parameters: Sequence[Parameter]) -> dict[Device, list[int]]:
        """The positions of parameters, by the device that their values are on."""
        found: dict[Device, list[int]] = {}
        for n, p in enumerate(parameters):
            found.setdefault(self._home[id(p)], []).append(n)
        return found

    def initialize(self, p: Parameter, seed: int) -> None:
        """Give a parameter that has no value yet its first one, drawn with `seed` where it is random."""
        if id(p) in self._memory:
            return
        memory = self.device.allocate(p.shape, p.dtype)
        self.device.copy(memory, np.broadcast_to(_initial(p, seed), p.shape))
        weakref.finalize(p, self._forget, id(p))  # first: an id may be used again
        self._home.setdefault(id(p), self.device)
        self._memory.setdefault(id(p), {id(self.device): memory})  # of two threads one's

    def _forget(self, number: int) -> None:
        self._memory.pop(number, None)
        self._home.pop(number, None)

    def set(self, p: Parameter, value: np.ndarray) -> None:
        """Overwrite a parameter's value. Raises `RuntimeFault` for another shape, or what its dtype cannot hold."""
        self.set_all([(p, value)])

    def set_all(self, values: Iterable[tuple[Parameter, np.ndarray]]) -> None:
        """Overwrite the values of parameters: all of them, or, with whatever exception, none."""
        values = list(values)
        sources = [_fitting(p, value) for p, value in values]
        parameters = [p for p, _ in values]
        for p in parameters:
            self.initialize(p, 0)

        def copy() -> None:
            homes = self._by_home(parameters)
            if len(homes) > 1:
                self.settle(parameters, self.device)
                homes = self._by_home(parameters)
            for device, numbers in homes.items():
                device.synchronize()
                memory = [self._memory[id(parameters[n])][id(device)] for n in numbers]
                device.copy_all(memory, [sources[n] for n in numbers])

        self.sharing.write(frozenset(map(id, parameters)), copy)


STORE = ParameterStore(CPU)
"""The process's parameters, at first on the CPU."""


def _fitting(p: Parameter, value: np.ndarray) -> np.ndarray:
    """A value in the shape and dtype of its parameter."""
    value = array_of(value, f"parameter {p.name}", p.where)
    if value.shape != p.shape:
        raise RuntimeFault(f"parameter {p.name} has shape {p.shape}, the value {value.shape}", p.where)
    return converted(value, p.dtype, f"parameter {p.name}", p.where)


def _initial(p: Parameter, seed: int) -> np.ndarray:
    if p.init is None:
        return np.zeros((), dt.NUMPY[p.dtype])
    generator = np.random.default_rng((seed, zlib.crc32(p.name.encode())))
    what = f"the initial value of parameter {p.name}"
    value = array_of(p.init(p.shape, generator) if callable(p.init) else p.init, what, p.where)
    if value.shape != p.shape and value.size != 1:
        raise RuntimeFault(f"{what} has shape {value.shape}, not {p.shape}", p.where)
    return converted(value if value.shape == p.shape else value.reshape(()), p.dtype, what, p.where)


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


def pack_parameters(parameters: Iterable[Parameter], metadata: dict[str, str] | None = None) -> bytes:
    """Parameters by name as the content of a safetensors file."""
    from safetensors.numpy import save

    named = _named(parameters)
    arrays = dict(zip(named, STORE.get_all(named.values()), strict=True))
    return save(arrays, metadata={"format": "neoflow", **(metadata or {})})


def save_parameters(
    path: str | os.PathLike, parameters: Iterable[Parameter], metadata: dict[str, str] | None = None
) -> None:
    """Write parameters to a safetensors file, by name; the file appears whole or not at all."""
    path = Path(path)
    write_atomically(path, pack_parameters(parameters, metadata))
    remove_leftovers(path.parent, re.escape(path.name))


def load_parameters(path: str | os.PathLike, parameters: Iterable[Parameter]) -> dict[str, str]:
    """Set parameters from a safetensors file; returns its metadata. Nothing is changed when anything does not fit.

    Raises `CheckpointError` for a file that is missing, truncated or foreign, or lacks a parameter.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} is no readable safetensors file: {error}") from error
    arrays, metadata = unpack_parameters(data, str(path))
    set_parameters(arrays, parameters, str(path))
    return metadata


_STORED: dict[str, np.dtype] = {
    "F64": dt.NUMPY["float64"],
    "F32": dt.NUMPY["float32"],
    "F16": dt.NUMPY["float16"],
    "BF16": dt.NUMPY["bfloat16"],
    "I64": dt.NUMPY["int64"],
    "I32": dt.NUMPY["int32"],
    "I16": dt.NUMPY["int16"],
    "I8": dt.NUMPY["int8"],
    "BOOL": dt.NUMPY["bool"],
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "C64": np.dtype(np.complex64),
}
"""Types by their name in safetensors, whose reader for NumPy lacks bfloat16; the last are those of other programs."""


def unpack_parameters(data: bytes, source: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by name, and the metadata, of a safetensors file's content. Raises `CheckpointError`, naming `source`."""
    from safetensors import SafetensorError, deserialize

    try:
        arrays = {
            name: np.frombuffer(found["data"], _STORED[found["dtype"]]).reshape(found["shape"])
            for name, found in deserialize(data)
        }
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise CheckpointError(f"{source} is no readable safetensors file: {error}") from error
    return arrays, metadata


def set_parameters(arrays: Mapping[str, np.ndarray], parameters: Iterable[Parameter], source: str) -> None:
    """Set parameters from arrays by name: all of them, or none. Raises `CheckpointError`, naming `source`."""
    named = _named(parameters)
    for name, p in named.items():
        if name not in arrays:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise CheckpointError(f"{source} has no parameter {name}; it holds {held}")
        if arrays[name].shape != p.shape or str(arrays[name].dtype) != p.dtype:
            found = f"{arrays[name].dtype}{arrays[name].shape}"
            raise CheckpointError(f"{source}: {name} is {found}, the program wants {p.dtype}{p.shape}")
    STORE.set_all([(p, arrays[name]) for name, p in named.items()])

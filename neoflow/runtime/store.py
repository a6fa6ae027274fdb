"""Values of parameters: one array for each, shared by every function that reads or updates it."""

from __future__ import annotations

import itertools
import weakref
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault
from neoflow.runtime.arrays import array_of, converted
from neoflow.runtime.declared import Lasting
from neoflow.runtime.device import Device, Memory
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.sharing import Sharing


class ParameterStore:
    """Memory by parameter, at first from its `init`: an array or a function (shape, generator) -> array.

    A parameter's value is on one device at a time, `device` at first: that of the function which used it last. Its
    memory on another stays for when it comes back. Values that are got or set here are whole, whatever other threads'
    functions do (`sharing`). moves: how often a value has gone to another device. changes: how often values have
    changed; between two equal numbers none has.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.sharing = Sharing()
        self.moves = self.changes = 0
        self._numbers = itertools.count(1)
        self._memory: dict[int, dict[int, Memory]] = {}  # by id, since `==` of tensors is an expression; by device's id
        self._home: dict[int, Device] = {}

    def memory(self, p: Lasting, device: Device | None = None) -> Memory:
        """The live memory of a parameter (not a copy), on this device from now on, the store's own when None."""
        self.initialize(p, 0)
        wanted = self.device if device is None else device
        if self._home[id(p)] is not wanted:
            self._move(p, wanted)
        return self._memory[id(p)][id(wanted)]

    def is_there(self, p: Lasting, device: Device) -> bool:
        """Whether a parameter has memory on a device."""
        return id(device) in self._memory.get(id(p), ())

    def settle(self, parameters: Iterable[Lasting], device: Device) -> int:
        """Have the values of parameters on a device; what `moves` is then."""
        for p in parameters:
            self.memory(p, device)
        return self.moves

    def changed(self) -> None:
        """To be called by whoever writes parameters, while nobody reads them."""
        self.changes = next(self._numbers)

    def _move(self, p: Lasting, device: Device) -> None:
        home, places = self._home[id(p)], self._memory[id(p)]
        if id(device) not in places:
            places[id(device)] = device.allocate(p.shape, p.dtype)
        home.synchronize()
        between = home if device.is_host else device
        between.copy(places[id(device)], places[id(home)])
        self._home[id(p)] = device
        self.moves += 1

    def get(self, p: Lasting) -> np.ndarray:
        """A copy of a parameter's value."""
        return self.get_all([p])[0]

    def get_all(self, parameters: Iterable[Lasting]) -> list[np.ndarray]:
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

    def _by_home(self, parameters: Sequence[Lasting]) -> dict[Device, list[int]]:
        """The positions of parameters, by the device that their values are on."""
        found: dict[Device, list[int]] = {}
        for n, p in enumerate(parameters):
            found.setdefault(self._home[id(p)], []).append(n)
        return found

    def initialize(self, p: Lasting, seed: int) -> None:
        """Give a parameter that has no value yet its first one, drawn with `seed` where it is random."""
        if id(p) not in self._memory:
            self.begin(p, _initial(p, seed))

    def begin(self, p: Lasting, value: np.ndarray) -> None:
        """Give a parameter that has no value yet this one."""
        memory = self.device.allocate(p.shape, p.dtype)
        self.device.copy(memory, np.broadcast_to(value, p.shape))
        weakref.finalize(p, self._forget, id(p))  # first: an id may be used again
        self._home.setdefault(id(p), self.device)
        self._memory.setdefault(id(p), {id(self.device): memory})  # of two threads one's

    def _forget(self, number: int) -> None:
        self._memory.pop(number, None)
        self._home.pop(number, None)

    def set(self, p: Lasting, value: np.ndarray) -> None:
        """Overwrite a parameter's value. Raises `RuntimeFault` for another shape, or what its dtype cannot hold."""
        self.set_all([(p, value)])

    def set_all(self, values: Iterable[tuple[Lasting, np.ndarray]]) -> None:
        """Overwrite the values of parameters: all of them, or, with whatever exception, none."""
        values = list(values)
        sources = [_fitting(p, value) for p, value in values]
        parameters = [p for p, _ in values]
        for p in parameters:
            self.initialize(p, 0)

        def copy() -> None:
            self.changed()
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


def _fitting(p: Lasting, value: np.ndarray) -> np.ndarray:
    """A value in the shape and dtype of its parameter."""
    value = array_of(value, f"parameter {p.name}", p.where)
    if value.shape != p.shape:
        raise RuntimeFault(f"parameter {p.name} has shape {p.shape}, the value {value.shape}", p.where)
    return converted(value, p.dtype, f"parameter {p.name}", p.where)


def _initial(p: Lasting, seed: int) -> np.ndarray:
    if p.init is None:
        return np.zeros((), dt.NUMPY[p.dtype])
    generator = np.random.default_rng((seed, zlib.crc32(p.name.encode())))
    what = f"the initial value of parameter {p.name}"
    value = array_of(p.init(p.shape, generator) if callable(p.init) else p.init, what, p.where)
    if value.shape != p.shape and value.size != 1:
        raise RuntimeFault(f"{what} has shape {value.shape}, not {p.shape}", p.where)
    return converted(value if value.shape == p.shape else value.reshape(()), p.dtype, what, p.where)

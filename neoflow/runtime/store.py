"""Values of parameters: one array for each, shared by every function that reads or updates it."""

from __future__ import annotations

import itertools
import weakref
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault
from neoflow.runtime.arrays import array_of, converted
from neoflow.runtime.declared import Lasting, Lying
from neoflow.runtime.device import Device, Memory
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.sharing import Sharing

Place = tuple[Device, Lying | None]
"""Where a value is, and in which order it lies there: None, as users know it."""


class ParameterStore:
    """Memory by parameter, at first from its `init`: an array or a function (shape, generator) -> array.

    A parameter's value is at one place at a time: on a device, `device` at first, in an order, plain at first: those of
    the function which used it last. Its memory on another device stays for when it comes back, that of another order as
    long as a function knows it. Values that are got or set here
    are whole and plain, whatever other threads' functions do (`sharing`). moves: how often a value has gone to another
    place. changes: how often values have changed; between two equal numbers none has.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.sharing = Sharing()
        self.moves = self.changes = 0
        self._numbers = itertools.count(1)
        self._memory: dict[int, dict[_Key, Memory]] = {}  # by id, since `==` of tensors is an expression
        self._left: weakref.WeakValueDictionary[tuple[int, _Key], Memory] = weakref.WeakValueDictionary()
        self._home: dict[int, Place] = {}

    def memory(self, p: Lasting, device: Device | None = None, lies: Lying | None = None) -> Memory:
        """The live memory of a parameter (not a copy), on this device in this order from now on; the store's own device
        when None."""
        self.initialize(p, 0)
        wanted = (self.device if device is None else device, lies)

        def find() -> Memory:
            home = self._home[id(p)]
            if home[0] is not wanted[0] or home[1] != lies:
                self._move(p, wanted)
            return self._memory[id(p)][_key(wanted)]

        return self.sharing.alone(find)

    def is_there(self, p: Lasting, device: Device) -> bool:
        """Whether a parameter has memory on a device, in plain order."""
        return _key((device, None)) in self._memory.get(id(p), ())

    def settle(self, parameters: Iterable[Lasting], device: Device, lying: Sequence[Lying | None] = ()) -> int:
        """Have the values of parameters on a device, in these orders; what `moves` is then."""
        for p, lies in zip_longest(parameters, lying):
            self.memory(p, device, lies)
        return self.moves

    def changed(self) -> None:
        """To be called by whoever writes parameters, while nobody reads them."""
        self.changes = next(self._numbers)

    def _move(self, p: Lasting, wanted: Place) -> None:
        (home, had), (device, lies), places = self._home[id(p)], wanted, self._memory[id(p)]
        if (key := _key(wanted)) not in places:
            left = self._left.get((id(p), key))
            places[key] = device.allocate(_shape(p, lies), p.dtype) if left is None else left
        home.synchronize()
        if had == lies:
            between = home if device.is_host else device
            between.copy(places[key], places[_key((home, had))])
        else:
            value = self._plain(p)
            device.copy(places[key], value if lies is None else np.ascontiguousarray(lies.pack(value)))
            if home is device and home.is_host:
                self._left[id(p), _key((home, had))] = places.pop(_key((home, had)))
        self._home[id(p)] = wanted
        self.moves += 1

    def _plain(self, p: Lasting) -> np.ndarray:
        """A copy of a value as users know it, once its device is at rest."""
        device, lies = self._home[id(p)]
        found = np.empty(_shape(p, lies), dt.NUMPY[p.dtype])
        device.copy(found, self._memory[id(p)][_key((device, lies))])
        return found if lies is None else np.ascontiguousarray(lies.unpack(found))

    def get(self, p: Lasting) -> np.ndarray:
        """A copy of a parameter's value."""
        return self.get_all([p])[0]

    def get_all(self, parameters: Iterable[Lasting]) -> list[np.ndarray]:
        """Copies of the values that parameters have at one moment."""
        parameters = list(parameters)
        for p in parameters:
            self.initialize(p, 0)
        values: dict[int, np.ndarray] = {}

        def copy() -> None:
            for device, numbers in self._by_home(parameters).items():
                device.synchronize()
                for n in numbers:
                    values[n] = self.sharing.alone(partial(self._plain, parameters[n]))

        self.sharing.read(frozenset(map(id, parameters)), copy)
        return [values[n] for n in range(len(parameters))]

    def _by_home(self, parameters: Sequence[Lasting]) -> dict[Device, list[int]]:
        """The positions of parameters, by the device that their values are on."""
        found: dict[Device, list[int]] = {}
        for n, p in enumerate(parameters):
            found.setdefault(self._home[id(p)][0], []).append(n)
        return found

    def initialize(self, p: Lasting, seed: int) -> None:
        """Give a parameter that has no value yet its first one, drawn with `seed` where it is random."""
        if id(p) not in self._memory:
            self.begin(p, _initial(p, seed))

    def begin(self, p: Lasting, value: np.ndarray) -> None:
        """Give a parameter that has no value yet this one."""
        memory = self.device.allocate(p.shape, p.dtype)
        self.device.copy(memory, np.broadcast_to(value, p.shape))
        self.begin_in(p, memory)

    def begin_in(self, p: Lasting, memory: Memory) -> None:
        """Give a parameter that has no value yet the one in this memory of the store's device, which is its own from
        now on."""
        weakref.finalize(p, self._forget, id(p))  # first: an id may be used again
        self._home.setdefault(id(p), (self.device, None))
        self._memory.setdefault(id(p), {_key((self.device, None)): memory})  # of two threads one's

    def _forget(self, number: int) -> None:
        self._memory.pop(number, None)
        self._home.pop(number, None)
        for key in [k for k in list(self._left) if k[0] == number]:
            self._left.pop(key, None)

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
                places = [self._home[id(parameters[n])] for n in numbers]
                memory = [self._memory[id(parameters[n])][_key(h)] for n, h in zip(numbers, places, strict=True)]
                lying = zip(numbers, (lies for _, lies in places), strict=True)
                packed = [sources[n] if x is None else np.ascontiguousarray(x.pack(sources[n])) for n, x in lying]
                device.copy_all(memory, packed)

        self.sharing.write(frozenset(map(id, parameters)), copy)


_Key = tuple[int, Lying | None]


def _shape(p: Lasting, lies: Lying | None) -> tuple[int, ...]:
    return p.shape if lies is None else lies.shape(p.shape)


def _key(place: Place) -> _Key:
    return id(place[0]), place[1]


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

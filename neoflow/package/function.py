"""What `nf.load` gives: functions that are called like compiled ones, and their parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from neoflow.boundary import publish_methods
from neoflow.errors import PackageError
from neoflow.package.contents import Array, Program
from neoflow.package.manifest import Manifest
from neoflow.runtime.bound import Bound
from neoflow.runtime.declared import Declared
from neoflow.runtime.device import Device, Library, Memory
from neoflow.runtime.exchange import Exchange
from neoflow.runtime.executor import Executor, Loaded
from neoflow.runtime.store import STORE

if TYPE_CHECKING:
    from pathlib import Path


class Place(NamedTuple):
    """Where a package runs: a device, with its libraries and the memory of its constants."""

    device: Device
    libraries: Sequence[Library]
    constants: Sequence[Memory]
    exchange: Callable[[Executor, Sequence[Declared]], Exchange]
    threads: int = 1


class PackagedParameter:
    """A parameter of a package: its value stays between calls, and is got, set, saved and loaded as any parameter's."""

    def __init__(self, array: Array):
        self.name, self.shape, self.dtype, self.nbytes = array.name, array.shape, array.dtype, array.nbytes
        self.where = self.init = None

    def __repr__(self) -> str:
        return f"<PackagedParameter {self.name}: {self.dtype}{list(self.shape)}>"


class PackagedFunction(Bound):
    """A function of a package: `f(array, ...) -> [ndarray, ...]`, as what `nf.compile` gives is called."""

    def __init__(
        self, program: Program, parameters: Sequence[PackagedParameter], kernels: Sequence[Loaded], place: Place
    ):
        self.name, self.inputs, self.outputs = program.name, program.inputs, program.outputs
        self.parameters = tuple(parameters[n] for n in program.parameters)
        self.updated = tuple(parameters[n] for n in program.updated)
        super().__init__(
            program.plan,
            program.inputs,
            self.parameters,
            frozenset(map(id, self.updated)),
            kernels,
            [place.constants[n] for n in program.constants],
            STORE,
            place.device,
            place.threads,
            place.exchange,
        )

    def __repr__(self) -> str:
        takes, gives = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        updates = f", updates {', '.join(p.name for p in self.updated)}" if self.updated else ""
        return f"<PackagedFunction {self.name}({takes}) -> [{gives}]{updates}: {len(self.plan.calls)} kernel calls>"


class Functions(Mapping[str, PackagedFunction]):
    """Functions by name, each made when it is first asked for: who infers does not wait until a step is laid out."""

    def __init__(self, makers: Mapping[str, Callable[[], PackagedFunction]]):
        self._makers, self._made = dict(makers), dict[str, PackagedFunction]()
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> PackagedFunction:
        with self._lock:
            if name not in self._made:
                self._made[name] = self._makers[name]()
            return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __repr__(self) -> str:
        return f"<Functions {', '.join(self)}>"


class Package:
    """What `nf.load` gives: functions, `package.step(x)` or `package["step"](x)`, and the parameters they share.

    functions, parameters: by name. One that has a single function can be called itself.
    """

    def __init__(
        self,
        folder: str,
        manifest: Manifest,
        functions: Mapping[str, PackagedFunction],
        parameters: Mapping[str, PackagedParameter],
    ):
        self._folder, self.name, self.target = folder, manifest.name, manifest.target
        self.functions, self.parameters = functions, dict(parameters)

    @property
    def path(self) -> Path:
        """Its folder."""
        from pathlib import Path  # imported here: it takes 10 ms, and who runs a package seldom asks

        return Path(self._folder)

    def __repr__(self) -> str:
        names, target = ", ".join(self.functions), f"{self.target.kind}({self.target.mcpu})"
        return f"<Package {self.name} for {target}: {names}; {len(self.parameters)} parameters>"

    def __getitem__(self, name: str) -> PackagedFunction:
        found = self.functions.get(name)
        if found is None:
            raise PackageError(f"{self._folder} has no function {name!r}; it has {', '.join(self.functions)}")
        return found

    def __getattr__(self, name: str) -> PackagedFunction:
        if name.startswith("_") or name not in self.functions:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self.functions[name]

    def __call__(self, *arrays: Any) -> list[Any]:
        """Call its only function. Raises `PackageError` where it has several."""
        if len(self.functions) > 1:
            names = ", ".join(self.functions)
            raise PackageError(
                f"{self._folder} has several functions, {names}: call one, package.{min(self.functions)}(...)"
            )
        (function,) = self.functions.values()
        return function(*arrays)


publish_methods(Bound)
publish_methods(PackagedFunction)
publish_methods(Package, ("__call__", "__getitem__"))

"""A package made ready: its libraries loaded, its parameters given their values, its functions bound."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from neoflow import config
from neoflow import dtype as dt
from neoflow.errors import PackageError, RuntimeFault
from neoflow.package.contents import PROGRAM, Contents, Placed, Program, read_contents
from neoflow.package.function import Functions, Package, PackagedFunction, PackagedParameter, Place
from neoflow.package.manifest import PARAMETERS, Manifest, read_checked
from neoflow.package.values import Values
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.exchange import OnHost
from neoflow.runtime.executor import Loaded, load_kernel
from neoflow.runtime.store import STORE
from neoflow.runtime.tensorfile import dtype_of


def assemble(folder: str, manifest: Manifest, parameters: Callable[[], Values]) -> Package:
    """The package of a manifest, for this machine. parameters: gives them, checked. Raises `PackageError`."""
    contents = read_contents(read_checked(folder, manifest, PROGRAM))
    try:
        place = (
            _on_cpu(folder, manifest, contents)
            if manifest.target.kind == "cpu"
            else _on_gpu(folder, manifest, contents)
        )
        there = _parameters(folder, parameters(), contents)
        kernels = [_kernels(p, place) for p in contents.programs]
    except RuntimeFault as fault:
        raise _unloaded(folder, fault) from None
    makers = {
        p.name: partial(_function, folder, p, there, loaded, place)
        for p, loaded in zip(contents.programs, kernels, strict=True)
    }
    return Package(folder, manifest, Functions(makers), {p.name: p for p in there})


def _kernels(program: Program, place: Place) -> list[Loaded]:
    pairs = zip(program.plan.kernels, program.libraries, strict=True)
    return [load_kernel(c, place.libraries[n]) for c, n in pairs]


def _function(
    folder: str,
    program: Program,
    parameters: Sequence[PackagedParameter],
    kernels: Sequence[Loaded],
    place: Place,
) -> PackagedFunction:
    try:
        return PackagedFunction(program, parameters, kernels, place)
    except RuntimeFault as fault:
        raise _unloaded(folder, fault) from None


def _unloaded(folder: str, fault: RuntimeFault) -> PackageError:
    return PackageError(f"{folder} cannot be loaded: {fault.message}")


def _on_cpu(folder: str, manifest: Manifest, contents: Contents) -> Place:
    libraries = [CPU.load(read_checked(folder, manifest, name)) for name in contents.libraries]
    CPU.install(lambda: libraries[0])
    start = libraries[0].address(f"{manifest.name}_constants")
    threads = min(manifest.target.threads, config.threads())
    return Place(CPU, libraries, [_view(start, c) for c in contents.constants], OnHost, threads)


def _on_gpu(folder: str, manifest: Manifest, contents: Contents) -> Place:
    from neoflow.package.gpu import place_on_gpu  # imported here: on a CPU nobody waits for it

    return place_on_gpu(folder, manifest, contents)


def _view(start: int, c: Placed) -> np.ndarray:
    """The elements of a constant where they lie, in a library."""
    kind = dt.NUMPY[c.dtype]
    count = int(np.prod(c.shape, dtype=np.int64)) * kind.itemsize
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(start + c.offset))
    return raw.view(kind).reshape(c.shape)


def _parameters(folder: str, values: Values, contents: Contents) -> list[PackagedParameter]:
    """The parameters, with the values of the package: each lies where it was read."""
    made, free = [], dict(values.arrays)  # of two parameters no two lie in one place
    for said in contents.parameters:
        p, value, kind = PackagedParameter(said), free.pop(said.name, None), dt.NUMPY[said.dtype]
        asked = said.dtype, list(said.shape), said.nbytes
        if value is None or asked != (dtype_of(value.dtype), value.shape, value.nbytes):
            raise PackageError(f"{folder} is damaged: {PARAMETERS} has no {said}")
        elements = np.frombuffer(values.memory, kind, value.nbytes // kind.itemsize, value.offset)
        STORE.begin_in(p, elements.reshape(p.shape))
        made.append(p)
    return made

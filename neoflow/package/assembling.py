"""A package made ready: its libraries loaded, its parameters given their values, its functions bound."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from neoflow import config
from neoflow import dtype as dt
from neoflow.errors import CheckpointError, PackageError, RuntimeFault
from neoflow.package.contents import PROGRAM, Contents, Placed, Program, read_contents
from neoflow.package.function import Package, PackagedFunction, PackagedParameter, Place
from neoflow.package.manifest import PARAMETERS, Manifest, read_checked
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.exchange import OnHost
from neoflow.runtime.executor import load_kernel
from neoflow.runtime.store import STORE
from neoflow.runtime.tensorfile import unpack_arrays


def assemble(folder: str, manifest: Manifest, parameters: Callable[[], bytes]) -> Package:
    """The package of a manifest, for this machine. parameters: gives the file of them, checked. Raises
    `PackageError`."""
    contents = read_contents(read_checked(folder, manifest, PROGRAM))
    try:
        place = (
            _on_cpu(folder, manifest, contents)
            if manifest.target.kind == "cpu"
            else _on_gpu(folder, manifest, contents)
        )
        there = _parameters(folder, parameters(), contents)
        functions = {p.name: _function(p, there, place) for p in contents.programs}
    except RuntimeFault as fault:
        raise PackageError(f"{folder} cannot be loaded: {fault.message}") from None
    return Package(folder, manifest, functions, {p.name: p for p in there})


def _function(program: Program, parameters: Sequence[PackagedParameter], place: Place) -> PackagedFunction:
    pairs = zip(program.plan.kernels, program.libraries, strict=True)
    return PackagedFunction(program, parameters, [load_kernel(c, place.libraries[n]) for c, n in pairs], place)


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


def _parameters(folder: str, data: bytes, contents: Contents) -> list[PackagedParameter]:
    """The parameters, with the values of the package."""
    try:
        arrays, _ = unpack_arrays(data, f"{folder}/{PARAMETERS}")
    except CheckpointError as error:
        raise PackageError(error.message) from None
    made = []
    for said in contents.parameters:
        p, value = PackagedParameter(said), arrays.get(said.name)
        if value is None or value.shape != p.shape or value.dtype != dt.NUMPY[p.dtype]:
            raise PackageError(f"{folder} is damaged: {PARAMETERS} has no {said}")
        STORE.begin(p, value)
        made.append(p)
    return made

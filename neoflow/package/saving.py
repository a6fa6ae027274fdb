"""`f.save(path)`: compiled functions as a package, which `nf.load` and C programs run without a compiler."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

import neoflow
from neoflow import codegen
from neoflow.errors import PackageError
from neoflow.expr.tensor import Constant, Parameter, Tensor
from neoflow.graph import Graph
from neoflow.kernel import Kernel
from neoflow.package.contents import CONSTANTS, PROGRAM, Array, Contents, Placed, Program
from neoflow.package.header import RESERVED, make_header
from neoflow.package.image import make_image
from neoflow.package.manifest import MANIFEST, PARAMETERS, Made, Manifest, Written, digest, is_name
from neoflow.runtime.device import ALIGNMENT
from neoflow.runtime.parameters import pack_parameters
from neoflow.runtime.plan import Plan
from neoflow.runtime.records import Module
from neoflow.target import Target

SUFFIX = ".nflib"


class Built(Protocol):
    """A compiled program, as `pipeline.Compiled` has it."""

    @property
    def graph(self) -> Graph: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def kernels(self) -> tuple[Kernel, ...]: ...

    @property
    def modules(self) -> tuple[Module, ...]: ...

    @property
    def target(self) -> Target: ...


def save_package(path: Path, functions: Mapping[str, Built]) -> None:
    """Write functions, by their names, and the present values of their parameters into the folder `path`.

    A package that is there is replaced, as a whole or not at all. Raises `PackageError`.
    """
    target = _target(functions)
    name = re.sub(r"\W", "_", path.name.removesuffix(SUFFIX), flags=re.ASCII) or "model"
    name = (name if is_name(name) else f"m{name}")[:60]
    _refuse(path)
    parameters = list({id(p): p for f in functions.values() for p in f.graph.parameters}.values())
    constants = list({c.digest: c for f in functions.values() for c in f.graph.constants}.values())
    modules = list({m.name: m for f in functions.values() for m in f.modules}.values())
    data, placed = _placed(constants)
    shared = f"libnf_{name}.so"
    on_cpu = target.device == "cpu"
    libraries = (shared,) if on_cpu else tuple(_modules(modules, target))
    numbers = {m.name: 0 if on_cpu else n for n, m in enumerate(modules)}
    programs = tuple(_program(n, f, parameters, constants, numbers) for n, f in functions.items())
    contents = Contents(programs, tuple(map(_array, parameters)), placed, libraries)
    values = pack_parameters(parameters)
    head = values[: 8 + int.from_bytes(values[:8], "little")]
    files = {PROGRAM: contents.to_json(), PARAMETERS: values}
    features: tuple[str, ...] = ()
    if on_cpu:
        kernels = {k.symbol: k for f in functions.values() for k in f.kernels}.values()
        lowered = [codegen.lower(k.subgraph, k.schedule, k.target, k.symbol) for k in kernels]
        image = make_image(name, contents, target.threads, data, head)
        files[shared] = codegen.build_package(lowered, target, image)
        header = make_header(name, contents, target, neoflow.__version__, head, image.threads)
        features = codegen.features(target)
    else:
        from neoflow.package.commands import make_commands  # imported here: on a CPU nobody waits for it

        files |= {file: m.library for file, m in zip(libraries, modules, strict=True)}
        files[CONSTANTS] = data
        code = [m.library for m in modules]
        files[shared] = codegen.build_commands(make_commands(name, contents, target, code, data, head))
        header = make_header(name, contents, target, neoflow.__version__, head)
    files[f"{name}.h"] = header.encode()
    made = Made(target.kind, target.mcpu, target.threads, features)
    written = {n: Written(len(content), digest(content)) for n, content in files.items()}
    manifest = Manifest(neoflow.__version__, name, made, written)
    _write(path, {**files, MANIFEST: manifest.to_json()})


def _target(functions: Mapping[str, Built]) -> Target:
    """What all of them are for."""
    for name, f in functions.items():
        reserved = RESERVED[f.target.device]
        if not is_name(name) or name in reserved:
            raise PackageError(
                f"a function of a package is called by a word of C, and not {', '.join(reserved)}: {name!r}"
            )
        if any(not m.library for m in f.modules):
            raise PackageError(codegen.missing(f.target) or "the kernels were not compiled")
    targets = {str(f.target): f.target for f in functions.values()}
    if len(targets) != 1:
        raise PackageError(f"the functions of a package are for one target, not for {', '.join(targets) or 'none'}")
    return next(iter(targets.values()))


def _program(
    name: str, f: Built, parameters: Sequence[Parameter], constants: Sequence[Constant], libraries: Mapping[str, int]
) -> Program:
    graph = f.graph
    numbers, written = {id(p): n for n, p in enumerate(parameters)}, {id(p) for p, _ in graph.updates}
    places = {c.digest: n for n, c in enumerate(constants)}
    return Program(
        name,
        tuple(map(_array, graph.inputs)),
        tuple(map(_array, graph.outputs)),
        tuple(numbers[id(p)] for p in graph.parameters),
        tuple(numbers[id(p)] for p in graph.parameters if id(p) in written),
        tuple(places[c.digest] for c in graph.constants),
        tuple(libraries[m.name] for m in f.modules),
        f.plan,
    )


def _array(t: Tensor) -> Array:
    return Array(t.name, t.shape, t.dtype)


def _placed(constants: Sequence[Constant]) -> tuple[bytes, tuple[Placed, ...]]:
    """Constants one after the other, each where its memory may begin."""
    data, placed = bytearray(), []
    for c in constants:
        data += bytes(-len(data) % ALIGNMENT)
        placed.append(Placed(len(data), c.shape, c.dtype))
        data += np.ascontiguousarray(c.value).tobytes()
    return bytes(data), tuple(placed)


def _modules(modules: Sequence[Module], target: Target) -> list[str]:
    """Names of the files of a GPU's modules."""
    kind = "ptx" if target.kind == "nvptx" else "cubin"
    return [f"kernels_{n}.{kind}" for n in range(len(modules))]


def _refuse(path: Path) -> None:
    """Nothing is overwritten but a package."""
    if path.is_symlink() or (path.exists() and not path.joinpath(MANIFEST).is_file() and not _is_empty(path)):
        raise PackageError(f"{path} is there, and is no package: choose another folder")


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    """A folder with these files, in the place of what is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            made = Path(folder, "new")
            made.mkdir()
            for name, content in files.items():
                with open(made / name, "xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            if path.exists():
                os.rename(path, Path(folder, "old"))
            os.rename(made, path)
            shutil.rmtree(Path(folder, "old"), ignore_errors=True)
    except OSError as error:
        raise PackageError(f"{path} cannot be written: {error}") from error

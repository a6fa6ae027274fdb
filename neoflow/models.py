"""Models by name: files with `build` and `VARIANTS` (see `neoflow.nn.model`), and their peers in other frameworks."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import neoflow
from neoflow import config
from neoflow.boundary import users_frames
from neoflow.errors import ConfigError, NeoflowError
from neoflow.nn import Model

PEERS = ("torch", "jax")
_NEAR = 0.75
"""How alike (of `difflib`) a name is that is suggested: one letter lost or turned, not another word."""


class Peer(Protocol):
    """The same network in another framework: `Peer(parameters)`, a copy of the arrays by name.

    For torch.compile it has `scores(x, training)` and `objective(x, labels)`; its `reset(parameters)`, where there is
    one, gives it its first values again.
    """

    def step(self, x: NDArray, labels: NDArray, lr: float = 0.01) -> float:
        """One SGD step; returns the loss before it."""

    def infer(self, x: NDArray) -> NDArray:
        """The scores."""

    def loss_and_grads(self, x: NDArray, labels: NDArray) -> tuple[float, dict[str, NDArray]]:
        """The loss and the gradient of every parameter, without an update."""


@dataclass(frozen=True)
class Found:
    """A model there is: its file's name, the names of its variants, the first being the default, and its file."""

    name: str
    variants: tuple[str, ...]
    path: Path

    def __str__(self) -> str:
        return self.name if self.variants in ((), (self.name,)) else f"{self.name} ({', '.join(self.variants)})"


def _folders(*beside: str) -> list[Path]:
    """A folder of the project, by its path: here, then beside the package; last the one that an installed wheel has."""
    package = Path(neoflow.__file__).resolve().parents[1]
    in_wheel = package.joinpath("neoflow_models", *beside[1:])
    return list(dict.fromkeys((Path.cwd().joinpath(*beside), package.joinpath(*beside), in_wheel)))


def list_models() -> list[Found]:
    """The models that have a name, in the order of their names; of two files of one name the first found."""
    found: dict[str, Found] = {}
    for folder in _folders("models"):
        for path in sorted(folder.glob("*.py")):
            if path.stem != "__init__":
                found.setdefault(path.stem, Found(path.stem, _variants(path), path))
    return sorted(found.values(), key=lambda f: f.name)


def _variants(path: Path) -> tuple[str, ...]:
    """The keys of `VARIANTS` as the file has them written, none where they are computed; it is not run for that."""
    try:
        program = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    for node in program.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "VARIANTS" for t in node.targets):
            keys = node.value.keys if isinstance(node.value, ast.Dict) else [None]
            names = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            return tuple(names) if len(names) == len(keys) else ()
    return (path.stem,)


def find_model(name: str) -> tuple[Path, str]:
    """The file of a model and the name of its variant ("" for the first): a path to a file, or a name in `models`.

    `resnet50` is the variant of that name in `resnet.py`. Raises `ConfigError` listing what there is.
    """
    if name.endswith(".py") or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"there is no file {name}")
        return path, ""
    there = list_models()
    for found in there:
        if name in found.variants:
            return found.path, name
    for found in there:
        if name == found.name or (not found.variants and name.startswith(found.name)):
            return found.path, name
    known = {v: f for f in there for v in (f.name, *f.variants)}
    listed = ", ".join(map(str, there)) or "(no models folder here)"
    raise ConfigError(f"there is no model {name}{_meant(name, known)}: give a file, or one of {listed}")


def _meant(name: str, known: Iterable[str]) -> str:
    """A suggestion where a known name is near."""
    near = difflib.get_close_matches(name, list(known), 1, cutoff=_NEAR)
    return f" (did you mean {near[0]}?)" if near else ""


def load_file(path: Path) -> ModuleType:
    """A Python file as a module, its folder importable meanwhile."""
    spec = importlib.util.spec_from_file_location(f"neoflow_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with _users_code(f"{path} cannot be loaded"):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


@contextmanager
def _users_code(what: str) -> Iterator[None]:
    """Around code of a user's file: what that raises is a `ConfigError` with the frames of the file and no others."""
    try:
        yield
    except NeoflowError:
        raise
    except Exception as error:
        if config.shows_full_tracebacks():
            raise
        frames = traceback.format_tb(users_frames(error.__traceback__))
        said = traceback.format_exception_only(type(error), error)
        raise ConfigError("".join([f"{what}: {error}\n", *frames, *said]).rstrip()) from error


def build_model(name: str, batch: int | None = None, small: bool = False, **sizes: Any) -> Model:
    """The model of a name or file; `small`: in the sizes `SMALL` of its file, where the variant leaves them open.

    Raises `ConfigError` when the file has no `build`, or not that variant.
    """
    path, variant = find_model(name)
    module = load_file(path)
    if not callable(getattr(module, "build", None)):
        raise ConfigError(f"{path} has no function build(batch) -> nf.nn.Model")
    variants: Mapping[str, Mapping[str, Any]] = getattr(module, "VARIANTS", {})
    if variant and variant != path.stem and variant not in variants:
        raise ConfigError(f"{path} has no variant {variant}; it has {', '.join(variants) or 'none'}")
    arguments = dict(variants[variant] if variant in variants else next(iter(variants.values()), {}))
    if batch is not None:
        if batch < 1:
            raise ConfigError(f"a batch has at least one sample, not {batch}")
        arguments["batch"] = batch
    if small:
        arguments = {**getattr(module, "SMALL", {}), **arguments}
    with _users_code(f"build of {path} failed"):
        model = module.build(**{**arguments, **sizes})
    if not isinstance(model, Model):
        raise ConfigError(f"build of {path} gives {type(model).__name__}, not nf.nn.Model")
    return model


def check_framework(framework: str) -> None:
    """Raise `ConfigError` where a peer's framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        raise ConfigError(f"{framework} is not installed: pip install 'neoflow[{framework}]'")


def find_peer(framework: str, name: str, parameters: Mapping[str, np.ndarray]) -> Peer:
    """A model's peer: class `Peer` of `<framework>_<file>.py`, beside the model's file or in `benchmarks/peers`.

    Raises `ConfigError` without one.
    """
    path = peer_file(framework, name)
    module = load_file(path)
    if not hasattr(module, "Peer"):
        raise ConfigError(f"{path} has no class Peer")
    return module.Peer(parameters)


def peer_file(framework: str, name: str) -> Path:
    """Where a model's peer is written. Raises `ConfigError` where it is not, or the framework is not installed."""
    if framework not in PEERS:
        raise ConfigError(f"there is no peer {framework!r}; there are {', '.join(PEERS)}")
    check_framework(framework)
    model = find_model(name)[0]
    file = f"{framework}_{model.stem}.py"
    for folder in (model.resolve().parent, *_folders("benchmarks", "peers")):
        path = folder / file
        if path.is_file():
            return path
    raise ConfigError(f"{model.stem} has no peer in {framework}: put {file} beside it, or into benchmarks/peers")

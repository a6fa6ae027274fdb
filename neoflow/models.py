"""Models by name: files with `build` and `VARIANTS` (see `neoflow.nn.model`), and their peers in other frameworks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import neoflow
from neoflow.errors import ConfigError
from neoflow.nn import Model

PEERS = ("torch", "jax")


class Peer(Protocol):
    """The same network in another framework: `Peer(parameters)`, a copy of the arrays by name."""

    def step(self, x: NDArray, labels: NDArray, lr: float = 0.01) -> float:
        """One SGD step; returns the loss before it."""

    def infer(self, x: NDArray) -> NDArray:
        """The scores."""

    def loss_and_grads(self, x: NDArray, labels: NDArray) -> tuple[float, dict[str, NDArray]]:
        """The loss and the gradient of every parameter, without an update."""


def roots() -> list[Path]:
    """Where `models` and `benchmarks` are looked for: here, then beside the package."""
    return list(dict.fromkeys((Path.cwd(), Path(neoflow.__file__).resolve().parents[1])))


def find_model(name: str) -> tuple[Path, str]:
    """The file of a model and the name of its variant ("" for the first): a path to a file, or a name in `models`.

    `resnet50` is the variant of that name in `resnet.py`. Raises `ConfigError` listing what there is.
    """
    if name.endswith(".py") or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"there is no file {name}")
        return path, ""
    for root in roots():
        for n in range(len(name), 0, -1):
            path = root / "models" / f"{name[:n]}.py"
            if path.is_file():
                return path, name
    names = sorted({p.stem for root in roots() for p in (root / "models").glob("*.py") if p.stem != "__init__"})
    raise ConfigError(
        f"there is no model {name}: give a file, or one of {', '.join(names) or '(no models folder here)'}"
    )


def load_file(path: Path) -> ModuleType:
    """A Python file as a module, its folder importable meanwhile."""
    spec = importlib.util.spec_from_file_location(f"neoflow_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"{path} cannot be loaded: {error}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


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
    model = module.build(**{**arguments, **sizes})
    if not isinstance(model, Model):
        raise ConfigError(f"build of {path} gives {type(model).__name__}, not nf.nn.Model")
    return model


def find_peer(framework: str, name: str, parameters: Mapping[str, np.ndarray]) -> Peer:
    """A model's peer: class `Peer` of `benchmarks/peers/<framework>_<file>.py`. Raises `ConfigError` without one."""
    if framework not in PEERS:
        raise ConfigError(f"there is no peer {framework!r}; there are {', '.join(PEERS)}")
    if importlib.util.find_spec(framework) is None:
        raise ConfigError(f"{framework} is not installed: pip install 'neoflow[{framework}]'")
    stem = find_model(name)[0].stem
    for root in roots():
        path = root / "benchmarks" / "peers" / f"{framework}_{stem}.py"
        if path.is_file():
            module = load_file(path)
            if not hasattr(module, "Peer"):
                raise ConfigError(f"{path} has no class Peer")
            return module.Peer(parameters)
    raise ConfigError(f"{stem} has no peer in {framework}: benchmarks/peers/{framework}_{stem}.py is missing")

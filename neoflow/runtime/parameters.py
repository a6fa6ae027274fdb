"""Parameters as users have them: their values, and the files that hold these."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from neoflow.errors import CheckpointError
from neoflow.expr.tensor import Parameter
from neoflow.runtime.files import remove_leftovers, write_atomically
from neoflow.runtime.store import STORE
from neoflow.runtime.tensorfile import pack_arrays, unpack_arrays


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
    named = _named(parameters)
    return pack_arrays(dict(zip(named, STORE.get_all(named.values()), strict=True)), metadata)


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
    arrays, metadata = unpack_arrays(data, str(path))
    set_parameters(arrays, parameters, str(path))
    return metadata


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

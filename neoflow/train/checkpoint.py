"""Checkpoints: everything a run needs to continue as if it had never stopped.

    <folder>/step-00000712.safetensors   parameters and optimizer state, by name
    <folder>/step-00000712.json          position of the run, optimizer, size and SHA-256 of the tensors, and last the
                                         SHA-256 of all that stands above it

Each file appears whole by atomic rename, the JSON last: a checkpoint exists once its JSON does. The newest two stay.
Version 1 had no optimizer and no checksum of the JSON; it is still read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neoflow.errors import CheckpointError
from neoflow.expr.tensor import Parameter
from neoflow.runtime.files import refuse_unwritable, remove_leftovers, write_atomically
from neoflow.runtime.parameters import pack_parameters, set_parameters
from neoflow.runtime.tensorfile import unpack_arrays

FORMAT = 2
READ = (1, FORMAT)
KEPT = 2
_LARGEST_JSON = 1 << 20
"""Bytes; what is longer was not written here."""
_NAME = re.compile(r"step-(\d{8,18})\.(json|safetensors)")


@dataclass(frozen=True)
class Position:
    """Where a run stands: `step` steps and `epoch` whole epochs are behind it, `taken` batches of the next one.

    data: the state of the batches, when they have one. totals: sums over them, by quantity, an incomplete one counting
    for its share; weight: how many they are, counted so. watched: what early stopping knows.
    Nothing else is random: the order of the data follows from `data`, the learning rate from `step`.
    """

    step: int = 0
    epoch: int = 0
    taken: int = 0
    data: dict[str, int] | None = None
    totals: dict[str, float] = field(default_factory=dict)
    weight: float = 0.0
    watched: dict[str, float] = field(default_factory=dict)


def save_checkpoint(
    folder: str | os.PathLike, parameters: Iterable[Parameter], position: Position, optimizer: str | None = None
) -> Path:
    """Write a checkpoint, then remove all but the newest two; returns the path of its JSON file.

    optimizer: the name of what made the state among the parameters. What a run that was killed has left is removed.
    """
    folder = Path(folder)
    name = f"step-{position.step:08d}"
    data = pack_parameters(parameters)
    digest = hashlib.sha256(data).hexdigest()
    content = {"format": "neoflow", "version": FORMAT, "sha256": digest, "bytes": len(data)}
    path = folder / f"{name}.json"
    try:
        path.unlink(missing_ok=True)  # of the same step: from here on until the new JSON is there, it does not count
        write_atomically(folder / f"{name}.safetensors", data)
        write_atomically(path, _sealed({**content, "optimizer": optimizer, **asdict(position)}))
        for old in checkpoints(folder)[:-KEPT]:
            old.unlink(missing_ok=True)
        _remove_rest(folder, position.step)
    except OSError as error:
        raise CheckpointError(f"no checkpoint can be written to {folder}: {error}") from error
    return path


def check_folder(folder: str | os.PathLike) -> None:
    """Raise `CheckpointError` unless checkpoints can be written to a folder, which is made; before a run, not in it."""
    try:
        refuse_unwritable(Path(folder) / f"step-{0:08d}.json")
    except OSError as error:
        raise CheckpointError(f"no checkpoint can be written to {folder}: {error}") from error


def checkpoints(folder: str | os.PathLike) -> list[Path]:
    """The JSON files of the checkpoints in a folder, oldest first; by their steps, however many digits these have."""
    return [p for p in _files(folder) if p.suffix == ".json"]


def load_checkpoint(path: str | os.PathLike, parameters: Iterable[Parameter], optimizer: str | None = None) -> Position:
    """Set the parameters from a checkpoint, given by its JSON file or by its folder (the newest); gives where it stood.

    Raises `CheckpointError` for one that is missing, truncated or foreign, or of another program or optimizer: nothing
    is changed then, and the message names the checkpoint before it, if there is one.
    """
    path, parameters = Path(path), list(parameters)
    if path.is_dir():
        found = checkpoints(path)
        if not found:
            raise CheckpointError(f"there is no checkpoint in {path}")
        _remove_temporary(path)
        path = found[-1]
    try:
        content, data = _verified(path)
        position = _position(path, content)
        arrays, _ = unpack_arrays(data, str(path.with_suffix(".safetensors")))
        _refuse_other(path, content, arrays, parameters, optimizer)
        set_parameters(arrays, parameters, str(path.with_suffix(".safetensors")))
    except CheckpointError as error:
        before = [p for p in checkpoints(path.parent) if _NAME.fullmatch(path.name) and _step(p) < _step(path)]
        hint = f"; the one before it is {before[-1]}: delete {path} to continue from there" if before else ""
        raise CheckpointError(f"{error}{hint}") from error
    return position


def _files(folder: str | os.PathLike) -> list[Path]:
    """What has the name of a checkpoint's file, oldest first. Raises `CheckpointError` where that cannot be listed."""
    try:
        names = [n for n in os.listdir(folder) if (m := _NAME.fullmatch(n)) and f"{int(m[1]):08d}" == m[1]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"the checkpoints in {folder} cannot be listed: {error}") from error
    return sorted((Path(folder) / n for n in names), key=lambda p: (_step(p), p.suffix))


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _remove_rest(folder: Path, step: int) -> None:
    """Remove tensors before `step` that have no JSON any more, or never got it, and files never finished."""
    for path in _files(folder):
        if path.suffix == ".safetensors" and _step(path) < step and not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)
    _remove_temporary(folder)


def _remove_temporary(folder: Path) -> None:
    remove_leftovers(folder, _NAME.pattern)


def _sealed(content: Mapping[str, Any]) -> bytes:
    """JSON that ends with the checksum of all the rest."""
    digest = hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()
    return json.dumps({**content, "checksum": digest}, indent=1).encode()


def _read(path: Path, limit: int | None = None) -> bytes:
    """The content of a regular file. Raises `CheckpointError`."""
    try:
        if not path.is_file() and path.exists():  # a pipe would wait for ever
            raise CheckpointError(f"checkpoint {path.with_suffix('.json')} cannot be read: {path} is no regular file")
        with path.open("rb") as file:
            data = file.read(-1 if limit is None else limit + 1)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path.with_suffix('.json')} cannot be read: {error}") from error
    if limit is not None and len(data) > limit:
        raise CheckpointError(f"checkpoint {path} cannot be read: it has more than {limit} bytes")
    return data


def _verified(path: Path) -> tuple[dict[str, Any], bytes]:
    """What a checkpoint's JSON says, and its tensors; every byte of both compared with its checksum."""
    text = _read(path, _LARGEST_JSON)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != "neoflow":
        raise CheckpointError(f"{path} is no checkpoint of neoflow")
    version = content.get("version")
    if type(version) is not int or version not in READ:
        known = " and ".join(map(str, READ))
        raise CheckpointError(f"checkpoint {path} has version {version}, this neoflow reads {known}")
    if (version == FORMAT or "checksum" in content) and text != _sealed(
        {k: v for k, v in content.items() if k != "checksum"}
    ):
        raise CheckpointError(f"checkpoint {path} is damaged or was edited: its text has another checksum than it says")
    data = _read(path.with_suffix(".safetensors"))
    if len(data) != content.get("bytes") or hashlib.sha256(data).hexdigest() != content.get("sha256"):
        raise CheckpointError(
            f"checkpoint {path} is damaged: {path.with_suffix('.safetensors').name} has {len(data)} bytes with another "
            f"checksum than the {content.get('bytes')} that were written"
        )
    return content, data


def _position(path: Path, content: Mapping[str, Any]) -> Position:
    try:
        step, epoch, taken = (_count(content[n]) for n in ("step", "epoch", "taken"))
        data = None if content["data"] is None else {k: _count(v) for k, v in content["data"].items()}
        totals, watched = (
            {k: float(v) for k, v in given.items()} for given in (content["totals"], content.get("watched", {}))
        )
        weight = float(content.get("weight", taken))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"checkpoint {path} says not where its run stood: {error!r}") from error
    return Position(step, epoch, taken, data, totals, weight, watched)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} counts nothing")
    return value


def _refuse_other(
    path: Path,
    content: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    parameters: Iterable[Parameter],
    optimizer: str | None,
) -> None:
    """Raise `CheckpointError` for a checkpoint of another optimizer, or one with tensors that have no place here."""
    made, tensors = content.get("optimizer"), path.with_suffix(".safetensors")
    advice = (
        f"continue with the optimizer it was made with, or load its parameters alone: nf.load_parameters({tensors})"
    )
    if made is not None and optimizer is not None and made != optimizer:
        raise CheckpointError(f"checkpoint {path} was made with {made}, this run has {optimizer}: {advice}")
    names, found = {p.name for p in parameters}, set(arrays)
    faults = [f"it has no parameter {_shown(names - found)}"] if names - found else []
    faults += [f"it has {_shown(found - names)}, for which there is no place"] if found - names else []
    if faults:
        run = f"this run (with {optimizer})" if optimizer else "this program"
        raise CheckpointError(f"checkpoint {path} does not fit {run}: {' and '.join(faults)}; {advice}")


def _shown(names: set[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more

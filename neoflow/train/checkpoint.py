"""Checkpoints: everything a run needs to continue as if it had never stopped.

    <folder>/step-00000712.safetensors   parameters and optimizer state, by name
    <folder>/step-00000712.json          position of the run, and size and SHA-256 of the tensors

Each file appears whole by atomic rename, the JSON last: a checkpoint exists once its JSON does. The newest two stay.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from neoflow.errors import CheckpointError
from neoflow.expr.tensor import Parameter
from neoflow.runtime.parameters import load_parameters, pack_parameters, write_atomically

FORMAT = 1
KEPT = 2


@dataclass(frozen=True)
class Position:
    """Where a run stands: `step` steps and `epoch` whole epochs are behind it, `taken` batches of the next one.

    data: the state of the batches, when they have one. totals: sums over them, by quantity.
    Nothing else is random: the order of the data follows from `data`, the learning rate from `step`.
    """

    step: int = 0
    epoch: int = 0
    taken: int = 0
    data: dict[str, int] | None = None
    totals: dict[str, float] = field(default_factory=dict)


def save_checkpoint(folder: str | os.PathLike, parameters: Iterable[Parameter], position: Position) -> Path:
    """Write a checkpoint, then remove all but the newest two; returns the path of its JSON file."""
    folder = Path(folder)
    name = f"step-{position.step:08d}"
    data = pack_parameters(parameters)
    digest = hashlib.sha256(data).hexdigest()
    content = {"format": "neoflow", "version": FORMAT, "sha256": digest, "bytes": len(data), **asdict(position)}
    path = folder / f"{name}.json"
    try:
        path.unlink(missing_ok=True)  # of the same step: from here on until the new JSON is there, it does not count
        write_atomically(folder / f"{name}.safetensors", data)
        write_atomically(path, json.dumps(content, indent=1).encode())
        for old in checkpoints(folder)[:-KEPT]:
            old.unlink(missing_ok=True)
            old.with_suffix(".safetensors").unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"no checkpoint can be written to {folder}: {error}") from error
    return path


def checkpoints(folder: str | os.PathLike) -> list[Path]:
    """The JSON files of the checkpoints in a folder, oldest first."""
    return sorted(Path(folder).glob("step-*.json"))


def load_checkpoint(path: str | os.PathLike, parameters: Iterable[Parameter]) -> Position:
    """Set the parameters from a checkpoint, given by its JSON file or by its folder (the newest); gives where it stood.

    Raises `CheckpointError` for one that is missing, truncated or foreign, or of another program: nothing is changed
    then, and the message names the checkpoint before it, if there is one.
    """
    path = Path(path)
    if path.is_dir():
        found = checkpoints(path)
        if not found:
            raise CheckpointError(f"there is no checkpoint in {path}")
        path = found[-1]
    try:
        content = _verified(path)
        position = _position(path, content)
        load_parameters(path.with_suffix(".safetensors"), parameters)
    except CheckpointError as error:
        before = [p for p in checkpoints(path.parent) if p < path]
        hint = f"; the one before it is {before[-1]}: delete {path} to continue from there" if before else ""
        raise CheckpointError(f"{error}{hint}") from error
    return position


def _verified(path: Path) -> dict[str, Any]:
    """The content of a checkpoint's JSON, its tensors compared with the checksum there."""
    tensors = path.with_suffix(".safetensors")
    try:
        content = json.loads(path.read_bytes())
        data = tensors.read_bytes()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != "neoflow":
        raise CheckpointError(f"{path} is no checkpoint of neoflow")
    if content.get("version") != FORMAT:
        raise CheckpointError(f"checkpoint {path} has version {content.get('version')}, this neoflow reads {FORMAT}")
    if len(data) != content.get("bytes") or hashlib.sha256(data).hexdigest() != content.get("sha256"):
        raise CheckpointError(
            f"checkpoint {path} is damaged: {tensors.name} has {len(data)} bytes with another checksum than the "
            f"{content.get('bytes')} that were written"
        )
    return content


def _position(path: Path, content: dict[str, Any]) -> Position:
    try:
        step, epoch, taken = (int(content[n]) for n in ("step", "epoch", "taken"))
        data = None if content["data"] is None else {str(k): int(v) for k, v in content["data"].items()}
        totals = {str(k): float(v) for k, v in content["totals"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {path} says not where its run stood: {error!r}") from error
    return Position(step, epoch, taken, data, totals)

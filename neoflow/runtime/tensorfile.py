"""Arrays by name as safetensors, which others read and write too."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import CheckpointError


def pack_arrays(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """The content of a safetensors file."""
    from safetensors.numpy import save

    return save(dict(arrays), metadata={"format": "neoflow", **(metadata or {})})


_STORED: dict[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "BOOL": "bool",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "C64": "complex64",
}
"""Types by their name in safetensors, whose reader for NumPy lacks bfloat16; the last are those of other programs."""


def dtype_of(stored: object) -> str | None:
    """Our name for a type by its name in safetensors; None for what is no such name."""
    return _STORED.get(stored) if isinstance(stored, str) else None


def unpack_arrays(data: bytes, source: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by name, and the metadata, of a safetensors file's content. Raises `CheckpointError`, naming `source`."""
    from safetensors import SafetensorError, deserialize

    try:
        arrays = {
            name: np.frombuffer(found["data"], dt.type_of(_STORED[found["dtype"]])).reshape(found["shape"])
            for name, found in deserialize(data)
        }
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise CheckpointError(f"{source} is no readable safetensors file: {error}") from error
    return arrays, metadata

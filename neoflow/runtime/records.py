"""What the files of the kernel cache say, and how that is verified: nothing is believed for lying where it lies.

A module is called by the hash of its file. A record begins with a seal: the hash of its own name and of what follows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neoflow.code import Code, kernel_symbol
from neoflow.errors import ScheduleError, TextError

MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError, TextError, ScheduleError)
"""What reading a file may raise that is not what it should be."""

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Module:
    """A shared library of kernels, named by the hash of its file; how each of them is called, by its key."""

    name: str
    codes: Mapping[str, Code]
    library: bytes


def packed(library: bytes, codes: Mapping[str, Code]) -> tuple[Module, bytes]:
    """A module, and its file: how its kernels are called as a line of JSON, then the shared library."""
    data = json.dumps({key: code.to_json() for key, code in codes.items()}).encode() + b"\n" + library
    return Module(hashlib.sha256(data).hexdigest(), dict(codes), library), data


def unpacked(name: str, data: bytes) -> Module:
    """The module of a file. Raises one of `MALFORMED` for another name, or functions that its keys do not name."""
    if hashlib.sha256(data).hexdigest() != name:
        raise ValueError("is damaged")
    head, _, library = data.partition(b"\n")
    codes = {checked_hash(key): Code.from_json(text) for key, text in json.loads(head).items()}
    if not all(e.symbol.startswith(f"{kernel_symbol(key)}_") for key, code in codes.items() for e in code.entries):
        raise ValueError("has functions that its keys do not name")
    return Module(name, codes, library)


def sealed(name: str, said: Mapping[str, Any]) -> bytes:
    """The record called `name` that says this."""
    body = json.dumps(said, indent=1).encode()
    return _seal(name, body) + b"\n" + body


def unsealed(name: str, data: bytes) -> dict[str, Any]:
    """What a record says. Raises one of `MALFORMED` when that is not what was written under this name."""
    seal, _, body = data.partition(b"\n")
    if seal != _seal(name, body):
        raise ValueError("is damaged")
    return dict(json.loads(body))


def _seal(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + body).hexdigest().encode()


def checked_hash(text: object) -> str:
    """A hash as text. Raises `ValueError` for anything else: it may become the name of a file."""
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise ValueError("is foreign")
    return text

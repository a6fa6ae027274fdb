"""Code generation: a subgraph and a schedule become machine code.  Only this package imports tvm, and when used.

`lower`, `build` and `source` load the compiler.
"""

from __future__ import annotations

import hashlib
import importlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neoflow.imports import without_torch

__all__ = [
    "CODEGEN_VERSION",
    "Lowered",
    "build",
    "build_team",
    "fma_kernel",
    "lower",
    "source",
    "team_key",
]

_LAZY = {
    "Lowered": "cpu.kernel",
    "lower": "cpu.kernel",
    "build": "cpu.compile",
    "build_team": "cpu.team",
    "fma_kernel": "cpu.peak",
    "source": "cpu.compile",
}


def _version() -> str:
    """Changes when generated code may: a hash of this package's files and of TVM's version."""
    digest = hashlib.sha256(version("apache-tvm").encode())
    for path in sorted(Path(__file__).parent.rglob("*.*")):
        if path.suffix in (".py", ".ll"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


CODEGEN_VERSION = _version()


def team_key() -> str:
    """What the thread team's library is found by."""
    return hashlib.sha256(f"team {CODEGEN_VERSION}".encode()).hexdigest()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        with without_torch():
            return getattr(importlib.import_module(f"neoflow.codegen.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

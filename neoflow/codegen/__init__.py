"""Code generation: a subgraph and a schedule become machine code.  Only this package imports tvm, and when used.

`Target`, `cpu_target` and `default_schedule` are light; `lower`, `build`, `source` load the compiler.
"""

from __future__ import annotations

import hashlib
import importlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neoflow.codegen.schedules import default_schedule
from neoflow.codegen.target import Target, cpu_target
from neoflow.imports import without_torch

__all__ = [
    "CODEGEN_VERSION",
    "Lowered",
    "Target",
    "build",
    "cpu_target",
    "default_schedule",
    "fma_kernel",
    "lower",
    "source",
]

_LAZY = {"Lowered": "kernel", "lower": "kernel", "build": "compile", "fma_kernel": "peak", "source": "compile"}


def _version() -> str:
    """Changes when generated code may: a hash of this package's files and of TVM's version."""
    digest = hashlib.sha256(version("apache-tvm").encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


CODEGEN_VERSION = _version()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        with without_torch():
            return getattr(importlib.import_module(f"neoflow.codegen.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Imports that stay quick: `tvm` and `tvm_ffi` import PyTorch wherever it is installed, which takes two seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MODULES: dict[str, Any] = sys.modules  # None there makes `import` raise ModuleNotFoundError


@contextmanager
def without_torch() -> Iterator[None]:
    """What is imported inside finds no PyTorch, unless the user has imported it already; an import later finds it.

    neoflow hands TVM flat NumPy arrays only, so nothing of what TVM does with PyTorch's tensors is missed.
    """
    if "torch" in _MODULES:
        yield
        return
    _MODULES["torch"] = None
    try:
        yield
    finally:
        del _MODULES["torch"]

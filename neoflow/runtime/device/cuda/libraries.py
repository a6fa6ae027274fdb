"""In which stream another library works on its arrays: it goes on there after a step that reads them has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

LEGACY = 1
"""The stream of those who name none."""
HOST = -1
"""Stands for the stream of a library that is not known here: the host waits for the step."""


def _torch(module: Any, ordinal: int) -> int:
    return int(module.cuda.current_stream(ordinal).cuda_stream) or LEGACY


def _cupy(module: Any, ordinal: int) -> int:
    with module.cuda.Device(ordinal):
        return int(module.cuda.get_current_stream().ptr) or LEGACY


def _never(module: Any, ordinal: int) -> None:
    return None


FOLLOWERS: dict[str, Callable[[Any, int], int | None]] = {
    "torch": _torch,
    "cupy": _cupy,
    "jax": _never,
    "jaxlib": _never,
}
"""By the module of an array's class: the stream that may overwrite it next; None of arrays that are never overwritten,
which their library gets back after the step."""


def follower(value: Any, ordinal: int) -> int | None:
    """The stream that has to wait for what reads `value`, on the GPU of this number; `HOST` where nobody knows it."""
    for kind in type(value).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in FOLLOWERS and name in sys.modules:
            return FOLLOWERS[name](sys.modules[name], ordinal)
    return HOST

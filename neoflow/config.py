"""Every NEOFLOW_* flag, read and validated in one place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from neoflow.errors import ConfigError
from neoflow.machine import available_cores

if TYPE_CHECKING:
    from pathlib import Path


class Config(NamedTuple):
    """NEOFLOW_CACHE_DIR: where compiled kernels are kept. NEOFLOW_CACHE_BYTES: their limit (default 2 GiB).
    NEOFLOW_THREADS: threads a kernel uses (default: the cores this process may use).
    NEOFLOW_CHECK: 1 compares every kernel a program uses with NumPy before its first use, cached ones too.
    NEOFLOW_TRACEBACK: `full` leaves the frames of neoflow in tracebacks (default: short).
    NEOFLOW_CUDA_COMPILER: `nvrtc` or `nvcc` (default: the first of them that is installed).
    NEOFLOW_WITHOUT: transformations that are left out, by the names of `rewriting.OPTIONAL`, with commas between them.
    NEOFLOW_WITH: transformations that are done where they are asked for alone, `rewriting.ASKED`, with commas likewise.
    """

    cache_dir: Path
    cache_bytes: int
    threads: int
    check: bool
    cuda_compiler: str
    without: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()


FLAGS = (
    "NEOFLOW_CACHE_BYTES",
    "NEOFLOW_CACHE_DIR",
    "NEOFLOW_CHECK",
    "NEOFLOW_CUDA_COMPILER",
    "NEOFLOW_THREADS",
    "NEOFLOW_TRACEBACK",
    "NEOFLOW_WITH",
    "NEOFLOW_WITHOUT",
)


def _integer(name: str, default: int, low: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < low:
        raise ConfigError(f"{name}={text!r} must be a whole number of at least {low}")
    return int(text)


def shows_full_tracebacks() -> bool:
    """Whether errors keep the frames of neoflow. Raises `ConfigError` for what is neither `full` nor `short`."""
    value = os.environ.get("NEOFLOW_TRACEBACK", "short")
    if value not in ("full", "short"):
        raise ConfigError(f"NEOFLOW_TRACEBACK={value!r} must be full or short")
    return value == "full"


def threads() -> int:
    """NEOFLOW_THREADS as it is now. Raises `ConfigError`."""
    return _integer("NEOFLOW_THREADS", available_cores(), 1)


def load() -> Config:
    """The flags as they are now. Raises `ConfigError` naming the variable, its value and what is allowed."""
    from pathlib import Path  # imported here: what a package runs has no cache

    from platformdirs import user_cache_path

    for name in os.environ:
        if name.startswith("NEOFLOW_") and name not in FLAGS:
            raise ConfigError(f"{name} is not a flag of neoflow; there are {', '.join(sorted(FLAGS))}")
    check = os.environ.get("NEOFLOW_CHECK", "0")
    if check not in ("0", "1"):
        raise ConfigError(f"NEOFLOW_CHECK={check!r} must be 0 or 1")
    compiler = os.environ.get("NEOFLOW_CUDA_COMPILER", "")
    if compiler not in ("", "nvrtc", "nvcc"):
        raise ConfigError(f"NEOFLOW_CUDA_COMPILER={compiler!r} must be nvrtc or nvcc")
    shows_full_tracebacks()
    folder = os.environ.get("NEOFLOW_CACHE_DIR") or user_cache_path("neoflow") / "kernels"
    return Config(
        Path(folder),
        _integer("NEOFLOW_CACHE_BYTES", 2 << 30, 1 << 20),
        threads(),
        check == "1",
        compiler,
        _names("NEOFLOW_WITHOUT"),
        _names("NEOFLOW_WITH"),
    )


def _names(flag: str) -> frozenset[str]:
    return frozenset(n.strip() for n in os.environ.get(flag, "").split(",") if n.strip())

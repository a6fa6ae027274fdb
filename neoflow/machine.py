"""What this process may use of the machine."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Cores this process may run on at a time: by its affinity, and by the CPU quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cpu_quota(_GROUPS, _own_group()))))


def cpu_quota(root: Path, group: str) -> float:
    """Cores that the control groups under `root` grant to `group` (a path inside of it); infinity where none limits.

    Both versions: `cpu.max` ("quota period" or "max period"), and `cpu/cpu.cfs_quota_us` with its period.
    """
    granted = [math.inf]
    for folder in (Path(group), *Path(group).parents):
        here = folder.relative_to(folder.anchor) if folder.is_absolute() else folder
        quota, period = _words(root / here / "cpu.max", 2)
        if quota is None:
            (quota,), (period,) = (_words(root / "cpu" / here / f"cpu.cfs_{n}_us", 1) for n in ("quota", "period"))
        if quota and period and quota > 0:
            granted.append(quota / period)
    return min(granted)


def _own_group() -> str:
    """The path of this process's control group; the root where it cannot be told, as inside of a container."""
    try:
        rows = [line.strip().split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return "/"
    return next((path for _, controllers, path in rows if controllers == "" or "cpu" in controllers.split(",")), "/")


def _words(path: Path, count: int) -> list[int | None]:
    """The numbers in a file, None for other words; all None where it cannot be read."""
    try:
        words = path.read_text().split()
    except OSError:
        return [None] * count
    found = [int(w) if w.lstrip("-").isdigit() else None for w in words[:count]]
    return found + [None] * (count - len(found))


def processor() -> str:
    """What the processor calls itself."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

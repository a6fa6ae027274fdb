"""What this process may use of the machine."""

from __future__ import annotations

import math
import os

_GROUPS = "/sys/fs/cgroup"


def available_cores() -> int:
    """Cores this process may run on at a time: by its affinity, and by the CPU quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cpu_quota(_GROUPS, _own_group()))))


def cpu_quota(root: str | os.PathLike[str], group: str) -> float:
    """Cores that the control groups under `root` grant to `group` (a path inside of it); infinity where none limits.

    Both versions: `cpu.max` ("quota period" or "max period"), and `cpu/cpu.cfs_quota_us` with its period.
    """
    granted = [math.inf]
    names = [name for name in group.split("/") if name]
    for depth in range(len(names), -1, -1):
        here = names[:depth]
        quota, period = _words(os.path.join(root, *here, "cpu.max"), 2)
        if quota is None:
            folder = os.path.join(root, "cpu", *here)
            (quota,), (period,) = (_words(os.path.join(folder, f"cpu.cfs_{n}_us"), 1) for n in ("quota", "period"))
        if quota and period and quota > 0:
            granted.append(quota / period)
    return min(granted)


def _own_group() -> str:
    """The path of this process's control group; the root where it cannot be told, as inside of a container."""
    try:
        with open("/proc/self/cgroup") as file:
            rows = [line.strip().split(":", 2) for line in file]
    except OSError:
        return "/"
    return next((path for _, controllers, path in rows if controllers == "" or "cpu" in controllers.split(",")), "/")


def _words(path: str, count: int) -> list[int | None]:
    """The numbers in a file, None for other words; all None where it cannot be read."""
    try:
        with open(path) as file:
            words = file.read().split()
    except OSError:
        return [None] * count
    found = [int(w) if w.lstrip("-").isdigit() else None for w in words[:count]]
    return found + [None] * (count - len(found))


def cpuinfo() -> dict[str, str]:
    """What the system says of the first processor."""
    info: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                if not key.strip():
                    break
                info[key.strip()] = value.strip()
    except OSError:
        pass
    return info


def cpu_features() -> frozenset[str]:
    """What this machine's processor has, by the names of the system."""
    return frozenset(cpuinfo().get("flags", "").split())


def processor() -> str:
    """What the processor calls itself."""
    if "model name" in (info := cpuinfo()):
        return info["model name"]
    import platform  # imported here: few machines do not say it

    return platform.processor() or platform.machine()

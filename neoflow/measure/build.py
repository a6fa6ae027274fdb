"""A schedule to code that runs, in memory alone: what a search tries has no place in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from neoflow import codegen
from neoflow.errors import CodegenError
from neoflow.kernel import Code
from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.runtime.device import Device
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.device.cuda import Cuda, CudaDriver
from neoflow.runtime.executor import Loaded, load_kernel
from neoflow.target import Target

SYMBOL = "candidate"


@dataclass(frozen=True)
class Built:
    """A compiled kernel that is not loaded: how it is called, and its library."""

    code: Code
    library: bytes


def build(subgraph: Subgraph, schedule: Schedule, target: Target) -> Built:
    """Compile one kernel. Raises `ScheduleError` and `CodegenError`."""
    missing = codegen.missing(target)
    if missing is not None:
        raise CodegenError(missing)
    lowered = codegen.lower(subgraph, schedule, target, SYMBOL)
    return Built(lowered.code, codegen.build([lowered], target))


def load(place: Device, built: Built) -> Loaded:
    """The kernel, ready to be called."""
    return load_kernel(built.code, place.load(built.library))


def device_of(target: Target) -> Device:
    """What code for a target runs on in this process. Raises `RuntimeFault` where there is none."""
    if target.device == "gpu":
        return gpu()
    CPU.install(codegen.build_team)
    return CPU


@lru_cache(maxsize=1)
def gpu() -> Cuda:
    """The GPU of this machine. Raises `RuntimeFault` when there is none that this process may use."""
    return Cuda(CudaDriver())

"""A schedule to code that runs, in memory alone: what a search tries has no place in the cache."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow import codegen
from neoflow.code import Code
from neoflow.errors import CodegenError
from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.runtime.device import Device
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

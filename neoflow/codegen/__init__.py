"""Code generation: a subgraph and a schedule become machine code.  Only this package imports tvm, and when used.

`lower`, `build` and `source` load the compiler of the target's kind: a folder here, and a row of `DEVICES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neoflow.codegen.sizes import check_sizes
from neoflow.errors import CodegenError, ScheduleError
from neoflow.imports import without_torch
from neoflow.loops import Schedule, legal, problem_of
from neoflow.partition import Subgraph
from neoflow.target import Target

if TYPE_CHECKING:
    from neoflow.codegen.cpu import (
        ARGUMENTS,
        DATA,
        FILL,
        FIRST_FUNCTION,
        IGNORED,
        IS_OTHER,
        ITSELF,
        OWN,
        CFunction,
        Command,
        Commands,
        Image,
        Lowered,
        Runs,
        Word,
        build_commands,
        build_package,
    )

__all__ = [
    "ARGUMENTS",
    "CEILING_THREADS",
    "DATA",
    "DEVICES",
    "FILL",
    "FIRST_FUNCTION",
    "IGNORED",
    "IS_OTHER",
    "ITSELF",
    "OWN",
    "CFunction",
    "Command",
    "Commands",
    "Image",
    "Lowered",
    "Runs",
    "Word",
    "build",
    "build_commands",
    "build_package",
    "build_persistent",
    "build_team",
    "ceilings",
    "ceilings_module",
    "check_sizes",
    "cubin",
    "cuda_compilers",
    "features",
    "fma_kernel",
    "kernel_key",
    "lower",
    "lower_persistent",
    "missing",
    "persistent_source",
    "source",
    "team_key",
]

DEVICES = {"cpu": "neoflow.codegen.cpu", "cuda": "neoflow.codegen.gpu", "nvptx": "neoflow.codegen.gpu"}
"""The package of each kind of target, with `lower`, `kernel_key`, `build` and `source`; of a GPU also `missing`."""
_OF_CPU = (
    "ARGUMENTS",
    "DATA",
    "FILL",
    "IGNORED",
    "IS_OTHER",
    "ITSELF",
    "OWN",
    "CFunction",
    "Command",
    "Commands",
    "Word",
    "build_commands",
    "FIRST_FUNCTION",
    "Image",
    "Lowered",
    "Runs",
    "build_package",
    "build_team",
    "features",
    "fma_kernel",
    "team_key",
)
_OF_GPU = (
    "CEILING_THREADS",
    "build_persistent",
    "ceilings",
    "ceilings_module",
    "cubin",
    "cuda_compilers",
    "lower_persistent",
    "persistent_source",
)


def _device(kind: str) -> Any:
    """The package for a kind of targets, imported when it is first asked for."""
    if kind not in DEVICES:
        raise CodegenError(f"there is no code for a target of kind {kind!r}; there is for {', '.join(DEVICES)}")
    with without_torch():
        return importlib.import_module(DEVICES[kind])


def lower(subgraph: Subgraph, schedule: Schedule, target: Target, name: str) -> Lowered:
    """The kernel of `subgraph` by `schedule`, named `name`. Raises `ScheduleError` when the schedule is not legal."""
    verdict = legal(problem_of(subgraph), schedule, target)
    if not verdict.ok:
        raise ScheduleError(verdict.reason)
    return _device(target.kind).lower(subgraph, schedule, target, name)


def build(kernels: Sequence[Lowered], target: Target) -> bytes:
    """A shared library with the kernels, which are alike in `is_shared`."""
    return _device(target.kind).build(kernels, target)


def source(kernels: Sequence[Lowered], target: Target, format: str = "tir") -> str:
    """The kernels as text: "tir" before the passes, "llvm" IR or "asm" after optimisation."""
    return _device(target.kind).source(kernels, target, format)


def kernel_key(kernel: Lowered, target: Target) -> str:
    """What the code of a kernel is found by, whatever its name."""
    return _device(target.kind).kernel_key(kernel, target)


def missing(target: Target) -> str | None:
    """Why code for a target can be written but not built on this machine; None where it can."""
    return None if target.device == "cpu" else _device(target.kind).missing(target)


def __getattr__(name: str) -> Any:
    for names, kind in ((_OF_CPU, "cpu"), (_OF_GPU, "cuda")):
        if name in names:
            return getattr(_device(kind), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""A case of an operator, compiled: each one has a line in the log."""

from __future__ import annotations

import logging
import time

from neoflow import pipeline
from neoflow.errors import RuntimeFault
from neoflow.interop.family import Case
from neoflow.runtime.function import Function
from neoflow.tune import Limits

log = logging.getLogger("neoflow")


def compiled(case: Case, device: str, target: str | None, tune: float | Limits | None) -> Function:
    """A case for tensors on "cpu" or "cuda". target: another than that device's own, of it."""
    name = case.family.signature.name
    if (
        target is not None
        and target.partition(":")[0] != device
        and not (device == "cuda" and target.startswith("nvptx"))
    ):
        raise RuntimeFault(f"operator {name} is for target {target!r}, its tensors are on {device}")
    begun = time.monotonic()
    program = case.program
    function = pipeline.compile(list(program.outputs), list(program.inputs), target=target or device, tune=tune)
    built = function.compiled.built
    log.info(
        "operator %s: compiled %s for %s in %.2f s, %d kernels of which %d are new",
        name,
        case.what,
        device,
        time.monotonic() - begun,
        built + function.compiled.cached,
        built,
    )
    return function

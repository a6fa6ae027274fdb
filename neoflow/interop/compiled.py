"""A case of an operator, compiled: each one has a line in the log."""

from __future__ import annotations

import logging
import time
from typing import Any

from neoflow import pipeline, tuning
from neoflow.caller import caller
from neoflow.errors import ArgumentError, RuntimeFault, shown
from neoflow.interop.family import Case
from neoflow.runtime.function import Function
from neoflow.tune import Limits

log = logging.getLogger("neoflow")


def check_search(target: Any, tune: Any) -> None:
    """Raise `ArgumentError` or `ConfigError` for what `compiled` would not take, when an operator is defined."""
    if target is not None and (not isinstance(target, str) or not target):
        raise ArgumentError(f"target is {shown(target)}; it is a text, as in nf.compile, or None", caller())
    tuning.limits_of(tune)


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

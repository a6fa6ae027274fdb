"""What this machine reaches, kept beside its kernels: what plans and kernels are compared by.

Measured by the first search or by `neoflow doctor`, once, while nothing else runs; until then as it is stated, so that
no first step waits for it. Programs are keyed by their kernels, so what these figures change is compiled by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from neoflow.errors import ConfigError, TextError
from neoflow.machine import processor
from neoflow.measure.near import Cores
from neoflow.measure.roofs import roofs_of
from neoflow.roofs import Roofs
from neoflow.runtime.folder import Folder
from neoflow.target import Target
from neoflow.tune.roofs import stated

MOST_BYTES = 1 << 12
"""Of a file of roofs: some hundred are usual."""
BUSY, LOOKED = 0.1, 0.2
"""Share of the cores that other work takes from which nothing is measured to be kept; seconds it is looked at."""
PATIENCE = 10.0
"""Seconds waited for cores that are apart; those that stay so are measured as they are."""


def machine_roofs(target: Target, folder: Path) -> Roofs:
    """Those that are kept of this machine, in steps; where none are, and of a GPU, those that are `stated`."""
    if target.device != "cpu" or not (folder / _name(target)).exists():
        return stated(target)
    try:
        return Roofs.from_text(Folder(folder).read(_name(target), MOST_BYTES).decode()).rounded()
    except (OSError, ValueError, ConfigError, TextError):
        return stated(target)


def keep_roofs(
    target: Target, folder: Path, measure: Callable[[Target], Roofs | None] = roofs_of, busy: float | None = None
) -> str | None:
    """Measure this machine's CPU, unless that was done; why nothing is kept, or None. busy: share of the cores that
    others use now (None: it is looked at)."""
    if target.device != "cpu" or (folder / _name(target)).exists():
        return None
    busy = share_of_others() if busy is None else busy
    if busy > BUSY:
        return f"not kept, as other work takes {busy:.0%} of the cores"
    found = Cores(PATIENCE).between(lambda: measure(target))
    if found is None:
        return None
    with suppress(OSError):  # a folder that cannot be written to keeps nothing
        Folder(folder).write(_name(target), found.to_text().encode())
    return None


def share_of_others() -> float:
    """Of the cores, just now."""
    return psutil.cpu_percent(LOOKED) / 100


def _name(target: Target) -> str:
    """Of the file, by the processor and what is used of it."""
    return f"roofs-{hashlib.sha256(f'{processor()} {target}'.encode()).hexdigest()[:16]}.txt"

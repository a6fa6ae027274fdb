"""Kernels for a GPU, run by the emulator on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neoflow import codegen
from neoflow.codegen.verify import Certificate, Run, verify
from neoflow.errors import RuntimeFault
from neoflow.loops import Schedule
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target
from tests import emulator
from tests.emulator.source import signatures


def run_gpu(subgraph: Subgraph, schedule: Schedule, target: Target, checked: bool = True) -> Run:
    """The kernel of a schedule, as `verify` calls it: arrays of inputs, then of outputs; `RuntimeFault` of a check."""
    lowered = codegen.lower(subgraph, schedule, target, "k")
    text = codegen.source([lowered], target, "cuda")
    kernels = signatures(text)

    def run(arrays: Sequence[np.ndarray]) -> None:
        code = lowered.code
        spaces = [np.zeros(w.nbytes, np.uint8) for w in code.workspaces]
        status = [np.zeros(1, np.int32)] if code.faults else []
        views = []
        for n, array in enumerate((*arrays, *spaces, *status)):
            kind = kernels[code.entries[0].symbol].types[n]
            views.append(array.view(emulator._TYPES[kind]))
        launches = [(e.symbol, e.tasks, e.threads, e.shared_bytes, views) for e in code.entries]
        bare = [v for v in views[len(arrays) : len(arrays) + len(spaces)]]
        emulator.emulate(text, launches, checked, unwritten=bare)
        if status and status[0][0]:
            raise RuntimeFault(f"check {status[0][0]}")

    return run


def verified(subgraph: Subgraph, schedule: Schedule, target: Target) -> Certificate:
    """What the judge says of it."""
    return verify(subgraph, run_gpu(subgraph, schedule, target), str(schedule))

"""Kernels for a GPU, run by the emulator on NumPy arrays, every access checked, and judged by `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from neoflow import codegen
from neoflow.codegen.gpu import Lowered
from neoflow.codegen.verify import Certificate, Run, verify
from neoflow.errors import CodegenError, RuntimeFault
from neoflow.loops import Schedule
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target
from tests.emulator import MEMORY, Fault, Program

Job = tuple[str, Subgraph, Schedule]
A_SOURCE = 24
"""Kernels that are compiled together."""


def run_gpu(
    subgraph: Subgraph,
    schedule: Schedule,
    target: Target,
    checked: bool = True,
    seed: int | None = None,
    planted: tuple[str, str] | None = None,
) -> Run:
    """The kernel of a schedule, as `verify` calls it: arrays of inputs, then of outputs; `RuntimeFault` of a check.

    An output may be the array of an input. seed: of the order in which blocks run. planted: a text of the source, and
    the fault that stands there instead.
    """
    lowered = codegen.lower(subgraph, schedule, target, "k")
    source = codegen.source([lowered], target, "cuda")
    if planted is not None:
        assert planted[0] in source
        source = source.replace(*planted)
    program = Program(source, checked)
    return lambda arrays: launch(program, lowered, arrays, len(subgraph.inputs), seed)


def verified(subgraph: Subgraph, schedule: Schedule, target: Target) -> Certificate:
    """What the judge says of it."""
    return verify(subgraph, run_gpu(subgraph, schedule, target), str(schedule))


def all_verified(jobs: Sequence[Job], target: Target) -> list[Certificate]:
    """What the judge says of many, by name; some share a source. The first that is wrong is raised."""
    found = []
    for outcome in outcomes(jobs, target):
        if not isinstance(outcome, Certificate):
            raise outcome
        found.append(outcome)
    return found


def outcomes(jobs: Sequence[Job], target: Target) -> Iterator[Certificate | CodegenError | Fault]:
    """The same, and of one that is wrong what is wrong with it."""
    lowered = [(name, s, k, codegen.lower(s, k, target, f"k{n}")) for n, (name, s, k) in enumerate(jobs)]
    for shared in (False, True):
        alike = [job for job in lowered if job[3].is_shared == shared]
        for start in range(0, len(alike), A_SOURCE):
            part = alike[start : start + A_SOURCE]
            program = Program(codegen.source([kernel for *_, kernel in part], target, "cuda"))
            for name, subgraph, schedule, kernel in part:

                def run(arrays, program=program, kernel=kernel, subgraph=subgraph):
                    launch(program, kernel, arrays, len(subgraph.inputs))

                try:
                    yield verify(subgraph, run, f"{name} by {schedule}")
                except (CodegenError, Fault) as wrong:
                    yield wrong


def launch(
    program: Program, kernel: Lowered, arrays: Sequence[np.ndarray], inputs: int, seed: int | None = None
) -> None:
    """Outputs and scratch hold nothing that may be read before it is written."""
    code, status = kernel.code, np.zeros(1, np.int32)
    places = {id(a): MEMORY.allocate(a.nbytes, a.itemsize, f"array {n}") for n, a in enumerate(_apart(arrays))}
    spaces = [MEMORY.allocate(w.nbytes, label=f"scratch {n}") for n, w in enumerate(code.workspaces)]
    if code.faults:
        spaces.append(MEMORY.allocate(status.nbytes, label="status"))
        MEMORY.write(spaces[-1].address, status)
    try:
        for n, array in enumerate(arrays):
            if n < inputs:
                MEMORY.write(places[id(array)].address, array)
            elif all(array is not a for a in arrays[:inputs]):
                places[id(array)].view(array.dtype, array.shape)[...] = array
        addresses = [places[id(a)].address for a in arrays] + [s.address for s in spaces]
        for e in code.entries:
            program.launch(e.symbol, e.tasks, e.threads, e.shared_bytes, addresses, seed)
        for array in arrays:
            array[...] = places[id(array)].view(array.dtype, array.shape)
        if code.faults:
            MEMORY.read(addresses[-1], status)
    finally:
        for place in (*places.values(), *spaces):
            MEMORY.free(place)
    if status[0]:
        raise RuntimeFault(f"check {status[0]}")


def _apart(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Each array once."""
    return list({id(a): a for a in arrays}.values())

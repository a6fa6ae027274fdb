"""neoflow on the GPU: kernels beside NumPy, and programs run again and again with nothing of the host in between."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.gpu.rows import Outcome, Setting
from benchmarks.gpu.turns import turn
from neoflow.codegen.verify import verify
from neoflow.devices import device, parameter_store
from neoflow.errors import RuntimeFault
from neoflow.expr.tensor import Tensor
from neoflow.loops import TEMPLATES, complete, fits, problem_of
from neoflow.pipeline import Compiled, adopt, bind, compile_program
from neoflow.runtime.constants import constant_memory
from neoflow.runtime.device.cuda import Cuda
from neoflow.runtime.executor import Executor, Loaded, load_kernel, run_on
from neoflow.runtime.transfer import OnDevice

TARGET = "cuda"
BLOCK = 0.02
"""Seconds of runs between two events."""
LEAST_BLOCKS = 5


def compiled(
    roots: Sequence[Tensor],
    inputs: Sequence[Tensor],
    updates: dict[Tensor, Tensor] | None = None,
    precision: str = "fp32",
) -> Compiled:
    """A program for this machine's GPU."""
    return compile_program(list(roots), list(inputs), updates, TARGET, precision)


def by_template(program: Compiled, template: str) -> Compiled:
    """The program with the kernels that a template fits by it: a template that is no choice without a search.

    Raises `RuntimeFault` where there is none.
    """
    if not template:
        return program
    found = {}
    for subgraph in (kernel.subgraph for kernel in program.kernels):
        problem = problem_of(subgraph)
        if fits(template, problem).ok and TEMPLATES[template].fits_target(problem, program.target).ok:
            found[subgraph.digest] = complete(template, problem, program.target, {})
    if not found:
        raise RuntimeFault(f"no kernel for {program.target} is by {template}")
    function = bind(program)
    adopt(function, found)
    assert isinstance(function.compiled, Compiled)
    return function.compiled


def place_of(program: Compiled) -> Cuda:
    """The GPU a program is for. Raises `RuntimeFault` when it is not here."""
    place = device(program.target)
    if not isinstance(place, Cuda):
        raise RuntimeFault(f"{program.target} is no GPU")
    return place


def load(program: Compiled, place: Cuda) -> list[Loaded]:
    """Its kernels, in the memory of the GPU."""
    libraries = {name: place.load(library) for name, library in {m.name: m.library for m in program.modules}.items()}
    pairs = zip(program.kernels, program.modules, strict=True)
    return [load_kernel(module.codes[kernel.key], libraries[module.name]) for kernel, module in pairs]


def verify_kernels(program: Compiled) -> Outcome:
    """Every kernel against `evaluate`. Raises `CodegenError` with the worst element of one that is wrong."""
    place, threads = place_of(program), program.target.threads
    found = []
    for kernel, loaded in zip(program.kernels, load(program, place), strict=True):

        def run(arrays: Sequence[np.ndarray], loaded: Loaded = loaded) -> None:
            run_on(place, loaded, arrays, threads)

        found.append(verify(kernel.subgraph, run, f"kernel {kernel.symbol} by {kernel.schedule}"))
    figures = {
        "kernels": len(found),
        "compared": sum(c.compared for c in found),
        "worst": max(c.worst for c in found),
        "faults": sum(c.faults for c in found),
    }
    templates = sorted({kernel.schedule.template for kernel in program.kernels})
    return Outcome(figures, ", ".join(templates))


class Resident:
    """A program with its inputs and outputs on the GPU, ready to run."""

    def __init__(self, program: Compiled, arrays: Sequence[np.ndarray]):
        self.place = place_of(program)
        store, graph = parameter_store(), program.graph
        parameters = [store.memory(p, self.place) for p in graph.parameters]
        constants = [constant_memory(self.place, c) for c in graph.constants]
        kernels = load(program, self.place)
        wholes = program.loops.loaded(self.place)
        given = (program.plan, kernels, parameters, constants, self.place, program.target.threads)
        self._executor = Executor(*given, wholes=wholes)
        self._exchange = OnDevice(self._executor, graph.inputs, self.place)
        self._exchange.bind(arrays)

    @property
    def launches(self) -> int:
        """Of a run."""
        return self._executor.launches

    def run(self) -> None:
        """All its kernels once; they may still run when this returns."""
        self._executor.run()

    def results(self) -> list[np.ndarray]:
        """What the last run returned."""
        self.place.synchronize()
        return self._exchange.results()

    def seconds(self, setting: Setting) -> float:
        """Of a run, by the GPU's own clock."""
        driver = self.place.driver

        def block(runs: int) -> float:
            first = driver.event()
            for _ in range(runs):
                self.run()
            last = driver.event()
            seconds = driver.seconds(first, last) / runs
            driver.free_event(first)
            driver.free_event(last)
            return seconds

        return median_seconds(block, setting)


def median_seconds(block: Callable[[int], float], setting: Setting) -> float:
    """The median over blocks of so many runs; a few come first that count not. block: seconds of a run, of so many."""
    if setting.dry:
        return block(1)
    block(3)
    with turn():
        runs = max(1, math.ceil(BLOCK / max(block(3), 1e-7)))
        found, end = [], time.perf_counter() + setting.seconds
        while len(found) < LEAST_BLOCKS or time.perf_counter() < end:
            found.append(block(runs))
    return statistics.median(found)

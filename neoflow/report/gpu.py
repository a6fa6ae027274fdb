"""What this machine's GPU is and reaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from neoflow import codegen, devices
from neoflow.architectures import ARCHITECTURES, architecture, gpu_target
from neoflow.errors import NeoflowError
from neoflow.roofs import Level, Roofs
from neoflow.runtime.device.cuda import Cuda
from neoflow.target import Target

COPY_BYTES = 1 << 28
LAUNCHES = 200
FMA, COPY = "float32 multiply-adds", "copy"
"""Names of ceilings."""


@dataclass(frozen=True)
class GpuReport:
    """compilers: what makes code, with versions. compiles: the architectures that it is made for here.

    gpu, driver: None where there is none, for the reason in `missing`. measured: by name, operations or bytes a second,
    or seconds a launch.
    """

    compilers: tuple[str, ...]
    compiles: tuple[str, ...]
    gpu: str | None
    driver: str | None
    memory_bytes: int
    measured: dict[str, float]
    missing: str | None

    def lines(self) -> dict[str, str]:
        """As `neoflow doctor` prints it."""
        made = f"{', '.join(self.compilers) or 'no compiler'}; code for {', '.join(self.compiles) or 'none'}"
        if self.gpu is None:
            return {"CUDA": made, "GPU": f"none: {self.missing}"}
        rows = {"CUDA": made, "GPU": f"{self.gpu}, {self.memory_bytes / 2**30:.1f} GiB, driver {self.driver}"}
        rows["GPU reaches"] = ", ".join(f"{_said(name, v)}" for name, v in self.measured.items()) or "not measured"
        return rows


def _said(name: str, value: float) -> str:
    if "launch" in name:
        return f"{name} {value * 1e6:.2f} us"
    return f"{name} {value / 1e12:.2f} {'TB/s' if name == 'copy' else 'TFLOP/s'}"


def examine_gpu(measure: bool = True) -> GpuReport:
    """Look at this machine's CUDA compilers and its GPU; measure the GPU, if there is one, for about a second."""
    compilers = tuple(codegen.cuda_compilers())
    compiles = tuple(name for name in ARCHITECTURES if compilers and _compiles(name))
    try:
        place = devices.gpu()
    except NeoflowError as error:
        return GpuReport(compilers, compiles, None, None, 0, {}, str(error))
    here = place.driver.gpu
    measured, missing = {}, None
    if measure:
        try:
            measured = measure_gpu(place)
        except NeoflowError as error:
            missing = str(error)
    driver = f"{here.driver // 1000}.{here.driver % 1000 // 10}"
    return GpuReport(compilers, compiles, f"{here.name} ({here.architecture})", driver, here.nbytes, measured, missing)


def _compiles(name: str) -> bool:
    try:
        codegen.cubin(_NOTHING, gpu_target("cuda", name))
    except NeoflowError:
        return False
    return True


_NOTHING = 'extern "C" __global__ void nothing() {}'


def measure_gpu(place: Cuda, repeats: int = 5) -> dict[str, float]:
    """The ceilings of a GPU, the best of some runs: operations or bytes a second, seconds a launch."""
    driver, target = place.driver, gpu_target("cuda", place.driver.gpu.architecture)
    library = place.load(codegen.ceilings_module(target))
    threads = codegen.CEILING_THREADS
    blocks = driver.gpu.processors * (architecture(target).threads // threads)
    out = place.allocate((blocks * threads,), "float32")
    found: dict[str, float] = {}
    for c in codegen.ceilings(target):
        function = library.address(c.symbol)
        if c.nbytes:
            count = max(1, min(COPY_BYTES, driver.free_bytes() // 4) // int(c.nbytes * threads // 2))
            nbytes = int(count * threads * c.nbytes // 2)
            arrays = [place.allocate((nbytes // 4,), "float32") for _ in range(2)]
            for array in arrays:
                driver.clear(array.address, nbytes)
            seconds = _best(place, partial(_launch, place, function, count, [a.address for a in arrays]), repeats)
            found[c.name] = count * threads * c.nbytes / seconds
        elif c.operations:
            seconds = _best(place, partial(_launch, place, function, blocks, [out.address]), repeats)
            found[c.name] = blocks * threads * c.operations / seconds
        else:
            found[c.name] = _best(place, partial(_launches, place, function, out.address), repeats) / LAUNCHES
            driver.begin_graph()
            try:
                _launches(place, function, out.address)
            finally:
                graph = driver.end_graph()
            found["launch in a graph"] = _best(place, partial(driver.run_graph, graph), repeats) / LAUNCHES
            driver.free_graph(graph)
    return found


def gpu_roofs(target: Target, measured: Mapping[str, float]) -> Roofs:
    """What a GPU reaches, by `measure_gpu`, or by its board's data sheet where nothing was measured."""
    found = architecture(target)
    flops, bandwidth = measured.get(FMA, found.flops), measured.get(COPY, found.bandwidth)
    origin = "measured just after" if measured else f"by the data sheet of its kind, {found.board}"
    return Roofs(flops / 1e9, (Level("memory", None, bandwidth / 1e9),), origin)


def _launch(place: Cuda, function: int, blocks: int, arguments: list[int]) -> None:
    place.driver.launch(function, blocks, codegen.CEILING_THREADS, 0, arguments)


def _launches(place: Cuda, function: int, address: int) -> None:
    for _ in range(LAUNCHES):
        _launch(place, function, 1, [address])


def _best(place: Cuda, run: Callable[[], None], repeats: int) -> float:
    """Seconds of a run, the fastest of some after one that counts not."""
    driver, found = place.driver, np.inf
    for n in range(repeats + 1):
        first = driver.event()
        run()
        last = driver.event()
        seconds = driver.seconds(first, last)
        found = min(found, seconds) if n else found
        driver.free_event(first)
        driver.free_event(last)
    return float(found)

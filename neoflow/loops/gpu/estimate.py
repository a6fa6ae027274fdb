"""The time of a schedule on a GPU by arithmetic: floors, occupancy, the last wave of blocks. No GPU has confirmed it.

    floors      operations over the peak;  bytes, each tensor once, over the bandwidth;  a launch
    estimate    launches + the longer of operations / peak and bytes / bandwidth, each over the part of the device that
                its warps keep busy, times what the last wave of blocks, or a lack of them, adds

It says which of two schedules is far worse and what bounds a kernel; it is no measurement. Peaks are of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neoflow.architectures import Architecture, architecture
from neoflow.errors import ScheduleError
from neoflow.expr import dtype as dt
from neoflow.loops.gpu import contraction, map, reduction, rows, scatter, tensor_core, wgmma
from neoflow.loops.gpu.family import SIDES
from neoflow.loops.gpu.fragments import peak_share
from neoflow.loops.gpu.occupancy import Block, Occupancy, occupancy
from neoflow.loops.knob import Chosen
from neoflow.loops.problem import Measures
from neoflow.loops.schedule import Schedule
from neoflow.target import Target

LAUNCH_SECONDS = 2e-6
"""From the end of a kernel to the beginning of the next in a CUDA graph and back, by order of magnitude."""
MEMORY_WARPS = 24
"""Warps of a processor whose loads keep memory busy: 4.8e12 bytes a second for 600 ns, by 132 processors and 32 threads
of 32 bytes each."""
ARITHMETIC_WARPS = 16
"""Warps of a processor that start an operation in every cycle: 4 schedulers, each operation waits 4 cycles."""
TILE_WARPS = 8
"""The same with many accumulators a thread: two a scheduler."""


@dataclass(frozen=True)
class Form:
    """Of a template. warps: of a processor that keep its arithmetic busy. peak: operations a second, of which a
    multiply-add is two; share: the part of it that a schedule's type of numbers has."""

    block: Callable[[Any, Target, Chosen], Block]
    measures: Callable[[Any, Target, Chosen], Measures]
    warps: int
    peak: Callable[[Architecture], float]
    share: Callable[[Any, Chosen], float] = lambda *_: 1.0


@dataclass(frozen=True)
class Estimate:
    """Of all launches of a kernel; blocks: of the first. floor, seconds: what it takes at least, and about."""

    blocks: int
    block: Block
    occupancy: Occupancy
    launches: int
    floor: float
    seconds: float

    def __str__(self) -> str:
        launches = f"{self.launches} launches, " if self.launches > 1 else ""
        return (
            f"{launches}{self.blocks} blocks x {self.block.threads} threads, {self.block.shared_bytes} shared bytes, "
            f"{self.occupancy}, floor {self.floor * 1e6:.1f} us, estimate {self.seconds * 1e6:.1f} us"
        )


def estimate(problem: Any, schedule: Schedule, target: Target) -> Estimate:
    """Of a problem's kernel by a schedule that is legal for the target. Raises `ScheduleError` for a template of a
    CPU."""
    form = FORMS.get(schedule.template)
    if form is None:
        raise ScheduleError(f"the time of template {schedule.template!r} is not estimated; of {', '.join(FORMS)} it is")
    a, found = architecture(target), form.measures(problem, target, schedule)
    knobs = dict(schedule.knobs)
    block, splits = form.block(problem, target, schedule), int(knobs.get("splits", 1))
    makes_maps = any(knobs.get(f"{side}_bulk") for side in SIDES)
    launches = 1 + makes_maps + bool(splits > 1 or knobs.get("atomics"))
    return of_measures(found, block, a, form, splits, launches, form.share(problem, schedule))


def of_measures(
    m: Measures, block: Block, a: Architecture, form: Form, splits: int = 1, launches: int = 1, share: float = 1.0
) -> Estimate:
    """The arithmetic. splits: parts of a sum, which a second launch adds. share: of the peak."""
    here = occupancy(block, a)
    blocks = max(1, int(m.tasks))
    arithmetic, memory = m.operations / (form.peak(a) * share), (m.read + m.written) / a.bandwidth
    on_each = blocks / a.processors
    resident = min(max(1, here.blocks), math.ceil(on_each)) * block.warps
    late = math.ceil(on_each) / on_each
    everywhere = min(resident, on_each * block.warps)
    parts = 2 * splits * m.written / a.bandwidth if splits > 1 else 0.0
    loading = (late if on_each >= 1 else 1.0) / min(1.0, everywhere / MEMORY_WARPS)
    work = max(arithmetic * late / min(1.0, resident / form.warps), (memory + parts) * loading)
    floor = max(arithmetic, memory, LAUNCH_SECONDS)
    return Estimate(blocks, block, here, launches, floor, launches * LAUNCH_SECONDS + work)


def _single(a: Architecture) -> float:
    """Operations that are no multiply-adds, a second."""
    return a.flops / 2


def _share(p: Any, k: Chosen) -> float:
    """Of the peak of tensor cores."""
    return peak_share(dt.itemsize(tensor_core.element(p, k)))


FORMS: dict[str, Form] = {
    "gpu_map": Form(map.block, map.measures, ARITHMETIC_WARPS, _single),
    "gpu_reduction": Form(reduction.block, reduction.measures, ARITHMETIC_WARPS, _single),
    "gpu_rows": Form(rows.block, rows.measures, ARITHMETIC_WARPS, _single),
    "gpu_scatter": Form(scatter.block, scatter.measures, ARITHMETIC_WARPS, _single),
    "gpu_tensor_core": Form(
        tensor_core.FAMILY.block,
        tensor_core.FAMILY.measures,
        TILE_WARPS,
        lambda a: a.tensor_flops,
        _share,
    ),
    "gpu_wgmma": Form(wgmma.FAMILY.block, wgmma.FAMILY.measures, TILE_WARPS, lambda a: a.tensor_flops, _share),
    "gpu_contraction": Form(contraction.FAMILY.block, contraction.FAMILY.measures, TILE_WARPS, lambda a: a.flops),
}
"""By template."""

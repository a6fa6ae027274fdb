"""What a template gives: phases one after the other, each a number of tasks in any order, and the scratch they use.

A phase is a parallel region on a CPU and a launch on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import nested, points
from neoflow.expr.ir import Axis

Env = dict[Axis, emit.Value]
TASKS_A_THREAD = 64
"""Tasks that are left for each thread where loops are taken into them: when they are equal, the last one to finish is
late by a sixtieth at most."""


@dataclass(frozen=True)
class Phase:
    """`body(task)` for every task below `tasks`; they write apart from each other where `is_parallel`. is_streamed:
    they store past the caches. loops: all of it as loops, where that is not one over the tasks."""

    tasks: int
    body: Callable[[emit.Value], list]
    is_parallel: bool = False
    is_streamed: bool = False
    loops: Callable[[], list] | None = None

    def serial(self) -> list:
        """Statements of all tasks in order."""
        return self.loops() if self.loops is not None else emit.loop(self.tasks, self.body, "task")


def phase_of(axes: Sequence[Axis], body: Callable[[Env], list], is_parallel: bool, is_streamed: bool = False) -> Phase:
    """`body` at every point of the axes' product, each a task."""
    total = math.prod(a.extent for a in axes)
    return Phase(total, lambda number: points(axes, number, body), is_parallel, is_streamed)


def phase_over(
    axes: Sequence[Axis], body: Callable[[Env], list], threads: int, is_parallel: bool, is_streamed: bool = False
) -> Phase:
    """`body` at every point of the axes' product: as many of the last ones as leave each thread enough tasks are loops
    inside of a task, so that a short row is no task of its own, which divides to find out where it is.

        for task in 8192 x 16: c, p = task / 16, task % 16; row(c, p)    ->    for c in 8192: for p in 16: row(c, p)
    """
    outer, inner, at = _tasks_and_loops(axes, TASKS_A_THREAD * threads if is_parallel else 1)

    def task(number: emit.Value) -> list:
        return points(outer, number, lambda env: nested(inner, env, lambda e: body(at(e))))

    total = math.prod(a.extent for a in outer)
    return Phase(total, task, is_parallel, is_streamed, lambda: nested(list(axes), {}, body))


def _tasks_and_loops(axes: Sequence[Axis], least: int) -> tuple[list[Axis], list[Axis], Callable[[Env], Env]]:
    """The axes of tasks, at least so many where there are, and those of loops inside; and where the axes are by these.

    An axis is cut in two where its divisors allow that.
    """
    outer, inner = [*axes], list[Axis]()
    while outer and math.prod(a.extent for a in outer[:-1]) >= least:
        inner.insert(0, outer.pop())
    if not outer:
        return outer, inner, lambda env: env
    cut = outer[-1]
    most = cut.extent * math.prod(a.extent for a in outer[:-1]) // least
    steps = max((n for n in range(1, min(most, cut.extent) + 1) if cut.extent % n == 0), default=1)
    if steps == 1:
        return outer, inner, lambda env: env
    high, low = Axis(-11, cut.extent // steps, "high"), Axis(-12, steps, "low")

    def at(env: Env) -> Env:
        return {**env, cut: env[high] * emit.integer(steps) + env[low]}

    return [*outer[:-1], high], [low, *inner], at


@dataclass(frozen=True)
class Scratch:
    """Memory that a kernel needs while it runs: one piece for all of its tasks, or one for each thread."""

    buffer: tirx.Buffer
    is_shared: bool


@dataclass(frozen=True)
class Phases:
    """The phases of a kernel in order, and its scratch."""

    phases: tuple[Phase, ...]
    scratch: tuple[Scratch, ...] = ()

"""What a template gives: phases one after the other, each a number of tasks in any order, and the scratch they use.

A phase is a parallel region on a CPU and a launch on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.tir import emit


@dataclass(frozen=True)
class Phase:
    """`body(task)` for every task below `tasks`; they write apart from each other where `is_parallel`. is_streamed:
    they store past the caches."""

    tasks: int
    body: Callable[[emit.Value], list]
    is_parallel: bool = False
    is_streamed: bool = False

    def serial(self) -> list:
        """Statements of all tasks in order."""
        return emit.loop(self.tasks, self.body, "task")


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

"""Steps of this process timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence


def measure(tasks: Sequence[Callable[[], object]], seconds: float, block: int = 5) -> list[float]:
    """Median milliseconds of each task, run in turn in blocks; the first call of a block does not count.

    A block's first call still shares the cores with the threads of the task before, which wait for work actively.
    """
    samples: list[list[float]] = [[] for _ in tasks]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[0]) < 3 * block:
        for task, found in zip(tasks, samples, strict=True):
            task()
            for _ in range(block):
                start = time.perf_counter()
                task()
                found.append(time.perf_counter() - start)
    return [1e3 * statistics.median(s) for s in samples]

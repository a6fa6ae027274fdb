"""What this machine reaches: arithmetic in registers, bandwidth of each level of memory, time between kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from neoflow import codegen
from neoflow.code import Code
from neoflow.devices import device
from neoflow.expr import dsl
from neoflow.graph import make_graph
from neoflow.loops import default_schedule
from neoflow.measure.build import Built, build, load
from neoflow.partition import partition
from neoflow.roofs import Level, Roofs
from neoflow.runtime.device import Launch
from neoflow.runtime.executor import run_kernel
from neoflow.target import Target

BLOCK_BYTES = 1 << 24
"""Read and written by a block of calls: few, as a run without a disturbance is found among many."""
MEMORY_BYTES = 1 << 28
"""Of arrays that lie in memory, where the last cache is smaller."""
LEAST_BYTES, SHARED_BYTES = 128, tuple(1 << n for n in range(14, 21))
"""Of arrays of a vector each, and of some among which are the smallest that threads share."""


def best_seconds(run: Callable[[], object], seconds: float = 0.8) -> float:
    """The fastest of the runs in some time: what is reached when nothing else disturbs."""
    run()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def fma_gflops(target: Target, seconds: float = 0.8) -> float:
    """Billions of float32 operations a second of `codegen.fma_kernel`, a multiply-add being two."""
    lowered, operations = codegen.fma_kernel(target, 200_000)
    place = device(target)
    kernel = load(place, Built(lowered.code, codegen.build([lowered], target)))
    x, y = place.allocate((target.lanes("float32"),), "float32"), place.allocate((operations // 400_000,), "float32")
    x[...] = 0.5
    return operations / best_seconds(lambda: run_kernel(place, kernel, [x, y], target.threads), seconds) / 1e9


def bandwidth_gb_s(target: Target, nbytes: int, seconds: float = 0.8) -> float:
    """Billions of bytes a second that b = a + 1 reads and writes, a and b of `nbytes` together."""
    return nbytes / call_seconds(target, nbytes, seconds) / 1e9


def start_seconds(target: Target, seconds: float = 0.8) -> float:
    """From the end of one kernel to the begin of the next, L: what the smallest kernel that threads share takes beyond
    its part of one thread's time; of one thread, a kernel of a vector or two."""
    alone = replace(target, threads=1)
    least = call_seconds(alone, LEAST_BYTES, seconds)
    sizes = (n for n in SHARED_BYTES if target.threads > 1 and _is_shared(target, n))
    if (nbytes := next(sizes, None)) is None:
        return least
    return max(least, call_seconds(target, nbytes, seconds) - call_seconds(alone, nbytes, seconds) / target.threads)


def call_seconds(target: Target, nbytes: int, seconds: float = 0.8) -> float:
    """Of a call among others of b = a + 1, a and b of `nbytes` together."""
    place, built = device(target), _increment(target, nbytes // 8)
    kernel = load(place, built)
    a, b = place.allocate((nbytes // 8,), "float32"), place.allocate((nbytes // 8,), "float32")
    a[...] = 1.0
    calls = max(1, BLOCK_BYTES // nbytes)
    table = np.array([place.address(a), place.address(b)], np.int64)
    launches = [
        Launch(address, 0, entry.tasks, entry.is_parallel, arguments=2)
        for _ in range(calls)
        for entry, address in zip(kernel.code.entries, kernel.addresses, strict=True)
    ]
    block = place.record(launches, table, place.status(0), target.threads)
    return best_seconds(lambda: place.launch(block), seconds) / calls


def _increment(target: Target, count: int) -> Built:
    """The kernel b = a + 1 of so many elements."""
    a = dsl.placeholder((count,), name="a")
    (call,) = partition(make_graph([dsl.compute((count,), lambda i: a[i] + 1.0)], [a])).calls
    built = build(call.subgraph, default_schedule(call.subgraph, target), target)
    assert built.code == Code(built.code.entries)  # no scratch, no fault
    return built


def _is_shared(target: Target, nbytes: int) -> bool:
    return any(e.is_parallel for e in _increment(target, nbytes // 8).code.entries)


def _cache_bytes(index: int) -> int:
    """A cache of this machine, 0 where there is none: 0 of data of the first level, 2 and 3 of the second and third."""
    try:
        with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as file:
            return int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


def measure_roofs(target: Target, seconds: float = 0.3) -> Roofs:
    """Measure this machine's CPU, each of its roofs for some seconds. Raises what the compiler raises."""
    l1, l2, l3 = _cache_bytes(0), target.l2_bytes * target.threads, _cache_bytes(3)
    levels = [Level("memory", None, bandwidth_gb_s(target, max(MEMORY_BYTES, 4 * l3), seconds))]
    for name, nbytes in (("L3", l3 if l3 > l2 else 0), ("L2", l2)):
        if nbytes:  # what holds less is no slower: where it looks so, something disturbed
            levels.insert(0, Level(name, nbytes, max(levels[0].gb_s, bandwidth_gb_s(target, nbytes // 2, seconds))))
    if l1:  # what fits one is one thread's
        own = target.threads * bandwidth_gb_s(replace(target, threads=1), l1 // 2, seconds)
        levels.insert(0, Level("L1", l1 * target.threads, max(levels[0].gb_s, own)))
    return Roofs(fma_gflops(target, seconds), tuple(levels), start=start_seconds(target, seconds))


@lru_cache(maxsize=4)
def roofs_of(target: Target) -> Roofs | None:
    """Those of this machine's CPU, measured once a process; of a GPU None: its data sheet says them."""
    return measure_roofs(target, 0.1) if target.device == "cpu" else None

"""Where a step's time goes: each distinct kernel's time, work and traffic, against what the machine reaches."""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.commands.doctor import bandwidth_gb_s, fma_gflops
from neoflow.expr.count import count_ops
from neoflow.pipeline import Compiled, resolve_target
from neoflow.report.roofline import KernelRow, Level, Roofs
from neoflow.runtime.function import Function, KernelTime
from neoflow.runtime.parameters import get_value, set_value
from neoflow.target import Target


def _l3_bytes() -> int:
    """The third-level cache, 0 where there is none."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size") as file:
            return int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


def measure_roofs(target: Target | None = None, seconds: float = 0.3) -> Roofs:
    """Measure this machine, each of its roofs for some seconds. Raises what the compiler raises."""
    target = resolve_target("cpu") if target is None else target
    l2, l3 = target.l2_bytes * target.threads, _l3_bytes()
    levels = [Level("memory", None, bandwidth_gb_s(max(1 << 28, 4 * l3), seconds))]
    for name, nbytes in (("L3", l3 if l3 > l2 else 0), ("L2", l2)):
        if nbytes:  # what holds less is no slower: where it looks so, something disturbed
            levels.insert(0, Level(name, nbytes, max(levels[0].gb_s, bandwidth_gb_s(nbytes // 2, seconds))))
    return Roofs(fma_gflops(target, seconds), tuple(levels))


def profile(step: Function, arrays: Sequence[object], seconds: float = 1.0) -> list[KernelTime]:
    """Median time of every call over about `seconds` seconds of steps, after which the parameters are as before."""
    kept = [get_value(p) for p in step.parameters]
    try:
        once = sum(k.seconds for k in step.profile(*arrays, runs=2))
        return step.profile(*arrays, runs=max(3, min(50, int(seconds / max(once, 1e-6)))))
    finally:
        for p, value in zip(step.parameters, kept, strict=True):
            set_value(p, value)


def kernel_rows(compiled: Compiled, times: Sequence[KernelTime]) -> list[KernelRow]:
    """A row for each distinct kernel, the longest first. times: of the plan's calls, in order."""
    total = sum(t.seconds for t in times) or 1.0
    rows = []
    for number, kernel in enumerate(compiled.kernels):
        calls = [n for n, call in enumerate(compiled.plan.calls) if call.kernel == number]
        inputs, outputs = kernel.subgraph.tensors()
        touched = sum(t.nbytes for t in (*inputs, *outputs))
        seconds = sum(times[n].seconds for n in calls)
        rows.append(
            KernelRow(
                number=number,
                names=tuple(times[n].name for n in calls),
                seconds=seconds,
                share=seconds / total,
                flops=len(calls) * count_ops(outputs).flops,
                nbytes=len(calls) * touched,
                touched=touched,
                schedule=str(kernel.schedule),
                text=str(kernel.subgraph),
            )
        )
    return sorted(rows, key=lambda r: -r.seconds)

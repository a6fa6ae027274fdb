"""Where a step's time goes: each distinct kernel's time, work and traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neoflow.expr.count import count_ops
from neoflow.pipeline import Compiled
from neoflow.report.roofline import KernelRow, Work
from neoflow.runtime.bound import KernelTime
from neoflow.runtime.function import Function
from neoflow.runtime.parameters import get_value, set_value


def profile(step: Function, arrays: Sequence[object], seconds: float = 1.0) -> list[KernelTime]:
    """Median time of every call over about `seconds` seconds of steps, after which the parameters are as before."""
    kept = [get_value(p) for p in step.parameters]
    try:
        once = sum(k.seconds for k in step.profile(*arrays, runs=2))
        return step.profile(*arrays, runs=max(3, min(50, int(seconds / max(once, 1e-6)))))
    finally:
        for p, value in zip(step.parameters, kept, strict=True):
            set_value(p, value)


def kernel_work(compiled: Compiled) -> list[Work]:
    """The work of each distinct kernel, in the order of their numbers; calls: in every run of the program."""
    found, each = [], compiled.plan.calls[compiled.plan.prepared :]
    for number, kernel in enumerate(compiled.kernels):
        inputs, outputs = kernel.subgraph.tensors()
        calls = sum(call.kernel == number for call in each)
        found.append(Work(calls, count_ops(outputs).flops, sum(t.nbytes for t in (*inputs, *outputs))))
    return found


def kernel_rows(compiled: Compiled, times: Sequence[KernelTime]) -> list[KernelRow]:
    """A row for each distinct kernel, the longest first. times: of the plan's calls, in order.

    Calls that are prepared (once, until parameters change) are of no step: their rows have no calls and no time.
    """
    plan = compiled.plan
    total = sum(t.seconds for t in times[plan.prepared :]) or 1.0
    labels, rows = _labels(compiled), []
    for number, (kernel, work) in enumerate(zip(compiled.kernels, kernel_work(compiled), strict=True)):
        calls = [n for n, call in enumerate(plan.calls) if call.kernel == number and n >= plan.prepared]
        seconds = sum(times[n].seconds for n in calls)
        rows.append(
            KernelRow(
                number=number,
                label=labels[number],
                place=_place(compiled, calls),
                names=tuple(times[n].name for n in calls),
                seconds=seconds,
                share=seconds / total,
                flops=work.calls * work.flops,
                nbytes=work.calls * work.nbytes,
                touched=work.nbytes,
                schedule=str(kernel.schedule),
                text=str(kernel.subgraph),
            )
        )
    return sorted(rows, key=lambda r: -r.seconds)


def _labels(compiled: Compiled) -> list[str]:
    """A name for each distinct kernel: of its first call; where kernels share that, with its number."""
    first = ["" for _ in compiled.kernels]
    for call in reversed(compiled.plan.calls):
        if call.kernel < len(first):  # what comes after those another library computes
            first[call.kernel] = call.name
    return [name if name and first.count(name) == 1 else f"{name or 'kernel'} #{n}" for n, name in enumerate(first)]


def _place(compiled: Compiled, calls: Sequence[int]) -> str:
    """Where the user wrote what these calls compute, or else what they read."""
    for n in calls:
        for t in (*compiled.calls[n].outputs, *compiled.calls[n].inputs):
            if t.where is not None:
                file, line = t.where
                return f"{Path(file).name}:{line}"
    return ""

"""A step's kernels beside their floors: what each spends above it, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.pipeline import Compiled
from neoflow.report.kernels import kernel_rows
from neoflow.report.roofline import KernelRow
from neoflow.roofs import Roofs
from neoflow.runtime.bound import KernelTime

SHORT = 5e-6
"""Seconds of a call below which starting it and waiting for all threads is much of it."""


@dataclass(frozen=True)
class KernelGap:
    """One distinct kernel of a step: all of its calls, in seconds. limit: what it waits for."""

    label: str
    calls: int
    seconds: float
    floor: float
    limit: str
    schedule: str

    @property
    def gap(self) -> float:
        return self.seconds - self.floor


def kernel_gaps(compiled: Compiled, times: Sequence[KernelTime], roofs: Roofs) -> tuple[KernelGap, ...]:
    """Of every kernel that is called, the longest first. times: of the plan's calls, in order."""
    return tuple(
        KernelGap(r.label, len(r.names), r.seconds, r.floor(roofs), limit(r, roofs), r.schedule)
        for r in kernel_rows(compiled, times)
        if r.names
    )


def limit(row: KernelRow, roofs: Roofs) -> str:
    """In words, what a kernel waits for, as far as its roofs tell."""
    calls = max(1, len(row.names))
    roof, level = row.roof(roofs), roofs.level(row.touched)
    if row.seconds / calls < SHORT:
        return f"{row.seconds / calls * 1e6:.1f} us a call: its start and the end of all threads"
    if roof == "compute":
        return f"arithmetic, at {row.gflops / roofs.gflops:.0%} of the peak"
    return f"{level.name}, at {row.gb_s / level.gb_s:.0%} of {level.gb_s:.0f} GB/s"


def gap_table(kernels: Sequence[KernelGap], seconds: float, shown: int) -> list[str]:
    """What a step of so many seconds spends beyond its floors, the kernel with most of it first."""
    busy = sum(k.seconds for k in kernels)
    over = max(seconds - sum(k.floor for k in kernels), 1e-12)
    rest = sorted(kernels, key=lambda k: -k.gap)
    lines = [
        "| kernel | calls | us | floor us | share | of what is beyond | what limits it |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for k in rest[:shown]:
        cells = [f"{k.calls}", f"{1e6 * k.seconds:.0f}", f"{1e6 * k.floor:.0f}", f"{k.floor / k.seconds:.0%}"]
        lines.append(f"| {k.label} | " + " | ".join([*cells, f"{k.gap / over:.0%}", k.limit]) + " |")
    others = rest[shown:]
    if others:
        total, floor = (sum(getattr(k, n) for k in others) for n in ("seconds", "floor"))
        cells = [f"{sum(k.calls for k in others)}", f"{1e6 * total:.0f}", f"{1e6 * floor:.0f}"]
        cells += [f"{floor / total:.0%}", f"{(total - floor) / over:.0%}", ""]
        lines.append(f"| {len(others)} others | " + " | ".join(cells) + " |")
    between = seconds - busy
    lines.append(f"| between the kernels | | {1e6 * between:.0f} | | | {between / over:.0%} | calls, and caches left |")
    return lines

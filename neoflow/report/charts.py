"""Drawings of the report, as SVG text without scripts: curves, and memory over a step's calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from neoflow.expr import dtype as dt
from neoflow.runtime.plan import Plan

_WIDTH, _HEIGHT = 500, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 26
_THIN = 0.02
"""The part of the arena below which a buffer is drawn without an edge, which would hide it."""
_LOG_FROM = 30.0
"""A curve whose largest value is so many times its smallest has a logarithmic axis."""


@dataclass(frozen=True)
class Axis:
    """Values from low to high onto pixels from start to end; ticks are values."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(v) for v in (self.low, self.high, value)) if self.is_log else (
            self.low, self.high, value
        )  # fmt: skip
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def nice_ticks(low: float, high: float, about: int = 5) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten in [low, high], `about` so many."""
    span = high - low
    if span <= 0:
        return (low,)
    step = 10 ** math.floor(math.log10(span / about))
    step *= next(m for m in (1, 2, 5, 10) if span / (m * step) <= about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(n * step for n in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten in [low, high]; powers alone where that is too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        ticks = tuple(m * 10.0**p for p in powers for m in digits if low <= m * 10.0**p <= high)
        if len(ticks) <= 8:
            break
    return ticks


def buckets(values: Sequence[tuple[int, float]], count: int) -> list[tuple[float, float]]:
    """At most `count` points: means of runs of neighbours."""
    size = max(1, math.ceil(len(values) / count))
    runs = [values[n : n + size] for n in range(0, len(values), size)]
    return [(sum(x for x, _ in r) / len(r), sum(y for _, y in r) / len(r)) for r in runs]


def smoothed(values: Sequence[tuple[int, float]], reach: int) -> list[tuple[float, float]]:
    """Each value's mean with its `reach` neighbours on both sides.

    At the beginning, where much changes, with as many on both as there are before; at the end with those there are.
    """
    sums = [0.0]
    for _, y in values:
        sums.append(sums[-1] + y)
    found = []
    for n, (x, _) in enumerate(values):
        r = min(reach, n)
        end = min(n + r + 1, len(values))
        found.append((float(x), (sums[end] - sums[n - r]) / (end - n + r)))
    return found


def _thin(points: list[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    size = max(1, math.ceil(len(points) / count))
    return points[::size] + (points[-1:] if (len(points) - 1) % size else [])


def _path(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return "M" + "L".join(f"{x(a):.1f},{min(max(y(b), _TOP), _HEIGHT - _BOTTOM):.1f}" for a, b in points)


def line_chart(
    label: str,
    values: Sequence[tuple[int, float]],
    say: Callable[[float], str],
    *,
    top: float | None = None,
    level: tuple[str, float] | None = None,
    epoch: int | None = None,
    beside: tuple[str, Sequence[tuple[int, float]]] | None = None,
    may_be_log: bool = True,
    by: str = "step",
) -> str:
    """Values by step, counted from 1, or by what else is counted: each faint, their moving mean strong; a title on
    hover.

    say: prints a value. top: the axis goes from 0 to it. level: a dashed line with its name. epoch: steps in one.
    beside: another curve with its name, of as few points as a validation an epoch, or of another run. may_be_log:
    whether values that go over orders of magnitude are drawn by their logarithms.
    """
    named, others = beside or ("", ())
    others = [(s, v) for s, v in others if math.isfinite(v)]
    steps = [s for s, _ in (*values, *others)]
    numbers = [v for _, v in (*values, *others) if math.isfinite(v)] or [0.0]
    reach = len(values) // 40
    mean = smoothed(values, reach)
    low, high = min(numbers), max(numbers)
    is_log = may_be_log and top is None and low > 0 and high / low > _LOG_FROM
    if is_log:
        low = max(low, min(v for _, v in mean) / 3)  # a single lucky batch does not stretch the axis
        y = Axis(low, high, _HEIGHT - _BOTTOM, _TOP, log_ticks(low, high), True)
    else:
        high = top or (high if high > 0 else 1.0) * 1.02
        low = min(0.0, low)
        y = Axis(low, high, _HEIGHT - _BOTTOM, _TOP, nice_ticks(low, high))
    begin, end = min(steps), max(*steps, min(steps) + 1)
    x = Axis(begin, end, _LEFT, _WIDTH - _RIGHT, nice_ticks(begin, end))
    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)} by {by}">']
    for tick in y.ticks:
        parts.append(f'<path class="grid" d="M{_LEFT},{y(tick):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{say(tick)}</text>')
    for tick in x.ticks:
        parts.append(f'<path class="grid" d="M{x(tick):.1f},{_TOP}V{_HEIGHT - _BOTTOM}"/>')
        if x(tick) < _WIDTH - _RIGHT - 34:
            parts.append(
                f'<text x="{x(tick):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{tick:,.0f}</text>'
            )
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="end">{by}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT},{_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>')
    if reach:
        parts.append(f'<path class="raw" d="{_path(buckets(values, 500), x, y)}"/>')
    parts.append(f'<path class="mean" d="{_path(_thin(mean, 500), x, y)}"/>')
    if level is not None:
        at = y(level[1])
        under = -8 if at > _HEIGHT - _BOTTOM - 40 else 22
        parts.append(f'<path class="level" d="M{_LEFT},{at:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text class="level" x="{_WIDTH - _RIGHT - 6}" y="{at + under:.1f}" text-anchor="end">'
            f"{escape(level[0])} {say(level[1])}</text>"
        )
    if others:
        second = smoothed(others, len(others) // 40)
        parts.append(f'<path class="beside" d="{_path(_thin(second, 500), x, y)}"/>')
        if len(others) <= 100:
            parts += [
                f'<circle class="beside" cx="{x(s):.1f}" cy="{min(max(y(v), _TOP), _HEIGHT - _BOTTOM):.1f}" r="3">'
                f"<title>step {s:,.0f}: {escape(named)} {say(v)}</title></circle>"
                for s, v in others
            ]
        end_of = min(max(y(others[-1][1]), _TOP + 14), _HEIGHT - _BOTTOM - 14)
        parts.append(
            f'<text class="beside" x="{_WIDTH - _RIGHT - 6}" y="{end_of - 8:.1f}" text-anchor="end">'
            f"{escape(named)}</text>"
        )
    strips = _thin(mean, 100)
    width = (_WIDTH - _RIGHT - _LEFT) / len(strips)
    for a, b in strips:
        inside = f", epoch {(int(a) - 1) // epoch + 1}" if epoch else ""
        parts.append(
            f'<g class="hover"><rect x="{x(a) - width / 2:.1f}" y="{_TOP}" width="{width:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - _TOP}"/><path d="M{x(a):.1f},{_TOP}V{_HEIGHT - _BOTTOM}"/>'
            f"<title>{by} {a:,.0f}{inside}: {escape(label)} {say(b)}</title></g>"
        )
    return "".join([*parts, "</svg>"])


def lifetimes(plan: Plan) -> dict[int, tuple[int, int]]:
    """First and last call that touch each temporary buffer; a view counts as its base."""
    found: dict[int, tuple[int, int]] = {}
    for n, call in enumerate(plan.calls):
        for number in (*call.arguments, *call.workspaces):
            buffer = plan.buffers[number]
            base = buffer.base if buffer.kind == "view" else number
            if plan.buffers[base].kind == "temporary":
                found[base] = (found.get(base, (n, n))[0], n)
    for source, _ in plan.copies:
        buffer = plan.buffers[source]
        base = buffer.base if buffer.kind == "view" else source
        if base in found:
            found[base] = (found[base][0], len(plan.calls) - 1)
    return found


def memory_map(plan: Plan) -> str:
    """Temporaries: calls from left to right, offsets in the arena from bottom to top. Empty where there are none."""
    spans = lifetimes(plan)
    if not spans or not plan.arena_bytes:
        return ""
    height, calls = 1000.0, len(plan.calls)
    rects = []
    for n, (number, (first, last)) in enumerate(spans.items()):
        b = plan.buffers[number]
        nbytes = math.prod(b.shape) * dt.itemsize(b.dtype)
        tall = height * nbytes / plan.arena_bytes
        top = height * (1 - b.offset / plan.arena_bytes) - tall
        when = f"call {first + 1}" if first == last else f"calls {first + 1} to {last + 1}"
        title = f"{b.name}: {b.dtype}{list(b.shape)}, {nbytes / 2**20:.3g} MiB at {b.offset / 2**20:.3g} MiB, {when}"
        thin = " thin" if tall < _THIN * height else ""
        rects.append(
            f'<rect class="c{n % 4}{thin}" x="{first}" y="{top:.2f}" width="{last - first + 1}" height="{tall:.2f}">'
            f"<title>{escape(title)}</title></rect>"
        )
    label = f"{len(spans)} buffers over {calls} calls"
    return (
        f'<svg class="memory" viewBox="0 0 {calls} {height:.0f}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{"".join(rects)}</svg>'
    )

"""Drawings of the benchmarks as SVG files: lines over a common axis, with a legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from neoflow.report.charts import Axis, log_ticks, nice_ticks

WIDTH, HEIGHT = 620, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
COLOURS = ("#2563a8", "#d97706", "#4b5563")
STYLE = (
    "text{font:12px sans-serif;fill:#333} .head{font-weight:600} .grid{stroke:#ddd} path{fill:none} .axis{stroke:#666}"
)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """lines: points by name, x by what `axis` says. say: prints a value of y. marks: moments on the first line, with
    names."""

    title: str
    lines: dict[str, Points]
    say: Callable[[float], str]
    is_log: bool = False
    marks: Sequence[tuple[float, str]] = ()
    axis: str = "seconds since the process began"


def drawn(panels: Sequence[Panel]) -> str:
    """Panels under each other, an SVG file."""
    height = HEIGHT * len(panels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">']
    parts.append(f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>')
    for n, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0,{n * HEIGHT})">{_panel(panel)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> str:
    values = [y for points in panel.lines.values() for _, y in points if y > 0 or not panel.is_log]
    end = max((x for points in panel.lines.values() for x, _ in points), default=1.0)
    low, high = min(values, default=0.5), max(values, default=1.0)
    if panel.is_log:
        low, high = low / 1.2, high * 1.2
        y = Axis(low, high, HEIGHT - BOTTOM, TOP, log_ticks(low, high), True)
    else:
        y = Axis(0.0, high * 1.05 or 1.0, HEIGHT - BOTTOM, TOP, nice_ticks(0.0, high * 1.05 or 1.0))
    x = Axis(0.0, end, LEFT, WIDTH - RIGHT, nice_ticks(0.0, end, 8))
    parts = [f'<text class="head" x="{LEFT}" y="18">{escape(panel.title)}</text>']
    for tick in y.ticks:
        parts.append(f'<path class="grid" d="M{LEFT},{y(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{escape(panel.say(tick))}</text>')
    for tick in x.ticks:
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{escape(panel.axis)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    for n, (name, points) in enumerate(panel.lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        if points:
            path = "M" + "L".join(f"{x(a):.1f},{y(max(b, low) if panel.is_log else b):.1f}" for a, b in points)
            parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT - 140 * n}" y="18" text-anchor="end" style="fill:{colour}">{escape(name)}</text>'
        )
    for at, name in panel.marks:
        parts.append(
            f'<path d="M{x(at):.1f},{TOP}V{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="3 3"/>'
            f'<text x="{x(at) + 4:.1f}" y="{TOP + 12}">{escape(name)}</text>'
        )
    return "\n".join(parts)

"""The model table as drawings: how many times faster neoflow is than each peer, a row of bars a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from benchmarks.models.cells import Cell
from neoflow.contest.contenders import PEERS
from neoflow.report.charts import Axis, log_ticks

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 170, 60, 56, 34
BAR, GAP = 7, 6
"""Pixels of a bar, and between the rows."""
COLOURS = ("#2563a8", "#7aa5d6", "#d97706", "#4b5563")
STYLE = (
    "text{font:12px sans-serif;fill:#333} .head{font-weight:600} .grid{stroke:#ddd} .one{stroke:#333;stroke-width:1.4}"
)


def drawn(title: str, cells: Sequence[Cell]) -> str:
    """Bars of neoflow's gain over each peer on a logarithmic axis, an SVG file; beyond the line at 1 it is faster."""
    gains = [g for c in cells for p in PEERS if (g := c.gain(p.key)) is not None]
    low, high = min([0.8, *gains]) / 1.1, max([2.0, *gains]) * 1.1
    height_of = len(PEERS) * BAR + GAP
    height = TOP + height_of * len(cells) + BOTTOM
    x = Axis(low, high, LEFT, WIDTH - RIGHT, log_ticks(low, high), True)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">']
    parts.append(f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>')
    parts.append(f'<text class="head" x="12" y="18">{escape(title)}</text>')
    for n, (peer, colour) in enumerate(zip(PEERS, COLOURS, strict=True)):
        parts.append(f'<rect x="{LEFT + 150 * n}" y="28" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 150 * n + 14}" y="38">{escape(peer.name)}</text>')
    for tick in x.ticks:
        parts.append(f'<path class="grid" d="M{x(tick):.1f},{TOP}V{height - BOTTOM}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{tick:g}x</text>')
    for n, cell in enumerate(cells):
        top = TOP + n * height_of
        label = f"{cell.model} b{cell.batch}"
        parts.append(f'<text x="{LEFT - 8}" y="{top + height_of / 2 + 1:.0f}" text-anchor="end">{escape(label)}</text>')
        for k, (peer, colour) in enumerate(zip(PEERS, COLOURS, strict=True)):
            gain = cell.gain(peer.key)
            if gain is None or not math.isfinite(gain):
                continue
            ends = sorted((x(1.0), x(gain)))
            place = f'x="{ends[0]:.1f}" y="{top + k * BAR}" width="{max(ends[1] - ends[0], 0.5):.1f}"'
            parts.append(f'<rect {place} height="{BAR - 1}" fill="{colour}"/>')
    parts.append(f'<path class="one" d="M{x(1.0):.1f},{TOP}V{height - BOTTOM}"/>')
    return "\n".join([*parts, "</svg>", ""])

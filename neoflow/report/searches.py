"""Searches for better schedules as a report shows them: the best time by candidates, over the floor."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from neoflow.report.charts import line_chart
from neoflow.tuning import SearchCurve

SHOWN = 24
"""Curves of a page, of the kernels whose calls have gained most."""
_US = 1e6


def searches(curves: Sequence[SearchCurve]) -> str:
    """The section of a page; empty where nothing was searched for."""
    chosen = sorted((c for c in curves if c.points), key=lambda c: -c.gain)[:SHOWN]
    if not chosen:
        return ""
    figures = "".join(
        f'<figure><figcaption>{escape(c.name)}</figcaption>{_drawn(c)}<p class="note">{escape(str(c))}</p></figure>'
        for c in chosen
    )
    left = f" The other {len(curves) - len(chosen)} gained less." if len(curves) > len(chosen) else ""
    return (
        f'<section><h2>Search</h2><div class="pair">{figures}</div><p class="note">Microseconds of a call with the '
        "best schedule so far, by candidates measured. Dashed: what no schedule gets below, by this machine's peak and "
        f"bandwidth.{left}</p></section>"
    )


def _drawn(curve: SearchCurve) -> str:
    values = [(trials, best * _US) for _, trials, best in curve.points]
    level = ("floor", curve.floor * _US) if curve.floor else None
    return line_chart("best us", values, "{:.3g}".format, level=level, may_be_log=False, by="candidate")

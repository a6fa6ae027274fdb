"""The page of a tuning: what it found, kernel by kernel, and the curves of its searches."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from neoflow.report.html import page
from neoflow.report.searches import searches
from neoflow.report.tuning import TunedKernel, TunedModel
from neoflow.tuning import SearchCurve

_HEADS = ("Kernel", "Calls", "Candidates", "Default us", "Now us", "Floor us", "of the floor's speed %", "Schedule")


def render_tuning(found: TunedModel) -> str:
    """The whole page."""
    step = ""
    if found.before_ms is not None and found.after_ms is not None:
        step = f"<br>a step: {found.before_ms:.3f} to {found.after_ms:.3f} ms"
    head = (
        f"<h1>{escape(found.model)}</h1><p>batch {found.batch}, {escape(found.mode)}, for {escape(found.target)}<br>"
        f"{found.trials} candidates in {found.seconds:.0f} s, until {escape(found.stopped)}{step}</p>"
    )
    curves = [_curve(k) for k in found.kernels if k.curve]
    return page(f"{found.model}, tuned", head, [_table(found.kernels), searches(curves)])


def _curve(kernel: TunedKernel) -> SearchCurve:
    floor = None if kernel.floor_us is None else kernel.floor_us / 1e6
    return SearchCurve(kernel.name, kernel.calls, floor, kernel.curve)


def _table(kernels: Sequence[TunedKernel]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEADS)
    body = []
    for k in kernels:
        share = f"{100 * k.floor_us / k.us:.0f}" if k.floor_us and k.us else ""
        cells = [
            f"{k.calls}",
            f"{k.trials}",
            *(f"{v:,.1f}" if v else "" for v in (k.default_us, k.us, k.floor_us)),
            share,
        ]
        row = "".join(f"<td>{c}</td>" for c in cells)
        body.append(f'<tr><th scope="row">{escape(k.name)}</th>{row}<td class="word">{escape(k.schedule)}</td></tr>')
    return (
        f'<section><h2>Kernels</h2><div class="wide"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div></section>"
    )

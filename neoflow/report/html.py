"""The report of a training run: one HTML file that needs nothing else; a script inside it sorts, no more."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from neoflow.pipeline import Compiled
from neoflow.report.charts import line_chart, memory_map
from neoflow.report.record import Curve, EpochRow, Fact, Origin, RunRecord, embedded
from neoflow.report.roofline import KernelRow
from neoflow.report.searches import searches
from neoflow.report.style import CSS, SORTING
from neoflow.roofs import Roofs
from neoflow.runtime.plan import Plan
from neoflow.text.html import framed
from neoflow.trace import Trace
from neoflow.tuning import SearchCurve

_LONGEST = 200_000
"""Characters of one stage's text that the report shows."""
_MIB = float(1 << 20)
_HEIGHT = 640
"""Pixels of a report in a notebook."""


@dataclass(frozen=True)
class Report:
    """What a report shows. test_accuracy: between 0 and 1, NaN where there is none. kernels: the longest first.
    searches: for better schedules, a curve a kernel."""

    run: RunRecord
    test_accuracy: float
    kernels: Sequence[KernelRow]
    roofs: Roofs
    compiled: Compiled
    searches: Sequence[SearchCurve] = ()

    def _repr_html_(self) -> str:
        """As notebooks show it: the page itself."""
        return framed(render(self), _HEIGHT)


def page(title: str, head: str, sections: Sequence[str], data: str = "") -> str:
    """A page of sections under a head; `data` is kept in it and not shown."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · neoflow</title><style>{CSS}</style></head>\n<body><main>"
        f"<header>{head}</header>\n"
        + "\n".join(sections)
        + f"\n</main>{data}<script>{SORTING}</script></body></html>\n"
    )


def render(report: Report) -> str:
    """The whole page."""
    run, target = report.run, report.compiled.target
    sections = [
        _facts(run.facts),
        _curves(run, report.test_accuracy),
        _epochs(run.epochs),
        _kernels(report.kernels, report.roofs, len(report.compiled.plan.calls)),
        searches(report.searches),
        _memory(report.compiled.plan),
        _stages(report.compiled.trace),
    ]
    by = _count(target.threads, "thread") if target.device == "cpu" else "a GPU"
    head = (
        f"<h1>{escape(run.model)}</h1><p>trained on {escape(run.data)} by neoflow {escape(run.origin.neoflow)}, "
        f"{escape(target.mcpu)}, {by}<br>{origin_text(run.origin)}</p>"
    )
    return page(f"{run.model} on {run.data}", head, sections, embedded(run))


def origin_text(origin: Origin) -> str:
    """Command, seed, machine and date."""
    return (
        f"<code>{escape(origin.command)}</code> · seed {origin.seed} · {escape(origin.processor)} · "
        f"{escape(origin.date)}"
    )


def write_page(path: str | os.PathLike, text: str) -> None:
    """Write a page, making its folder where there is none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _facts(facts: Sequence[Fact]) -> str:
    tiles = [
        f"<div><dt>{escape(f.name)}</dt><dd>{escape(f.value)}<small>{escape(f.note)}</small></dd></div>" for f in facts
    ]
    return f'<dl class="facts">{"".join(tiles)}</dl>'


def percent(value: float) -> str:
    """A share as people read it."""
    return f"{100 * value:.3g} %"


def is_share(curve: Curve) -> bool:
    """Whether a curve is drawn between 0 and 100 %."""
    return curve.name != "loss" and all(0 <= v <= 1 for _, v in (*curve.training, *curve.validation))


def _curves(run: RunRecord, test_accuracy: float) -> str:
    if not run.curves[0].training:
        return '<section><h2>Training</h2><p class="note">No step was made in this run.</p></section>'
    figures = []
    for curve in run.curves:
        values = curve.training or curve.validation
        if not values:
            continue
        tested = curve.name == "accuracy" and not math.isnan(test_accuracy)
        drawn = line_chart(
            curve.name,
            values,
            percent if is_share(curve) else _short,
            top=1.0 if is_share(curve) else None,
            level=("test", test_accuracy) if tested else None,
            epoch=run.epoch,
            beside=("validation", curve.validation) if curve.training and curve.validation else None,
        )
        figures.append(f"<figure><figcaption>{escape(curve.name.capitalize())}</figcaption>{drawn}</figure>")
    if run.rates:
        drawn = line_chart("learning rate", run.rates, _short, epoch=run.epoch, may_be_log=False)
        figures.append(f"<figure><figcaption>Learning rate</figcaption>{drawn}</figure>")
    how = "Faint: each step's batch. Strong: the mean of the steps around it. Orange: after each epoch, on other data."
    return f'<section><h2>Training</h2><div class="pair">{"".join(figures)}</div><p class="note">{how}</p></section>'


def _short(value: float) -> str:
    return f"{value:.3g}"


def _epochs(epochs: Sequence[EpochRow]) -> str:
    if not epochs:
        return ""
    names = list(dict.fromkeys(name for e in epochs for name, _ in e.values))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = []
    for e in epochs:
        values = dict(e.values)
        cells = "".join(f"<td>{f'{values[n]:.4g}' if n in values else ''}</td>" for n in names)
        body.append(f'<tr><th scope="row">{e.epoch}</th><td>{e.seconds:.2f}</td>{cells}</tr>')
    return (
        '<section><h2>Epochs</h2><div class="wide"><table class="epochs sortable"><thead><tr><th>Epoch</th>'
        f"<th>Time<br><i>s</i></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div></section>"
    )


def _bar(share: float, text: str, kind: str = "") -> str:
    return f'<td class="bar {kind}" style="--w:{min(1.0, share):.3f}">{text}</td>'


def _kernels(rows: Sequence[KernelRow], roofs: Roofs, calls: int) -> str:
    head = (
        "<tr><th>Kernel</th><th>Calls</th><th>Time<br><i>µs</i></th><th>Share<br><i>%</i></th>"
        "<th>Work<br><i>Mflop</i></th><th>Data<br><i>MB</i></th><th>Rate<br><i>GFLOP/s</i></th>"
        "<th>of peak<br><i>%</i></th><th>Rate<br><i>GB/s</i></th><th>of bandwidth<br><i>%</i></th><th>Roof</th></tr>"
    )
    longest = max((r.share for r in rows), default=1.0) or 1.0
    body = "".join(_kernel(row, roofs, longest) for row in rows)
    seconds, flops, nbytes = (sum(getattr(r, n) for r in rows) for n in ("seconds", "flops", "nbytes"))
    foot = ""
    if seconds:
        gflops = flops / seconds / 1e9
        foot = (
            f"<tfoot><tr><th>all</th><td>{calls}</td><td>{seconds * 1e6:,.0f}</td><td>100.0</td>"
            f"<td>{flops / 1e6:,.1f}</td><td>{nbytes / 1e6:,.2f}</td><td>{gflops:,.1f}</td>"
            f"<td>{100 * gflops / roofs.gflops:.0f}</td><td>{nbytes / seconds / 1e9:,.1f}</td>"
            "<td></td><td></td></tr></tfoot>"
        )
    levels = ", ".join(
        f"<b>{v.gb_s:.0f} GB/s</b> in {v.name}" + ("" if v.nbytes is None else f" ({v.nbytes / _MIB:.0f} MiB)")
        for v in roofs.levels
    )
    return (
        f"<section><h2>Time by kernel</h2><p>One training step is {_count(calls, 'call')} of "
        f"{_count(len(rows), 'kernel')}, {seconds * 1e3:.3g} ms together. This machine, {escape(roofs.origin)}: "
        f"<b>{roofs.gflops:.0f} GFLOP/s</b> of float32 multiply-adds in registers; {levels}.</p>"
        f'<div class="wide"><table class="kernels sortable"><thead>{head}</thead><tbody>{body}</tbody>{foot}'
        "</table></div>"
        '<p class="note">Data: each input read once, each output written once. Bandwidth: of the first level of '
        "memory that holds the data of a call. Roof: what bounds the kernel at its ratio of work to data; its bar "
        "says how near the kernel comes. A row opens to its schedule and program; a heading sorts. "
        f"{_starred(rows, roofs)}</p></section>"
    )


def _starred(rows: Sequence[KernelRow], roofs: Roofs) -> str:
    """What the stars in the table mean."""
    reasons = sorted({reason for row in rows for reason in row.above(roofs)})
    return "".join(f" *&nbsp;{escape(reason)}." for reason in reasons)


def _kernel(row: KernelRow, roofs: Roofs, longest: float) -> str:
    roof = row.roof(roofs)
    of_peak, of_bandwidth = row.gflops / roofs.gflops, row.gb_s / roofs.level(row.touched).gb_s
    shares = f"{100 * of_peak:.0f}", f"{100 * of_bandwidth:.0f}"
    names = list(dict.fromkeys(row.names))
    computes = f"computes {', '.join(names)}\n" if len(names) > 1 else ""
    above = "; ".join(row.above(roofs))
    reason = f"{above}\n" if above else ""
    floor = row.floor(roofs)
    speed = f": {floor / row.seconds:.0%} of that speed" if row.seconds else ""
    said = f"{computes}{reason}at least {floor * 1e6:,.1f} us by its roof{speed}\n{row.schedule}"
    text = f"kernel {row.number}{f', {row.place}' if row.place else ''}\n{said}\n\n{row.text}"
    mark = f' title="{escape(above)}"' if above else ""
    of_roofs = [f"<abbr{mark}>{share}*</abbr>" if int(share) > 100 else share for share in shares]
    place = f'<small class="place">{escape(row.place)}</small>' if row.place else ""
    cells = [
        f'<th scope="row" title="{escape(row.schedule)}"><details><summary>{escape(row.label)}{place}</summary>'
        "</details></th>",
        f"<td>{len(row.names)}</td><td>{row.seconds * 1e6:,.0f}</td>",
        _bar(row.share / longest, f"{100 * row.share:.1f}"),
        f"<td>{row.flops / 1e6:,.1f}</td><td>{row.nbytes / 1e6:,.2f}</td><td>{row.gflops:,.1f}</td>",
        _bar(of_peak, of_roofs[0], "roof") if roof == "compute" else f"<td>{of_roofs[0]}</td>",
        f"<td>{row.gb_s:,.1f}</td>",
        _bar(of_bandwidth, of_roofs[1], "roof") if roof != "compute" else f"<td>{of_roofs[1]}</td>",
        f'<td class="word">{roof}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>{_more(text, 11)}"


def _more(text: str, columns: int) -> str:
    """The row that a row opens to."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}\n… {len(text) - _LONGEST:,} more characters: `neoflow explain` prints them"
    return f'<tr class="more"><td colspan="{columns}"><pre>{escape(text)}</pre></td></tr>'


def _memory(plan: Plan) -> str:
    arena, live = plan.arena_bytes / _MIB, plan.live_bytes / _MIB
    over = f"{100 * (arena / live - 1):.1f} % above" if plan.arena_bytes > plan.live_bytes else "exactly"
    counts = {kind: sum(b.kind == kind for b in plan.buffers) for kind in ("parameter", "temporary")}
    picture = memory_map(plan)
    if not picture:
        return '<section><h2>Memory</h2><p class="note">A step needs no temporaries.</p></section>'
    return (
        f"<section><h2>Memory</h2><p>{_count(counts['temporary'], 'temporary buffer')} in an arena of "
        f"<b>{arena:.4g} MiB</b>, {over} the largest live set ({live:.4g} MiB), below which no plan of this "
        f"order gets. {_count(counts['parameter'], 'parameter')}, with the optimizer's state, lie outside it.</p>"
        f'<div class="map"><span class="top">{arena:.4g} MiB</span><span class="bottom">0</span>{picture}'
        f'<span class="first">call 1</span><span class="last">call {len(plan.calls)}</span></div>'
        '<p class="note">A rectangle is a buffer: its place in the arena, from the call that writes it to the last '
        "that reads it.</p></section>"
    )


def _stages(trace: Trace) -> str:
    total = sum(r.seconds for r in trace.records) or 1.0
    rows = []
    for r in trace.records:
        rows.append(
            f'<tr><th scope="row"><details><summary>{escape(r.name)}</summary></details></th>'
            f"{_bar(r.seconds / total, f'{r.seconds:.3f}')}"
            f'<td class="word">{escape(r.summary)}</td></tr>{_more(r.text(), 3)}'
        )
    before = next((r.summary for r in trace.records if r.name == "expressions"), "")
    after = next((r.summary for r in trace.records if r.name == "partition"), "")
    return (
        f"<section><h2>From graph to kernels</h2><p>Loss, gradients and updates are <b>{escape(before)}</b>, and "
        f"become <b>{escape(after)}</b>. A row opens to the whole program after that stage.</p>"
        '<div class="wide"><table class="stages"><thead><tr><th>Stage</th><th>Time<br><i>s</i></th>'
        f'<th class="word">Result</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div></section>'
    )

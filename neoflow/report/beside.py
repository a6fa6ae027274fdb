"""Two runs side by side: what they were, their curves in one drawing, and the time of every kernel in both."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from neoflow.report.charts import line_chart
from neoflow.report.html import is_share, origin_text, page, percent
from neoflow.report.record import Curve, KernelFigure, RunRecord


def render_pair(first: RunRecord, second: RunRecord) -> str:
    """The page of two runs, the first in blue, the second in orange."""
    title = first.model if first.model == second.model else f"{first.model} and {second.model}"
    head = f"<h1>{escape(title)}</h1>" + "".join(
        f'<p><b class="run {mark}">{name}</b> {escape(r.model)} on {escape(r.data)}, neoflow {escape(r.origin.neoflow)}'
        f"<br>{origin_text(r.origin)}</p>"
        for name, mark, r in (("first", "blue", first), ("second", "orange", second))
    )
    sections = [_facts(first, second), _curves(first, second), _kernels(first.kernels, second.kernels)]
    return page(f"{title}, two runs", head, sections)


def _facts(first: RunRecord, second: RunRecord) -> str:
    one, other = ({f.name: f for f in r.facts} for r in (first, second))
    rows = []
    for name in dict.fromkeys([*one, *other]):
        cells = (
            f'<td>{escape(f.value)}</td><td class="word">{escape(f.note)}</td>' if f else "<td></td><td></td>"
            for f in (one.get(name), other.get(name))
        )
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    return (
        '<section><h2>In all</h2><div class="wide"><table><thead><tr><th></th><th>first</th><th></th><th>second</th>'
        f"<th></th></tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _curves(first: RunRecord, second: RunRecord) -> str:
    figures = []
    for name, one, other in _shared(first.curves, second.curves):
        shares = all(is_share(c) for c in (one, other))
        for what, a, b in (("", one.training, other.training), ("validation ", one.validation, other.validation)):
            if a and b:
                say = percent if shares else "{:.3g}".format
                drawn = line_chart(f"{what}{name}", a, say, top=1.0 if shares else None, beside=("second", b))
                figures.append(
                    f"<figure><figcaption>{escape(f'{what}{name}'.capitalize())}</figcaption>{drawn}</figure>"
                )
    if not figures:
        return '<section><h2>Training</h2><p class="note">The runs have no values in common.</p></section>'
    return f'<section><h2>Training</h2><div class="pair">{"".join(figures)}</div></section>'


def _shared(first: Sequence[Curve], second: Sequence[Curve]) -> list[tuple[str, Curve, Curve]]:
    found = {c.name: c for c in second}
    return [(c.name, c, found[c.name]) for c in first if c.name in found]


def _kernels(first: Sequence[KernelFigure], second: Sequence[KernelFigure]) -> str:
    """Kernels are the same when their names are; the largest difference first."""
    one, other = ({k.label: k for k in kernels} for kernels in (first, second))

    def seconds(found: dict[str, KernelFigure], name: str) -> float:
        return found[name].seconds if name in found else 0.0

    names = sorted(dict.fromkeys([*one, *other]), key=lambda n: -abs(seconds(one, n) - seconds(other, n)))
    rows = []
    for name in names:
        a, b = one.get(name), other.get(name)
        place = next((k.place for k in (b, a) if k is not None), "")
        cells = "".join(
            f"<td>{k.calls}</td><td>{k.seconds * 1e6:,.0f}</td>" if k else "<td></td><td></td>" for k in (a, b)
        )
        ratio = f"{b.seconds / a.seconds:.2f}" if a and b and a.seconds else ""
        rows.append(
            f'<tr><th scope="row">{escape(name)}<small class="place">{escape(place)}</small></th>{cells}'
            f"<td>{(seconds(other, name) - seconds(one, name)) * 1e6:+,.0f}</td><td>{ratio}</td></tr>"
        )
    total = sum(k.seconds for k in first), sum(k.seconds for k in second)
    ratio = f"{total[1] / total[0]:.2f}" if total[0] else ""
    foot = (
        f"<tfoot><tr><th>all</th><td></td><td>{total[0] * 1e6:,.0f}</td><td></td><td>{total[1] * 1e6:,.0f}</td>"
        f"<td>{(total[1] - total[0]) * 1e6:+,.0f}</td><td>{ratio}</td></tr></tfoot>"
    )
    return (
        "<section><h2>Time by kernel</h2><p>Kernels of one training step; those of one name are taken for the same.</p>"
        '<div class="wide"><table class="kernels sortable"><thead><tr><th>Kernel</th><th>Calls</th>'
        "<th>first<br><i>µs</i></th><th>Calls</th><th>second<br><i>µs</i></th><th>more<br><i>µs</i></th>"
        f"<th>second / first</th></tr></thead><tbody>{''.join(rows)}</tbody>{foot}</table></div></section>"
    )

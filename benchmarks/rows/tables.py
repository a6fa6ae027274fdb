"""The table of all rows, and what they say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.rows.cases import LEAST_FLOPS, Row
from benchmarks.rows.contest import NAMES, PLAIN, Measured
from benchmarks.rows.worker import DEFAULT
from neoflow.contest.contenders import PEERS

OF_PEAK, LEAST_OF_PEAK, OF_BANDWIDTH = 0.9, 0.75, 0.8
"""Wanted: the median of large contractions, each of them; kernels that memory bounds."""
OF_PYTORCH, OF_BEST, LEAST_OF_BEST = 1.8, 1.35, 0.9
"""Wanted: of a peer's time over ours; geometric means, and each row."""
WRONG = 1e-3
"""Of the largest entry: more is no rounding."""
OTHERS = tuple(p.name for p in PEERS)


def speed(row: Measured, peer: str | None) -> float | None:
    """A peer's time over ours."""
    ratio = row.ratios.get(peer or "")
    return None if not ratio else 1 / ratio


def share(row: Measured, kind: str) -> float | None:
    """Of the peak, by operations as a plain sum has them; or of the floor that bandwidth sets: of the time that the
    kernels take, a call from Python not counted."""
    seconds = row.told.get("alone")
    if not seconds or not row.told.get("peak"):
        return None
    return row.told["operations"] / seconds / row.told["peak"] if kind == "contraction" else row.told["floor"] / seconds


def machines(found: Iterable[Measured]) -> str:
    """Which machines rows were measured on, on which days."""
    days: dict[str, dict[str, int]] = {}
    for row in found:
        on = days.setdefault(str(row.told.get("machine", "an unknown machine")), {})
        on[row.date] = on.get(row.date, 0) + 1
    said = (f"{m} ({', '.join(f'{count} rows on {d}' for d, count in sorted(on.items()))})" for m, on in days.items())
    return "; ".join(said)


def mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are there."""
    there = [math.log(v) for v in values if v]
    return math.exp(statistics.fmean(there)) if there else None


def _shown(value: float | None, text: str = "{:.2f}") -> str:
    return "-" if value is None else text.format(value)


def line(row: Row, found: Measured) -> str:
    """One row of the table."""
    times = [found.seconds.get(n) for n in (NAMES[DEFAULT], found.ours, *OTHERS)]
    best = found.best()
    cells = [row.name, *(_shown(None if t is None else 1e3 * t, "{:.3f}") for t in times)]
    cells += [_shown(share(found, row.kind), "{:.0%}"), "peak" if row.kind == "contraction" else "bandwidth"]
    cells += [_shown(speed(found, PLAIN)), best or "-", _shown(speed(found, best))]
    cells += [_shown(found.told.get("search"), "{:.0f}"), found.date]
    cells += ["; ".join(_said(found))]
    return "| " + " | ".join(cells) + " |"


def _said(found: Measured) -> list[str]:
    """What a reader has to know of a row."""
    wrong = [f"WRONG: {n} is off by {e:.1e}" for n, e in found.errors.items() if not e <= WRONG]
    gone = [f"no {name}: {why}".replace("|", "/")[:160] for name, why in found.missing.items()]
    algorithms = [a for a in found.told.get("algorithms", ()) if not a.startswith("0 of")]
    return [*wrong, *gone, *algorithms]


def table(rows: Sequence[Row], found: Mapping[str, Measured]) -> list[str]:
    """All rows that were measured."""
    heads = ["row", "default ms", "neoflow ms", *(f"{n} ms" for n in OTHERS), "share", "of", "PyTorch / neoflow"]
    heads += ["best peer", "best / neoflow", "searched s", "measured", ""]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (3 + len(OTHERS)) + "---|--:|---|--:|--:|---|---|"]
    return [*lines, *(line(r, found[r.name]) for r in rows if r.name in found)]


def summary(rows: Sequence[Row], found: Mapping[str, Measured]) -> list[str]:
    """The goals, and what was reached."""
    there = [(r, found[r.name]) for r in rows if r.name in found and found[r.name].is_done]
    large = {
        r.name: s
        for r, m in there
        if r.kind == "contraction" and m.told["operations"] >= LEAST_FLOPS and (s := share(m, r.kind)) is not None
    }
    memory = {r.name: s for r, m in there if r.kind == "memory" and (s := share(m, r.kind)) is not None}
    of_best = {r.name: s for r, m in there if (s := speed(m, m.best())) is not None}
    plain, best = mean(speed(m, PLAIN) for _, m in there), mean(of_best.values())
    gain = mean(m.seconds[NAMES[DEFAULT]] / m.seconds[m.ours] for _, m in there if NAMES[DEFAULT] in m.seconds)
    lines = ["| of all rows | | wanted |", "|---|--:|--:|"]
    lines.append(f"| rows measured, of {len(rows)} | {len(there)} | |")
    lines.append(f"| tuned beside the default, geometric mean | {_shown(gain)} | |")
    lines.append(f"| beside PyTorch as installed, geometric mean | {_shown(plain)} | {OF_PYTORCH} |")
    lines.append(f"| beside the best of the peers, geometric mean | {_shown(best)} | {OF_BEST} |")
    for what, shares, wanted in (
        ("contractions above 50 MFLOP, median share of the peak", large, OF_PEAK),
        ("kernels bound by memory, median share of the bandwidth", memory, OF_BANDWIDTH),
    ):
        median = statistics.median(shares.values()) if shares else None
        lines.append(f"| {what} | {_shown(median, '{:.0%}')} | {wanted:.0%} |")
    for title, values, least, text in (
        (f"Contractions below {LEAST_OF_PEAK:.0%} of the peak", large, LEAST_OF_PEAK, "{:.0%}"),
        (f"Bound by memory, below {OF_BANDWIDTH:.0%} of the bandwidth", memory, OF_BANDWIDTH, "{:.0%}"),
        (f"Below {LEAST_OF_BEST} of the best peer", of_best, LEAST_OF_BEST, "{:.2f}"),
    ):
        lines += ["", *_below(title, values, least, text)]
    return lines


def _below(title: str, values: Mapping[str, float], least: float, text: str) -> list[str]:
    """The rows that miss a goal, the worst first."""
    missed = sorted((v, n) for n, v in values.items() if v < least)
    if not missed:
        return [f"{title}: none."]
    return [f"{title}, {len(missed)} of {len(values)}:", *(f"- {n}: {text.format(v)}" for v, n in missed)]

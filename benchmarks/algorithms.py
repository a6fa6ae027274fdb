"""Every algorithm that fits a contraction, as a program of its own, beside the direct sum.

    python -m benchmarks.algorithms [--only REGEX] [--rounds 7] [--dry] [--write]

Each is what `tuning.choosing` would measure: the small graph of one contraction, its transforms with it, here by
default schedules, called in turns with the others. Inputs are standard normal numbers; errors are the root mean square
of the difference from NumPy in float64, as a share of that of the values. `--write` puts the table into RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median

import numpy as np

from benchmarks.results import called, write
from benchmarks.rows.cases import Row, rows
from benchmarks.rows.ours import program
from benchmarks.timing import aligned, block
from neoflow.expr.interp import evaluate
from neoflow.graph import make_graph, optimize
from neoflow.graph.algorithms import BY_NAME, DIRECT, whole
from neoflow.measure.near import Cores
from neoflow.pipeline import bind, compile_program
from neoflow.tuning.choosing import candidates

BY_ROWS = (
    r"matmul (1024|2048|1280x512x2048) A B$|conv 3x3 \d+->\d+ \d+x\d+ b\d+,|conv (3x3|1x1) stride 2 .*, dx$"
    r"|capsule convolution b16"
)
"""Of `benchmarks.operators`."""
DEPTHWISE = ((60, 56), (120, 28), (240, 14))
"""ShuffleNet's in steps of 2: channels, and extent of the images whose gradients they are."""
APART = (96, 192, 56)
"""ConvNeXt's first convolution of 2x2 in steps of 2: channels in and out, extent."""
PRODUCTS = ((1024, 768, 768), (1024, 768, 3072), (4096, 768, 768))
"""BERT's, of samples of 128 words: rows, terms, columns."""
ROUNDINGS = 1024.0
"""Times the direct sum's: all are shown, also what a compilation leaves out unless it is allowed."""


@dataclass(frozen=True)
class Beside:
    """An algorithm's seconds of a call, of the direct sum's calls in the same rounds how many times, and its error.

    rounding: how many times larger than the direct sum's its roundings may be.
    """

    name: str
    seconds: float
    shares: tuple[float, ...]
    error: float
    rounding: float

    @property
    def share(self) -> float:
        """Of the direct sum's time."""
        return median(self.shares)


def cases(dry: bool = False) -> tuple[Row, ...]:
    """The contractions. dry: at tiny sizes."""
    products = [
        Row(f"matmul {m}x{k}x{n} A B", "matmul", ((m, k), (k, n)), {"left": "mk", "right": "kn"})
        for m, k, n in PRODUCTS
    ]
    return (*products, *(r for r in rows(dry) if re.match(BY_ROWS, r.name)), *_strided(dry))


def _strided(dry: bool) -> Iterator[Row]:
    """Gradients of images by convolutions in steps of 2 that are no rows of `benchmarks.operators`."""
    for c, size in DEPTHWISE:
        name = f"depthwise 3x3 stride 2 {c} {size}x{size} b16, dx"
        yield _gradient(name, *((1, 4, 4, 10, 3, 1, 4) if dry else (16, c, c, size, 3, 1, c)))
    c, o, size = APART
    yield _gradient(
        f"conv 2x2 stride 2 {c}->{o} {size}x{size} b16, dx", *((1, 2, 4, 8) if dry else (16, c, o, size)), 2
    )


def _gradient(
    name: str, batch: int, channels: int, filters: int, size: int, window: int, padding: int = 0, groups: int = 1
) -> Row:
    """Of the image, in steps of 2."""
    out = (size + 2 * padding - window) // 2 + 1
    shapes = ((batch, channels, size, size), (filters, channels // groups, window, window))
    options = {"stride": 2, "padding": padding, "groups": groups}
    return Row(name, "convolution", shapes, options, (0,), ((batch, filters, out, out),), False)


def measured(row: Row, rounds: int) -> list[Beside]:
    """The direct sum and what else fits the largest contraction of a row, in that order."""
    outputs, inputs, _ = program(row)
    found = candidates(optimize(make_graph(outputs, inputs)), ROUNDINGS)
    if not found:
        return []
    t, those = next(iter(found.items()))
    graph = those[0].graph
    chance = np.random.default_rng(0)
    arrays = [aligned(chance.standard_normal(i.shape).astype(np.float32)) for i in graph.inputs]
    (exact,) = evaluate(list(graph.outputs), dict(zip(graph.inputs, arrays, strict=True)), dtype="float64")
    scale = float(np.sqrt(np.mean(np.square(exact))))
    steps = [bind(compile_program(list(c.graph.outputs), list(c.graph.inputs))) for c in those]
    errors = [float(np.sqrt(np.mean(np.square(np.asarray(step(*arrays)[0]) - exact)))) / scale for step in steps]
    cores, times = Cores(), [list[float]() for _ in those]
    for n in range(rounds):
        for place in (*range(n % len(steps), len(steps)), *range(n % len(steps))):
            times[place].append(cores.between(partial(block, partial(steps[place], *arrays))))
    roundings = [1.0, *(BY_NAME[c.name].rounding(whole(t).definition) for c in those[1:])]
    return [
        Beside(c.name, median(took), tuple(a / b for a, b in zip(took, times[0], strict=True)), error, rounding)
        for c, took, error, rounding in zip(those, times, errors, roundings, strict=True)
    ]


def lines_of(row: Row, found: list[Beside]) -> Iterator[str]:
    """A line an algorithm."""
    for each in found:
        beside = "" if each.name == DIRECT else f"{each.share:.2f} ({min(each.shares):.2f} to {max(each.shares):.2f})"
        cells = [f"{1e3 * each.seconds:.3f}", beside, f"{each.error:.1e}", f"{each.rounding:.3g}"]
        yield "| " + " | ".join([row.name, each.name, *cells]) + " |"


def means(found: Mapping[str, list[Beside]]) -> Iterator[str]:
    """Of every algorithm, the geometric mean of its shares, and how many times it was faster."""
    shares: dict[str, list[float]] = {}
    for each in (b for those in found.values() for b in those if b.name != DIRECT):
        shares.setdefault(each.name, []).append(each.share)
    for name, those in shares.items():
        faster = sum(share < 1 for share in those)
        mean = geometric_mean(those)
        yield f"- {name}: {mean:.2f} of the direct sum's time (geometric mean); faster in {faster} of {len(those)}."


def table(chosen: Sequence[Row], rounds: int) -> list[str]:
    """A row an algorithm of every contraction, then a line an algorithm."""
    lines = [
        "| contraction | algorithm | ms | of the direct sum's time | error | roundings at most |",
        "|---|---|--:|--:|--:|--:|",
    ]
    found: dict[str, list[Beside]] = {}
    for row in chosen:
        found[row.name] = measured(row, rounds)
        made = list(lines_of(row, found[row.name]))
        print("\n".join(made), flush=True)
        lines += made
    return [*lines, "", *means(found)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="contractions in whose name this regular expression is found")
    parser.add_argument("--rounds", type=int, default=7, help="of calls in turns")
    parser.add_argument("--dry", action="store_true", help="at tiny sizes")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    chosen = [row for row in cases(options.dry) if re.search(options.only, row.name)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NEOFLOW_CACHE_DIR"] = folder  # where nothing is known that would be chosen
        lines = table(chosen, options.rounds)
    print("\n".join(lines))
    if options.write:
        write("algorithms", "Algorithms of contractions beside direct sums", called("algorithms"), lines)


if __name__ == "__main__":
    main()

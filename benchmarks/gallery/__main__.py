"""Twenty operators of the literature, value and gradients, beside their usual PyTorch forms; writes docs/gallery.md.

    python -m benchmarks.gallery [--rounds 7] [--only NAME] [--compiled] [--write | --definitions]

Of each operator: the value, and the gradients by every float input for one cotangent, from the same arrays. A round
times each contender in turn for a block of calls; a ratio is the median over the rounds of PyTorch's time over
neoflow's, so above 1 neoflow is faster. Results are compared first. `--compiled` adds torch.compile. `--write` puts the
table and the definitions into docs/gallery.md; `--definitions` keeps the times that are there.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import neoflow as nf
from benchmarks.gallery.operators import OPERATORS, Operator
from benchmarks.timing import block, error_of
from neoflow.machine import processor

PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"


@dataclass(frozen=True)
class Case:
    """An operator at some sizes: the program, its arrays, and the same in PyTorch."""

    roots: list[nf.Tensor]
    inputs: list[nf.Tensor]
    arrays: list[np.ndarray]
    peer: Callable[[], list[torch.Tensor]]


def make_case(operator: Operator, sizes: dict[str, int] | None = None, compiled: bool = False) -> Case:
    """Value and gradients. sizes: those of the operator's function by default."""
    chosen = {p.name: p.default for p in inspect.signature(operator.build).parameters.values()} | (sizes or {})
    y, inputs = operator.build(**chosen)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(t.shape).astype(np.float32)
        if t.dtype == "float32"
        else rng.integers(0, chosen[operator.limits[t.name]], t.shape)
        for t in inputs
    ]
    cotangent = nf.placeholder(y.shape, name="cotangent")
    arrays.append(rng.standard_normal(y.shape).astype(np.float32))
    floats = [t for t in inputs if t.dtype == "float32"]
    held = [torch.from_numpy(a.copy()).requires_grad_(a.dtype == np.float32) for a in arrays[:-1]]
    g = torch.from_numpy(arrays[-1].copy())
    forward = torch.compile(operator.peer) if compiled else operator.peer

    def peer() -> list[torch.Tensor]:
        value = forward(*held)
        return [value, *torch.autograd.grad(value, [h for h in held if h.requires_grad], g)]

    return Case([y, *nf.vjp(y, floats, cotangent)], [*inputs, cotangent], arrays, peer)


def measure(operator: Operator, rounds: int, compiled: bool) -> str:
    """A line of the table."""
    case = make_case(operator)
    function = nf.compile(case.roots, case.inputs)
    error = error_of(function(*case.arrays), case.peer())
    runs: list[Callable[[], object]] = [lambda: function(*case.arrays), case.peer]
    if compiled:
        runs.append(make_case(operator, compiled=True).peer)
    samples: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(rounds):
        for run, found in zip(runs, samples, strict=True):
            found.append(block(run))
    ours, *others = samples
    cells = [operator.name, f"{1e3 * statistics.median(ours):.3f}"]
    for theirs in others:
        ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
        cells += [f"{1e3 * statistics.median(theirs):.3f}", f"{ratio:.2f}"]
    return f"| {' | '.join([*cells, f'{error:.0e}'])} |"


def definition(operator: Operator) -> str:
    """The operator as the page shows it: the body of its function."""
    lines = inspect.getsource(operator.build).splitlines()
    head = lines[0].removeprefix("def ").rstrip(":")
    body = textwrap.dedent("\n".join(line.replace("  # fmt: skip", "") for line in lines[1:]))
    return (
        f"### {operator.name[0].upper()}{operator.name[1:]}\n\n{operator.source}. `{head}`\n\n```python\n{body}\n```\n"
    )


def page(table: Sequence[str], how: str) -> str:
    """The gallery."""
    return "\n".join(
        [
            "# Gallery",
            "",
            "Twenty operators of the literature, each written as its paper has it; the gradients follow. Times are of "
            "the value and the gradients by every float input, with default schedules, beside the operator's usual "
            "PyTorch form; ratios above 1: neoflow is faster. `benchmarks/gallery` has both forms, and a test compares "
            "them.",
            "",
            how,
            "",
            *table,
            "",
            definitions(),
        ]
    )


_HEAD = "## Definitions\n"


def definitions() -> str:
    """The last part of the page."""
    return "\n".join([_HEAD, *(definition(o) for o in OPERATORS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--definitions", action="store_true")
    options = parser.parse_args()
    if options.definitions:
        head, _, _ = PAGE.read_text(encoding="utf-8").partition(_HEAD)
        PAGE.write_text(head + definitions(), encoding="utf-8")
        return
    peers = ["PyTorch", *(["torch.compile"] if options.compiled else [])]
    head = ["operator", "neoflow ms", *(cell for p in peers for cell in (f"{p} ms", f"{p} / neoflow")), "error"]
    table = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    print("\n".join(table))
    for operator in OPERATORS:
        if options.only in operator.name:
            table.append(measure(operator, options.rounds, options.compiled))
            print(table[-1], flush=True)
    how = (
        f"{datetime.date.today().isoformat()}, {processor()}, {torch.get_num_threads()} threads, PyTorch "
        f"{torch.__version__} as installed; `python -m benchmarks.gallery{' --compiled' * options.compiled} --write`."
    )
    if options.write:
        PAGE.write_text(page(table, how), encoding="utf-8")


if __name__ == "__main__":
    main()

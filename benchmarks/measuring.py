"""How many candidates a second are built, judged by NumPy and timed.

    python -m benchmarks.measuring [--write] [--count 36]

Two kinds of candidates: as a search meets them, the default schedule and others up to three knobs from it; and random
ones, of which many are long for LLVM. In batches of 12, by workers that are up. NumPy's computing of what a subgraph
means, once a worker, is counted with the first kind. All are built and compared with NumPy on all draws, but for those
ten times as slow as the best one, which are compared on the draw of special values alone.
`--write` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

import neoflow as nf
from benchmarks.results import write
from neoflow.devices import resolve_target
from neoflow.expr.tensor import Placeholder, Tensor, topological
from neoflow.graph import make_graph
from neoflow.loops import Schedule, default_schedule, problem_of
from neoflow.loops.space import space
from neoflow.measure import Measurer
from neoflow.partition import Subgraph
from neoflow.report.machine import examine
from neoflow.rewriting import stages
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.tune.trial import Trial

WANTED = 8.0
"""Candidates a second, on two cores."""
BATCH = 12


def _matmul(rows: int, columns: int, terms: int) -> Tensor:
    return nf.placeholder((rows, terms), name="a") @ nf.placeholder((terms, columns), name="b")


def _convolution() -> Tensor:
    x, w = nf.placeholder((1, 64, 28, 28), name="x"), nf.placeholder((64, 64, 3, 3), name="w")
    return nf.expr("y[n,o,p,q] = sum(x[n,c,p+r,q+s] * w[o,c,r,s])", x=x, w=w)


def _gradient_of_table() -> Tensor:
    table, ids = nf.placeholder((1000, 64), name="table"), nf.placeholder((512,), "int32", name="ids")
    chosen = nf.expr("y[t,h] = table[ids[t],h]", table=table, ids=ids)
    return nf.vjp(chosen, [table], nf.placeholder((512, 64), name="dy"))[0]


CASES: dict[str, Callable[[], Tensor]] = {
    "matmul 256": lambda: _matmul(256, 256, 256),
    "matmul 64x512x2048": lambda: _matmul(64, 512, 2048),
    "convolution 3x3, 64 channels, 28x28": _convolution,
    "softmax 512x512": lambda: nf.nn.functional.softmax(nf.placeholder((512, 512), name="x")),
    "sum of rows 512x1024": lambda: nf.sum(nf.placeholder((512, 1024), name="x"), axis=1),
    "tanh(x) x 512x512": lambda: _map(nf.placeholder((512, 512), name="x")),
    "gradient of an embedding": _gradient_of_table,
}


def _map(x: Tensor) -> Tensor:
    return nf.tanh(x) * x


def subgraph_of(output: Tensor) -> Subgraph:
    """The largest kernel of a program of one output."""
    inputs = [t for t in topological([output]) if isinstance(t, Placeholder)]
    divided = stages(make_graph([output], inputs), Trace())[1]
    return max(divided.subgraphs, key=lambda s: len(str(s)))


def near(subgraph: Subgraph, target: Target, count: int) -> list[Schedule]:
    """The default and others up to three knobs from it, as mutation makes them."""
    made, rng, found = (
        space(problem_of(subgraph), target),
        np.random.default_rng(0),
        [default_schedule(subgraph, target)],
    )
    while len(found) < count:
        step = found[0]
        for _ in range(rng.integers(1, 4)):
            step = rng.choice(np.array(made.neighbours(step), object))
        found.append(step)
    return found


def random(subgraph: Subgraph, target: Target, count: int) -> list[Schedule]:
    """From all of the space."""
    made, rng = space(problem_of(subgraph), target), np.random.default_rng(0)
    return [made.sample(rng) for _ in range(count)]


def row(name: str, measure: Measurer, target: Target, count: int) -> str:
    """Of one kernel: outcomes, and candidates a second of both kinds."""
    subgraph = subgraph_of(CASES[name]())
    trials: list[Trial] = []
    rates = []
    for asked in (near(subgraph, target, count), random(subgraph, target, count)):
        start = time.perf_counter()
        for n in range(0, count, BATCH):
            trials += measure(subgraph, target, asked[n : n + BATCH])
        rates.append(sum(t.seconds is not None for t in trials[-count:]) / (time.perf_counter() - start))
    times = [1e6 * t.seconds for t in trials if t.seconds is not None]
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in Counter(t.outcome for t in trials).items())
    mark = "reached" if rates[0] >= WANTED else "missed"
    shown = f"{min(times):.0f} | {np.median(times):.0f} | {rates[0]:.1f} | {rates[1]:.1f}"
    return f"| {name} | {outcomes} | {shown} | {WANTED:.0f} | {mark} |"


def table(count: int, names: Sequence[str]) -> list[str]:
    """A row for each kernel."""
    target = resolve_target("cpu")
    lines = [
        "| kernel | candidates | best us | median us | near the default, a second | random, a second | wanted | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    with Measurer() as measure:
        warm = subgraph_of(nf.placeholder((8,), name="x") * 2.0)
        measure(warm, target, [default_schedule(warm, target)] * 4)
        for name in names:
            lines.append(row(name, measure, target, count))
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, help="one of the kernels")
    parser.add_argument("--count", type=int, default=36, help="candidates of each kernel and kind")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    machine = examine()
    lines = table(options.count, [options.only] if options.only else list(CASES))
    command = f"python -m benchmarks.measuring --count {options.count} --write"
    how = f"{machine.processor}, {machine.threads} threads; `{command}`"
    if options.write:
        write("measuring", "Candidates built, judged and timed", how, lines)


if __name__ == "__main__":
    main()

"""Linear attention as a scan, in chunks of steps and step by step.

    python -m benchmarks.chunks [--steps 512,2048,4096] [--heads 2] [--width 64] [--rounds 7] [--write]

    S[t] = a[t] * S[t-1] + k[t] v[t],  y[t] = q[t] S[t]

Without a decay, with one of each head, with one of each channel of k; forward alone, and with the gradients by all it
is given. Both forms in turns in one process, blocks of calls; the ratio is the median over the rounds. What
`NEOFLOW_THREADS` says holds for both. `--write` puts the table into RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import numpy as np

import neoflow as nf
from benchmarks.results import write
from benchmarks.timing import aligned, block
from neoflow.machine import available_cores, processor

DECAYS = {"none": (), "head": (0,), "channel": (0, 1)}
"""Which of (head, channel) a decay has."""


def attention(
    steps: int, heads: int, width: int, decay: str, gradients: bool
) -> tuple[list[nf.Tensor], list[nf.Tensor]]:
    """Outputs and inputs: y, and the gradients of a sum of it."""
    q, k, v, w = (nf.placeholder((steps, heads, width), name=n) for n in "qkvw")
    rows: list[nf.Tensor] = [q, k, v]
    if decay != "none":
        rows.append(nf.placeholder((steps, heads, width)[: 1 + len(DECAYS[decay])], name="a"))

    def step(state: nf.Tensor, row: Sequence[nf.Tensor]) -> tuple[nf.Tensor, nf.Tensor]:
        if decay != "none":
            state = state * nf.reshape(row[3], (*row[3].shape, *(1,) * (3 - len(row[3].shape))))
        state = state + row[1][:, :, None] * row[2][:, None, :]
        return state, nf.sum(row[0][:, :, None] * state, axis=1)

    _, ys = nf.scan(step, nf.zeros((heads, width, width)), rows)
    return ([ys, *nf.grad(nf.sum(ys * w), rows)], [*rows, w]) if gradients else ([ys], rows)


def compiled(outputs: list[nf.Tensor], inputs: list[nf.Tensor], without: str) -> nf.Function:
    before = os.environ.get("NEOFLOW_WITHOUT", "")
    os.environ["NEOFLOW_WITHOUT"] = ",".join(n for n in (before, without) if n)
    try:
        return nf.compile(outputs, inputs)
    finally:
        os.environ["NEOFLOW_WITHOUT"] = before


def measure(steps: int, heads: int, width: int, decay: str, gradients: bool, rounds: int) -> str:
    """A line of the table."""
    outputs, inputs = attention(steps, heads, width, decay, gradients)
    chunks, each = compiled(outputs, inputs, ""), compiled(outputs, inputs, "chunks")
    rng = np.random.default_rng(0)
    arrays = [aligned(rng.uniform(0.9 if t.name == "a" else -0.5, 1, t.shape).astype("f")) for t in inputs]
    found = [(block(lambda: chunks(*arrays)), block(lambda: each(*arrays))) for _ in range(rounds)]
    a, b = (1e3 * float(np.median(column)) for column in zip(*found, strict=True))
    ratio = float(np.median([x / y for x, y in found]))
    how = chunks.explain("chunks").partition(": ")[2].removesuffix(", what is asked of states by contractions")
    mb = [f.plan.nbytes / 2**20 for f in (chunks, each)]
    form = "with gradients" if gradients else "forward"
    return (
        f"| {steps} | {heads} x {width} | {decay} | {form} | {a:.2f} | {b:.2f} | {ratio:.2f} | "
        f"{mb[0]:.0f} | {mb[1]:.0f} | {how} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="512,2048,4096")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args(arguments)
    lines = [
        "| steps | heads | decay | | in chunks ms | step by step ms | ratio | MB | MB | |",
        "|--:|---|---|---|--:|--:|--:|--:|--:|---|",
    ]
    print("\n".join(lines), flush=True)
    for steps in map(int, options.steps.split(",")):
        for decay in DECAYS:
            for gradients in (False, True):
                line = measure(steps, options.heads, options.width, decay, gradients, options.rounds)
                print(line, flush=True)
                lines.append(line)
    if options.write:
        threads = os.environ.get("NEOFLOW_THREADS") or available_cores()
        how = (
            f"{processor()}, {threads} threads; `python -m benchmarks.chunks --steps {options.steps} "
            f"--heads {options.heads} --width {options.width} --rounds {options.rounds} --write`"
        )
        write("chunks", "Linear attention as a scan: in chunks, and step by step", how, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

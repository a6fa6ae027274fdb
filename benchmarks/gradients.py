"""Training steps of the models against PyTorch eager, with the error of every gradient.

    python -m benchmarks.gradients [--only MODEL] [--seconds 8] [--write]

A step is forward, gradients and SGD; both are timed in turn by `neoflow bench`. Errors of gradients are against the
same network in float64 in PyTorch, as a part of the largest entry, and PyTorch's own in float32 stand beside ours:
with a million relus either is off by thousandths in single entries where an argument is within rounding of zero, so
each may be off by up to three times PyTorch's own error of the same gradient. `--write` puts the table into RESULTS.md;
with `--only` its other rows stay.
"""

from __future__ import annotations

import argparse

import torch

from benchmarks import results
from neoflow.contest.bench import bench
from neoflow.report.agreement import check
from neoflow.report.machine import examine

MODELS = {
    "capsnet": 16,
    "mi_lstm_mnist": 32,
    "mi_lstm_ptb": 32,
    "ptb_lstm": 20,
    "bert_layer": 2,
    "resnet18": 2,
    "shufflenet": 4,
}
"""Models and batches."""
HEAD = [
    "| model | batch | neoflow ms | PyTorch ms | neoflow / PyTorch | gradient error | PyTorch's | |",
    "|---|--:|--:|--:|--:|--:|--:|---|",
]


def row(name: str, batch: int, seconds: float) -> str:
    """A line of the table."""
    found = check(name, batch, "torch", steps=1)
    ours, theirs = max(found.gradients.values()), max(found.peer_gradients.values())
    times = bench(name, batch, "train", ["torch"], seconds)
    peer = times.peers["torch"]
    words = ["slower"] if times.neoflow_ms > peer else []
    words += [] if found.is_close else ["DISAGREES"]
    return (
        f"| {name} | {batch} | {times.neoflow_ms:.2f} | {peer:.2f} | {times.neoflow_ms / peer:.2f} | {ours:.1e} | "
        f"{theirs:.1e} | {', '.join(words)} |"
    )


def written() -> dict[str, str]:
    """Rows by model, of the section as it stands."""
    section = results.PATH.read_text().partition("<!-- gradients -->")[2].partition("<!-- /gradients -->")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return {line.split()[1]: line for line in rows if line.split()[1] in MODELS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = written()
    print("\n".join(HEAD), flush=True)
    for name in [options.only] if options.only else MODELS:
        rows[name] = row(name, MODELS[name], options.seconds)
        print(rows[name], flush=True)
    if options.write:
        how = (
            f"{examine().processor}, {torch.get_num_threads()} threads, medians, gradients at their worst against "
            f"float64; `python -m benchmarks.gradients --write`"
        )
        title = f"Training steps against PyTorch {torch.__version__} eager as installed"
        results.write("gradients", title, how, HEAD + [rows[name] for name in MODELS if name in rows])


if __name__ == "__main__":
    main()

"""Training steps of the models against PyTorch eager, with the error of every gradient.

    python -m benchmarks.models [--only MODEL] [--seconds 8] [--write]

A step is forward, gradients and SGD; both are timed in turn by `neoflow bench`. Errors of gradients are against the
same network in float64 in PyTorch, as a part of the largest entry, and PyTorch's own in float32 stand beside ours:
with a million relus either is off by thousandths in single entries where an argument is within rounding of zero, so
ours may be up to three times PyTorch's where it is more than 1e-3. `--write` puts the table into RESULTS.md; with
`--only` its other rows stay.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
import torch

from benchmarks import results
from neoflow.autodiff import grad
from neoflow.pipeline import compile
from neoflow.report.bench import bench, reset
from neoflow.report.doctor import examine
from neoflow.report.models import build_model, find_peer

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
BOUND, FACTOR = 1e-3, 3.0
ZERO = 1e-12
"""Of the largest gradient: one below it in float64 is zero, such as that of a shift before a normalisation."""
HEAD = [
    "| model | batch | neoflow ms | PyTorch ms | neoflow / PyTorch | gradient error | PyTorch's | |",
    "|---|--:|--:|--:|--:|--:|--:|---|",
]

Arrays = Mapping[str, np.ndarray]


def error(found: Arrays, exact: Arrays) -> float:
    """The largest error of any gradient, as a part of the largest entry of that gradient."""
    sizes = {n: np.abs(g).max() for n, g in exact.items()}
    least = ZERO * max(sizes.values())
    return max(float(np.abs(found[n] - g).max() / sizes[n]) for n, g in exact.items() if sizes[n] > least)


def errors(name: str, batch: int) -> tuple[float, float]:
    """Errors of the gradients of neoflow and of PyTorch, both in float32, at the first step."""
    model = build_model(name, batch)
    parameters = model.parameters
    values = {n: p for n, p in zip(parameters, model.initial().values(), strict=False)}
    x, labels = model.example()
    reset(model)
    _, *gradients = compile([model.loss, *grad(model.loss, list(parameters.values()))], model.inputs)(x, labels)
    theirs = find_peer("torch", name, values).loss_and_grads(x, labels)[1]
    wide = find_peer("torch", name, {n: v.astype(np.float64) for n, v in values.items()})
    exact = wide.loss_and_grads(x.astype(np.float64) if x.dtype == np.float32 else x, labels)[1]
    return error(dict(zip(parameters, gradients, strict=True)), exact), error(theirs, exact)


def row(name: str, batch: int, seconds: float) -> str:
    """A line of the table."""
    ours, theirs = errors(name, batch)
    times = bench(name, batch, "train", ["torch"], seconds)
    peer = times.peers["torch"]
    words = ["slower"] if times.neoflow_ms > peer else []
    words += [] if ours <= max(BOUND, FACTOR * theirs) else ["DISAGREES"]
    return (
        f"| {name} | {batch} | {times.neoflow_ms:.2f} | {peer:.2f} | {times.neoflow_ms / peer:.2f} | {ours:.1e} | "
        f"{theirs:.1e} | {', '.join(words)} |"
    )


def written() -> dict[str, str]:
    """Rows by model, of the section as it stands."""
    section = results.PATH.read_text().partition("<!-- models -->")[2].partition("<!-- /models -->")[0]
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
            f"float64; `python -m benchmarks.models --write`"
        )
        title = f"Training steps against PyTorch {torch.__version__} eager as installed"
        results.write("models", title, how, HEAD + [rows[name] for name in MODELS if name in rows])


if __name__ == "__main__":
    main()

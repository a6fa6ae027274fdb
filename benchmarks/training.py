"""Models trained to the end beside their PyTorch twins: the same start, data, order and rates, and Adam on both sides.

    python -m benchmarks.training [--models capsnet,mi_lstm_text] [--epochs N] [--reports FOLDER] [--write]

The capsule network and a small ShuffleNet learn scikit-learn's digits, the LSTMs the characters of Python's
documentation. Judged by the same held-out data. Roundings differ, and part two runs after some hundreds of steps, so
that final qualities are compared, not losses step by step. `--reports` keeps each run's HTML report, its curves in it.
`--write` puts the table and the curves into RESULTS.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.figure import Panel, Points, drawn
from benchmarks.results import write
from neoflow import data
from neoflow.machine import processor
from neoflow.models import build_model, find_peer
from neoflow.report.run import report_session
from neoflow.train.arrange import Arranged, load_data
from neoflow.train.session import run_session, warmup_and_decay

FIGURES = Path(__file__).parent / "figures"
RATE = 2e-3
"""The highest learning rate."""


@dataclass(frozen=True)
class Run:
    """epochs of so many samples a step. text: the characters. loss, accuracy: by how much the twins may be apart."""

    epochs: int
    batch: int
    text: bool = False
    loss: float = 0.05
    accuracy: float = 0.02


RUNS = {
    "capsnet": Run(3, 16, loss=0.01),
    "shufflenet_small": Run(6, 16, loss=0.15, accuracy=0.03),
    "mi_lstm_text": Run(3, 64, text=True),
    "ptb_lstm": Run(2, 64, text=True),
}


@dataclass(frozen=True)
class Trained:
    """What came of a run. judged: loss and accuracy of the test set. losses: of each step. seconds: of all steps."""

    loss: float
    accuracy: float
    losses: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class Pair:
    """A model and its twin."""

    model: str
    run: Run
    data: str
    ours: Trained
    theirs: Trained

    @property
    def is_close(self) -> bool:
        """Whether both reached the same quality, as far as the run says what is the same."""
        loss = abs(self.ours.loss - self.theirs.loss)
        return loss <= self.run.loss and abs(self.ours.accuracy - self.theirs.accuracy) <= self.run.accuracy


def train_twin(name: str, run: Run) -> Trained:
    """PyTorch's run: its peer's parameters by torch.optim.Adam."""
    import torch

    model = build_model(name, run.batch, small=True)
    split, arrange = load_data(None, model, run.text)
    batches = Arranged(split.train, run.batch, seed=0)
    batches.arrange = arrange
    peer = find_peer("torch", name, model.values())
    optimizer = torch.optim.Adam(peer.tensors.values(), lr=RATE)
    rate = warmup_and_decay(RATE, run.epochs * len(batches))
    losses, start = [], time.perf_counter()
    for _ in range(run.epochs):
        for x, labels in batches:
            for group in optimizer.param_groups:
                group["lr"] = rate(len(losses))
            optimizer.zero_grad()
            loss = peer.loss(np.array(x), labels)  # a copy: images of one channel are a view that PyTorch warns of
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    seconds = time.perf_counter() - start
    totals, count = np.zeros(2), 0
    for x, y, valid in data.padded_batches(split.test, run.batch):
        totals += valid * judged(peer, *arrange(x, y), model.batch_axis, valid)
        count += valid
    return Trained(*map(float, totals / count), tuple(losses), seconds)


def judged(peer, x: np.ndarray, labels: np.ndarray, axis: int, valid: int) -> np.ndarray:
    """Loss and accuracy of the first samples of a batch."""
    import torch

    axis = axis if labels.ndim > 1 else 0
    given = torch.from_numpy(peer.infer(np.array(x))).narrow(axis, 0, valid)
    wanted = torch.from_numpy(labels).narrow(axis, 0, valid)
    loss = peer.criterion(given, wanted).item()
    return np.array([loss, (given.argmax(-1) == wanted).double().mean().item()])


def train_pair(name: str, run: Run, report: Path | None = None) -> Pair:
    """Both, one after the other; the report of ours is written where it is asked for."""
    session = run_session(name, epochs=run.epochs, batch=run.batch, lr=RATE, text=run.text, progress=False)
    steps = tuple(r.values["loss"] for r in session.records)
    found = Trained(session.judged["loss"], session.judged["accuracy"], steps, sum(r.seconds for r in session.records))
    if report is not None:
        report_session(session, report)
    return Pair(name, run, session.data, found, train_twin(name, run))


def table(pairs: Sequence[Pair]) -> list[str]:
    """A row a model."""
    lines = ["| model | data | steps | test loss | PyTorch's | test accuracy | PyTorch's | seconds | PyTorch's | |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for p in pairs:
        cells = [f"{len(p.ours.losses)} of {p.run.batch}", f"{p.ours.loss:.4f}", f"{p.theirs.loss:.4f}"]
        cells += [f"{p.ours.accuracy:.2%}", f"{p.theirs.accuracy:.2%}"]
        cells += [f"{p.ours.seconds:.1f}", f"{p.theirs.seconds:.1f}", "the same" if p.is_close else "APART"]
        lines.append(f"| {p.model} | {p.data} | " + " | ".join(cells) + " |")
    return lines


def smoothed(losses: Sequence[float], steps: int = 20) -> Points:
    """Means over so many steps, by the step that they end at."""
    means = np.convolve(losses, np.ones(min(steps, len(losses))) / min(steps, len(losses)), "valid")
    return [(float(n), float(v)) for n, v in enumerate(means, len(losses) - len(means) + 1)]


def curves(pairs: Sequence[Pair]) -> str:
    """Losses of both over the steps, a panel a model: an SVG file."""
    panels = [
        Panel(
            f"{p.model}: loss, means of 20 steps",
            {"neoflow": smoothed(p.ours.losses), "PyTorch": smoothed(p.theirs.losses)},
            "{:.3g}".format,
            is_log=True,
            axis="steps",
        )
        for p in pairs
    ]
    return drawn(panels)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(RUNS), help="of them")
    parser.add_argument("--epochs", type=int, help="of each; default: what each has")
    parser.add_argument("--reports", type=Path, help="a folder for the HTML reports")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    names = options.models.split(",")
    if unknown := [n for n in names if n not in RUNS]:
        parser.error(f"there is no run of {', '.join(unknown)}; there are {', '.join(RUNS)}")
    pairs = []
    for name in names:
        run = RUNS[name] if options.epochs is None else Run(**{**vars(RUNS[name]), "epochs": options.epochs})
        pairs.append(train_pair(name, run, options.reports and options.reports / f"{name}.html"))
        print("\n".join(table(pairs[-1:])[0 if len(pairs) == 1 else 2 :]), flush=True)
    if options.write:
        path = FIGURES / "training.svg"
        path.write_text(curves(pairs))
        lines = [*table(pairs), "", f"![losses of both](figures/{path.name})"]
        how = f"{processor()}; `python -m benchmarks.training --write`"
        write("training", "Trained to the end beside PyTorch, from the same start", how, lines)
    return 0 if all(p.is_close for p in pairs) else 1


if __name__ == "__main__":
    raise SystemExit(main())

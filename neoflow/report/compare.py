"""A model's step beside its peers': times in turn, errors against float64, from the same parameters and inputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.autodiff import grad
from neoflow.models import Peer, build_model, find_peer
from neoflow.pipeline import compile
from neoflow.train.step import RATE, reset, train_step


@dataclass(frozen=True)
class Bench:
    """Median milliseconds of a step; loss: of the first step, before its update (infer: of the inputs)."""

    model: str
    batch: int
    mode: str
    neoflow_ms: float
    peers: dict[str, float]
    loss: float

    def __str__(self) -> str:
        lines = [
            f"{self.model} batch {self.batch} {self.mode}, loss {self.loss:.8f}",
            f"neoflow {self.neoflow_ms:8.2f} ms",
        ]
        for name, ms in self.peers.items():
            lines.append(f"{name:7} {ms:8.2f} ms  (neoflow takes {self.neoflow_ms / ms:.2f} of its time)")
        return "\n".join(lines)


CLOSE, FACTOR = 1e-3, 3.0
ZERO = 1e-12
"""Of the largest gradient: one below it in float64 is zero, such as that of a shift before a normalisation."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    """Errors against the peer in float64: gradients as a part of their largest entry, losses as a part of the loss.

    Beside each is the peer's own in float32: behind a million relus either is off by thousandths where an argument is
    within rounding of zero, so ours may be up to three times the peer's worst where that is more than 1e-3.
    loss: of the first step. losses: the largest over `steps` steps of SGD.
    """

    peer: str
    loss: float
    gradients: dict[str, float]
    peer_gradients: dict[str, float]
    steps: int
    losses: float
    peer_losses: float

    @property
    def limit(self) -> float:
        """The largest error of a gradient allowed."""
        return _limit(max(self.peer_gradients.values()))

    @property
    def is_close(self) -> bool:
        gradients = all(v <= self.limit for v in self.gradients.values())
        return self.loss <= 1e-5 and gradients and self.losses <= _limit(self.peer_losses)

    def __str__(self) -> str:
        word = "agrees" if self.is_close else "DISAGREES"
        lines = [f"against {self.peer} in float64, in brackets what {self.peer} in float32 is off: {word}"]
        lines.append(f"  first loss            {self.loss:.1e} apart (at most 1e-5)")
        for n, v in self.gradients.items():
            own = self.peer_gradients[n]
            lines.append(f"  gradient {n:12} {v:.1e} of its largest entry (at most {self.limit:.0e}) [{own:.1e}]")
        most, own = _limit(self.peer_losses), self.peer_losses
        lines.append(
            f"  {self.steps:<3} SGD steps         {self.losses:.1e} apart in loss (at most {most:.0e}) [{own:.1e}]"
        )
        return "\n".join(lines)


def _limit(own: float) -> float:
    """The largest error allowed where the peer's in float32 is `own`."""
    return max(CLOSE, FACTOR * own)


def measure(tasks: Sequence[Callable[[], object]], seconds: float, block: int = 5) -> list[float]:
    """Median milliseconds of each task, run in turn in blocks; the first call of a block does not count.

    A block's first call still shares the cores with the threads of the task before, which wait for work actively.
    """
    samples: list[list[float]] = [[] for _ in tasks]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[0]) < 3 * block:
        for task, found in zip(tasks, samples, strict=True):
            task()
            for _ in range(block):
                start = time.perf_counter()
                task()
                found.append(time.perf_counter() - start)
    return [1e3 * statistics.median(s) for s in samples]


def bench(name: str, batch: int, mode: str, against: Sequence[str], seconds: float) -> Bench:
    """Time a model and its peers over about `seconds` seconds."""
    model = build_model(name, batch)
    values = model.values()
    peers: list[Peer] = [find_peer(framework, name, values) for framework in against]
    x, labels = model.example()
    reset(model)
    tasks: list[Callable[[], object]]
    if mode == "train":
        step = train_step(model)
        loss = float(step(x, labels)[0])
        tasks = [lambda: step(x, labels), *(lambda p=p: p.step(x, labels, RATE) for p in peers)]
    else:
        loss = float(compile([model.loss], model.inputs)(x, labels)[0])
        scores = compile([model.scores], [model.x])
        tasks = [lambda: scores(x), *(lambda p=p: p.infer(x) for p in peers)]
    own, *others = measure(tasks, seconds)
    return Bench(model.name, batch, mode, own, dict(zip(against, others, strict=True)), loss)


def check(name: str, batch: int, framework: str, steps: int = 50) -> Check:
    """Compare gradients, and the losses of SGD steps, with a peer's in float64."""
    model = build_model(name, batch)
    parameters, values = model.parameters, model.values()
    peer = find_peer(framework, name, values)
    exact = find_peer(framework, name, {n: v.astype(np.float64) for n, v in values.items()})
    x, labels = model.example()
    wide = x.astype(np.float64) if x.dtype == np.float32 else x
    reset(model)
    loss, *gradients = compile([model.loss, *grad(model.loss, list(parameters.values()))], model.inputs)(x, labels)
    exact_loss, wanted = exact.loss_and_grads(wide, labels)
    ours = errors(dict(zip(parameters, gradients, strict=True)), wanted)
    theirs = errors(peer.loss_and_grads(x, labels)[1], wanted)
    step = train_step(model)
    runs: list[Callable[[], float]] = [
        lambda: float(step(x, labels)[0]),
        lambda: peer.step(x, labels, RATE),
        lambda: exact.step(wide, labels, RATE),
    ]
    ours_run, theirs_run, exact_run = (
        [run() for _ in range(steps)] for run in runs
    )  # in turn their threads would wait
    losses, peer_losses = (
        max(abs(a - b) / abs(b) for a, b in zip(found, exact_run, strict=True)) for found in (ours_run, theirs_run)
    )
    first = abs(float(loss) - exact_loss) / abs(exact_loss)
    return Check(framework, first, ours, theirs, steps, losses, peer_losses)


def errors(found: Arrays, exact: Arrays) -> dict[str, float]:
    """The largest error of each gradient that is not zero, as a part of its largest entry."""
    sizes = {n: float(np.abs(g).max()) for n, g in exact.items()}
    least = ZERO * max(sizes.values())
    return {n: float(np.abs(found[n] - g).max() / sizes[n]) for n, g in exact.items() if sizes[n] > least}

"""`neoflow bench`: a model's step against its peers, in turn, from the same parameters and inputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.autodiff import grad
from neoflow.expr.tensor import Tensor
from neoflow.nn import Model
from neoflow.pipeline import compile
from neoflow.report.models import Peer, build_model, find_peer
from neoflow.runtime.function import Function
from neoflow.runtime.parameters import set_value

RATE = 0.01
"""The learning rate of a measured step: SGD, without momentum or decay."""


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


@dataclass(frozen=True)
class Check:
    """How far two implementations are apart: gradients as a part of the largest entry, losses as a part of the peer's.

    loss: relative difference of the first losses. losses: the largest over `steps` steps of SGD.
    """

    peer: str
    loss: float
    gradients: dict[str, float]
    steps: int
    losses: float

    @property
    def is_close(self) -> bool:
        return self.loss <= 1e-5 and self.losses <= 1e-3 and all(v <= 1e-3 for v in self.gradients.values())

    def __str__(self) -> str:
        lines = [f"against {self.peer}: {'agrees' if self.is_close else 'DISAGREES'}"]
        lines.append(f"  first loss            {self.loss:.1e} apart (at most 1e-5)")
        lines += [f"  gradient {n:12} {v:.1e} of its largest entry (at most 1e-3)" for n, v in self.gradients.items()]
        lines.append(f"  {self.steps:<3} SGD steps         {self.losses:.1e} apart in loss at most (1e-3)")
        return "\n".join(lines)


def reset(model: Model) -> None:
    """Give every parameter its first value."""
    for p, value in model.initial().items():
        set_value(p, value)


def sgd_updates(model: Model, gradients: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """p -= 0.01 dp, and the model's own state."""
    updates: dict[Tensor, Tensor] = {p: p - RATE * g for p, g in zip(model.parameters.values(), gradients, strict=True)}
    updates.update(model.state.items())
    return updates


def train_step(model: Model) -> Function:
    """(x, labels) -> [loss], then the updates."""
    gradients = grad(model.loss, list(model.parameters.values()))
    return compile([model.loss], model.inputs, sgd_updates(model, gradients))


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
    values = {n: p for n, p in zip(model.parameters, model.initial().values(), strict=False)}
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
    """Compare gradients, and the losses of SGD steps, with a peer's."""
    model = build_model(name, batch)
    parameters = model.parameters
    values = {n: p for n, p in zip(parameters, model.initial().values(), strict=False)}
    peer = find_peer(framework, name, values)
    x, labels = model.example()
    reset(model)
    loss, *gradients = compile([model.loss, *grad(model.loss, list(parameters.values()))], model.inputs)(x, labels)
    exact_loss, exact = peer.loss_and_grads(x, labels)
    apart = {n: _apart(g, exact[n]) for n, g in zip(parameters, gradients, strict=True)}
    step = train_step(model)
    pairs = [(float(step(x, labels)[0]), peer.step(x, labels, RATE)) for _ in range(steps)]
    losses = max(abs(a - b) / abs(b) for a, b in pairs)
    return Check(framework, abs(float(loss) - exact_loss) / abs(exact_loss), apart, steps, losses)


def _apart(found: np.ndarray, exact: np.ndarray) -> float:
    wide = exact.astype(np.float64)
    return float(np.abs(found - wide).max() / np.abs(wide).max())

"""A model's step beside its peers': times in turn, from the same parameters and inputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

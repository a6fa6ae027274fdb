"""What a contender runs: a model's training step or inference in one framework, asked for in blocks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neoflow.models import build_model, find_peer
from neoflow.nn import Model
from neoflow.train.step import RATE
from neoflow.tune import Limits

SETTLE = 0.02
"""Seconds of calls before a block: caches and threads are another contender's at first."""
LONG = 0.5
"""Seconds of a call beside which these are nothing."""
ENTRIES = 8
"""Of an inference's scores, that are compared."""


@dataclass(frozen=True)
class Task:
    """A step: of a model at a batch; mode "train" or "infer". tune: seconds of a search before it, memory: a limit to
    it, target: what it is compiled for, see `nf.compile`; rounding: what algorithms may round, see `nf.tune.Limits`;
    all four of neoflow alone."""

    model: str
    batch: int
    mode: str
    tune: float = 0.0
    memory: str | None = None
    rounding: float | None = None
    target: str = "cpu"

    @property
    def limits(self) -> Limits:
        """Of the search; of 0 seconds there is none."""
        limits = Limits(seconds=self.tune)
        return limits if self.rounding is None else replace(limits, rounding=self.rounding)

    def __str__(self) -> str:
        return f"{self.model} b{self.batch} {self.mode}"


class Side(Protocol):
    """A step that is ready: its first call is made. values: what it gave, the same for every contender."""

    values: list[float]
    told: dict[str, Any]

    def reset(self) -> None:
        """Give every parameter its first value."""

    def call(self) -> object:
        """A step, all of it done on return."""


def sampled(scores: NDArray) -> list[float]:
    """Entries all over an array."""
    flat = scores.reshape(-1)
    return [float(v) for v in flat[np.linspace(0, flat.size - 1, ENTRIES).astype(int)]]


class Neoflow:
    """told: seconds of its compilation, kernels built now and in all, and calls."""

    def __init__(self, task: Task) -> None:
        from neoflow.pipeline import bind, compile_program
        from neoflow.train.step import program, reset

        self.model, self._reset = build_model(task.model, task.batch), reset
        reset(self.model)
        self.arrays = self.model.example()[: 2 if task.mode == "train" else 1]
        start = time.perf_counter()
        asked = program(self.model, task.mode)
        self.compiled = compile_program(*asked, task.target, tune=task.limits, memory=task.memory)
        self.function = bind(self.compiled)
        self.told = {
            "compiling": time.perf_counter() - start,
            "built": self.compiled.built,
            "kernels": len(self.compiled.kernels),
            "calls": len(self.compiled.calls),
            "trials": self.compiled.tuned.trials,
        }
        first = self.function(*self.arrays)[0]
        self.values = [float(first)] if task.mode == "train" else sampled(first)

    def reset(self) -> None:
        self._reset(self.model)

    def call(self) -> object:
        return self.function(*self.arrays)


class Peer:
    """A network of `benchmarks/peers`, or beside the user's model. told: the framework's version. warm: calls after the
    first one and before any that is timed."""

    framework: str
    warm = 0

    def __init__(self, task: Task) -> None:
        model = build_model(task.model, task.batch)
        self.first = model.values()
        with self.place():
            self.peer: Any = find_peer(self.framework, task.model, self.first)
        self.told = {"version": sys.modules[self.framework].__version__}
        x, labels = self.arrays(model)
        self.prepare(task)
        is_training = task.mode == "train"
        self._call: Callable[[], Any] = partial(self.peer.step, x, labels, RATE)
        if not is_training:
            self._call = partial(self.peer.infer, x)
        first = self.call()
        self.values = [float(first)] if is_training else sampled(first)
        for _ in range(self.warm):
            self.call()

    def call(self) -> Any:
        return self._call()

    def arrays(self, model: Model) -> tuple[Any, Any]:
        """What its step is fed."""
        return model.example()

    def place(self) -> AbstractContextManager[Any]:
        """Where the network's parameters are made. Raises `ConfigError` where they cannot be."""
        return nullcontext()

    def prepare(self, task: Task) -> None:
        """What comes before the first call."""

    def reset(self) -> None:
        if hasattr(self.peer, "reset"):
            self.peer.reset(self.first)


class Torch(Peer):
    framework = "torch"


class TorchCompile(Torch):
    def prepare(self, task: Task) -> None:
        """Have torch.compile take what a step computes. Raises `TypeError` for a peer without it."""
        import torch

        name = "objective" if task.mode == "train" else "scores"
        if not hasattr(self.peer, name):
            raise TypeError(f"the peer of {task.model} has no {name}, which torch.compile could take")
        torch._dynamo.reset()
        setattr(self.peer, name, self.compiled(getattr(self.peer, name)))

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What torch.compile makes of a function of tensors."""
        import torch

        return torch.compile(function)


class Jax(Peer):
    framework = "jax"

    def arrays(self, model: Model) -> tuple[Any, Any]:
        """On its device, once: neoflow and PyTorch read NumPy's in place."""
        import jax

        x, labels = model.example()
        return jax.device_put(x), jax.device_put(labels)


def block(side: Side, seconds: float) -> float:
    """Seconds of a call, over a block of so many seconds from the first values."""
    side.reset()
    start = time.perf_counter()
    side.call()
    if (first := time.perf_counter() - start) >= max(LONG, seconds):
        return first
    while time.perf_counter() < start + SETTLE:
        side.call()
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() < start + seconds:
        side.call()
        calls += 1
    return (time.perf_counter() - start) / calls

"""Operators that memory bounds, forward and backward, in each level of memory, beside PyTorch.

    python -m benchmarks.memory [--only NAME] [--level L2] [--rounds 7] [--kernels] [--write]

Each operator at sizes that lie in the second-level caches, in the third, and in memory: "backward" is the gradients by
every float input for one cotangent, with the value that they need computed again. A time is the median over blocks of
calls recorded together, so that nothing of Python is in it. The floor is every input read once and every output written
once at the bandwidth of that level, measured just before (b = a + 1): of the program, as if it were one kernel, and of
its kernels. `--kernels` shows those too. Rows are sorted by what is lost: seconds above the kernels' floor.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import neoflow as nf
from benchmarks.results import write
from neoflow import dtype as dt
from neoflow.devices import device
from neoflow.measure.roofs import measure_roofs
from neoflow.nn import functional as F
from neoflow.report.kernels import kernel_work
from neoflow.report.machine import processor
from neoflow.runtime.executor import Layout
from neoflow.runtime.device import Recording
from neoflow.tune.roofs import Roofs

BLOCK = 1.5e-3
"""Seconds of a block of calls."""
LEVELS = ("L2", "L3", "memory")


@dataclass(frozen=True)
class Operator:
    """One operator: what it computes of its inputs, the same in PyTorch, shapes by level.

    ids: of the last input, which then has integers below it. has_backward: whether its gradients are a row too.
    """

    name: str
    build: Callable[..., nf.Tensor]
    peer: Callable[..., Any]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    ids: int = 0
    has_backward: bool = True


def square(*sides: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """One input of as many rows as columns."""
    return tuple(((n, n),) for n in sides)


def images(*sizes: tuple[int, int, int, int], channels: int = 0) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """One input of these shapes, and vectors of a value a channel."""
    return tuple((s, *((s[1],) for _ in range(channels))) for s in sizes)


def _batch_norm(x: nf.Tensor, g: nf.Tensor, b: nf.Tensor) -> nf.Tensor:
    zero = nf.placeholder(g.shape)
    return F.batch_norm(x, g, b, zero, zero).y


def _torch_batch_norm(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, None, None, g, b, True)


def _sum(axis: int | tuple[int, ...]) -> tuple[Callable[..., nf.Tensor], Callable[..., torch.Tensor]]:
    return lambda x: nf.sum(x, axis), lambda x: torch.sum(x, axis)


def _turn(*axes: int) -> tuple[Callable[..., nf.Tensor], Callable[..., torch.Tensor]]:
    return lambda x: nf.transpose(x, axes), lambda x: x.permute(axes).contiguous()


MAPS = square(256, 1024, 4096)
ROWS = (((256, 256),), ((1024, 1024),), ((16384, 1024),))
IMAGES = images((1, 64, 28, 28), (16, 64, 28, 28), (64, 64, 56, 56))
LARGE = images((1, 16, 56, 56), (4, 64, 56, 56), (32, 64, 112, 112))
t = torch.nn.functional

OPERATORS = (
    Operator("x+1", lambda x: x + 1.0, lambda x: x + 1.0, MAPS, has_backward=False),
    Operator("x*y+z", lambda x, y, z: x * y + z, lambda x, y, z: torch.addcmul(z, x, y), tuple(3 * s for s in MAPS)),
    Operator("relu", F.relu, torch.relu, MAPS),
    Operator("tanh", nf.tanh, torch.tanh, MAPS),
    Operator("sigmoid", nf.sigmoid, torch.sigmoid, MAPS),
    Operator("gelu", F.gelu, t.gelu, MAPS),
    Operator("exp", nf.exp, torch.exp, MAPS),
    Operator("softmax", F.softmax, lambda x: torch.softmax(x, 1), ROWS),
    Operator(
        "layer norm",
        F.layer_norm,
        lambda x, g, b: t.layer_norm(x, g.shape, g, b),
        tuple((s[0], s[0][1:], s[0][1:]) for s in ROWS),
    ),
    Operator("batch norm", _batch_norm, _torch_batch_norm, tuple((s[0], *((s[0][1],),) * 2) for s in IMAGES)),
    Operator("max pool 2x2", lambda x: F.max_pool(x, 2), lambda x: t.max_pool2d(x, 2), LARGE),
    Operator("max pool 3x3/2", lambda x: F.max_pool(x, 3, 2, 1), lambda x: t.max_pool2d(x, 3, 2, 1), LARGE),
    Operator("avg pool 2x2", lambda x: F.avg_pool(x, 2), lambda x: t.avg_pool2d(x, 2), LARGE),
    Operator("transpose", *_turn(1, 0), MAPS, has_backward=False),
    Operator("NCHW to NHWC", *_turn(0, 2, 3, 1), IMAGES, has_backward=False),
    Operator(
        "NHWC to NCHW",
        *_turn(0, 3, 1, 2),
        images((1, 28, 28, 64), (16, 28, 28, 64), (64, 56, 56, 64)),
        has_backward=False,
    ),
    Operator(
        "heads [0,2,1,3]",
        *_turn(0, 2, 1, 3),
        images((1, 64, 8, 64), (8, 128, 12, 64), (64, 256, 12, 64)),
        has_backward=False,
    ),
    Operator("sum of columns", *_sum(0), ROWS),
    Operator("sum of rows", *_sum(1), ROWS),
    Operator("sum of the middle", *_sum(1), (((4, 128, 128),), ((16, 256, 256),), ((64, 512, 512),))),
    Operator("sum by channel", *_sum((0, 2, 3)), IMAGES),
    Operator(
        "embedding",
        lambda table, ids: F.embedding(table, ids),
        lambda table, ids: t.embedding(ids, table),
        (((512, 128), (512,)), ((10000, 128), (4096,)), ((100000, 256), (65536,))),
        ids=1,
    ),
)


@dataclass(frozen=True)
class Case:
    """An operator at one level, one way: the program, its arrays, and the same in PyTorch."""

    name: str
    level: str
    roots: list[nf.Tensor]
    inputs: list[nf.Tensor]
    arrays: list[np.ndarray]
    peer: Callable[[], Any]


def cases(only: str = "", level: str = "") -> list[Case]:
    """All of them whose names have these in them."""
    found = []
    for operator in OPERATORS:
        for at, shapes in zip(LEVELS, operator.shapes, strict=True):
            for way in ("forward", "backward") if operator.has_backward else ("forward",):
                if only in f"{operator.name} {way}" and level in at:
                    found.append(case_of(operator, at, shapes, way))
    return found


def case_of(operator: Operator, level: str, shapes: Sequence[tuple[int, ...]], way: str) -> Case:
    rng = np.random.default_rng(0)
    types = ["int64" if operator.ids and n == len(shapes) - 1 else "float32" for n in range(len(shapes))]
    inputs = [nf.placeholder(s, d, name=f"x{n}") for n, (s, d) in enumerate(zip(shapes, types, strict=True))]
    y = operator.build(*inputs)
    arrays = [
        rng.integers(0, shapes[0][0], s) if d == "int64" else rng.standard_normal(s).astype(np.float32)
        for s, d in zip(shapes, types, strict=True)
    ]
    held = [torch.from_numpy(a) for a in arrays]
    name = f"{operator.name} {way}"
    if way == "forward":
        return Case(name, level, [y], inputs, arrays, lambda: operator.peer(*held))
    g = nf.placeholder(y.shape, name="g")
    cotangent = rng.standard_normal(y.shape).astype(np.float32)
    floats = [x for x in inputs if x.dtype == "float32"]
    roots = list(nf.vjp(y, floats, g))
    lasting = [h.requires_grad_(h.dtype == torch.float32) for h in held]
    theirs = torch.from_numpy(cotangent)

    def peer() -> Any:
        return torch.autograd.grad(operator.peer(*lasting), [h for h in lasting if h.requires_grad], theirs)

    inputs, arrays = [*inputs, g], [*arrays, cotangent]
    used = [n for n, x in enumerate(inputs) if any(x in _below(r) for r in roots)]
    return Case(name, level, roots, [inputs[n] for n in used], [arrays[n] for n in used], peer)


def _below(root: nf.Tensor) -> set[Any]:
    from neoflow.expr.tensor import topological

    return set(topological([root]))


class Program:
    """A compiled program with its arrays, calls of which are recorded together."""

    def __init__(self, function: Any, arrays: Sequence[np.ndarray]):
        self.results = function(*arrays)
        self._laid, self.function = function._executor._laid, function
        self._place, self._threads = device(), function.threads
        self._calls, self._block = 1, self._recorded(1)
        about = min(self.seconds() for _ in range(4))
        self._calls = max(1, min(2000, round(BLOCK / about)))
        self._block = self._recorded(self._calls)
        self._timed = self._recorded(1, True)

    def _recorded(self, calls: int, timed: bool = False) -> Recording:
        laid, launches = self._laid, list(self._laid.layout.launches) * calls
        return self._place.record(launches, laid.table, laid.status, self._threads, timed=timed)

    def seconds(self) -> float:
        """Of a call, over one block."""
        start = time.perf_counter()
        self._block.run()
        return (time.perf_counter() - start) / self._calls

    def kernels(self) -> list[float]:
        """Of each call of a kernel, in one run."""
        self._timed.run()
        found = [0.0] * len(self._laid.plan.calls)
        for launch, spent in zip(self._laid.layout.launches, self._timed.seconds(), strict=True):
            if launch.call is not None:
                found[launch.call] += spent
        return found


def nbytes(tensors: Sequence[nf.Tensor]) -> int:
    return sum(int(np.prod(x.shape)) * dt.itemsize(x.dtype) for x in tensors)

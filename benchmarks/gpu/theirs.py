"""PyTorch on the GPU: eager, captured as a CUDA graph, compiled; always without TF32, as neoflow computes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from benchmarks.gpu.ours import median_seconds
from benchmarks.gpu.rows import Setting
from neoflow.models import find_peer
from neoflow.nn import Model
from neoflow.train.step import RATE

Run = Callable[[], Any]
DEVICE = "cuda"
ABSENT = "no PyTorch here that reaches a GPU"


class Absent(Exception):
    """There is no PyTorch on a GPU."""


def torch() -> Any:
    """The module, set as an expert would: no TF32, cuDNN's fastest algorithms. Raises `Absent`."""
    if importlib.util.find_spec("torch") is None:
        raise Absent(ABSENT)
    import torch as module

    if not module.cuda.is_available():
        raise Absent(ABSENT)
    module.backends.cuda.matmul.allow_tf32 = False
    module.backends.cudnn.allow_tf32 = False
    module.backends.cudnn.benchmark = True
    return module


def on_gpu() -> AbstractContextManager:
    """What makes tensors makes them there."""
    return torch().device(DEVICE)


def tensor(array: np.ndarray) -> Any:
    """A copy of an array on the GPU."""
    return torch().from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def seconds_of(run: Run, setting: Setting) -> float:
    """Of a call, by the GPU's own clock."""
    cuda = torch().cuda

    def block(runs: int) -> float:
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        first.record()
        for _ in range(runs):
            run()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3 / runs

    return median_seconds(block, setting)


def captured(run: Run) -> Run:
    """The same work as one CUDA graph."""
    cuda = torch().cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for _ in range(3):
            run()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        run()
    return graph.replay


def as_it_is(run: Run) -> Run:
    """Called from Python."""
    return run


COMPILED: dict[str, str] = {"max-autotune": "max-autotune", "compiled with CUDA graphs": "reduce-overhead"}
"""Of torch.compile: our name for a mode, and its own."""
CONTENDERS: dict[str, Callable[[Run], Run]] = {
    "eager": as_it_is,
    "eager, one CUDA graph": captured,
    **dict.fromkeys(COMPILED, as_it_is),
}
"""How a step is run; those of `COMPILED` have their loss compiled before."""


def step_of(model: Model, name: str, contender: str) -> tuple[float, Run]:
    """The first loss, and a step of SGD by the model's peer, from the model's parameters, as a contender runs it."""
    module = torch()
    with on_gpu():
        peer: Any = find_peer("torch", name, model.values())
        x, labels = map(tensor, model.example())
        tensors = list(peer.tensors.values())
        if contender in COMPILED:
            peer.objective = module.compile(peer.objective, mode=COMPILED[contender])

        def step() -> Any:
            with module.device(DEVICE):
                loss = peer.objective(x, labels)
            gradients = module.autograd.grad(loss, tensors)
            with module.no_grad():
                module._foreach_add_(tensors, gradients, alpha=-RATE)
            return loss

        first = float(step().item())
        return first, CONTENDERS[contender](step)

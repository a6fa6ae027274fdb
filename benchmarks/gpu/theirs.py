"""PyTorch on the GPU: eager, captured as a CUDA graph, compiled; in TF32 or narrow types where neoflow's row is."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from benchmarks.gpu.ours import median_seconds
from benchmarks.gpu.rows import Setting
from neoflow.contest.kinds import CUDA_GRAPHS, WARM, set_torch
from neoflow.contest.kinds import compiled as by_torch_compile
from neoflow.models import find_peer
from neoflow.nn import Model
from neoflow.train.step import RATE

Run = Callable[[], Any]
DEVICE = "cuda"
ABSENT = "no PyTorch here that reaches a GPU"


class Absent(Exception):
    """There is no PyTorch on a GPU."""


def module() -> Any:
    """PyTorch. Raises `Absent`."""
    if importlib.util.find_spec("torch") is None:
        raise Absent(ABSENT)
    import torch as found

    if not found.cuda.is_available():
        raise Absent(ABSENT)
    return found


def torch(tf32: bool = False) -> Any:
    """PyTorch as an expert sets it: TF32 where a row asks for it, cuDNN's fastest algorithms. Raises `Absent`."""
    found = module()
    set_torch(tries_algorithms=True, tf32=tf32)
    return found


def on_gpu() -> AbstractContextManager:
    """What makes tensors makes them there."""
    return module().device(DEVICE)


def tensor(array: np.ndarray) -> Any:
    """A copy of an array on the GPU."""
    return module().from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def seconds_of(run: Run, setting: Setting) -> float:
    """Of a call, by the GPU's own clock."""
    cuda = module().cuda

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
    """The same work as one CUDA graph, after runs in another stream: what they set up is no part of it."""
    cuda = module().cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for _ in range(WARM):
            run()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        run()
    return graph.replay


def as_it_is(run: Run) -> Run:
    """Called from Python."""
    return run


COMPILED: dict[str, str] = {"max-autotune": "max-autotune", "compiled with CUDA graphs": CUDA_GRAPHS}
"""Of torch.compile: our name for a mode, and its own."""
CONTENDERS: dict[str, Callable[[Run], Run]] = {
    "eager": as_it_is,
    "eager, one CUDA graph": captured,
    **dict.fromkeys(COMPILED, as_it_is),
}
"""How a step is run; those of `COMPILED` have their loss compiled before."""


def step_of(model: Model, name: str, contender: str, precision: str = "fp32") -> tuple[float, Run]:
    """The first loss, and a step of SGD by the model's peer, from the model's parameters, as a contender runs it.

    The forward pass is in autocast where the precision is a narrow type; what it casts is kept for the whole pass
    (weights are cast once), but in a CUDA graph, into which nothing may come that was made before.
    """
    found = torch(precision == "tf32")
    with on_gpu():
        peer: Any = find_peer("torch", name, model.values())
    x, labels = map(tensor, model.example())
    tensors = list(peer.tensors.values())
    objective = peer.objective
    if contender in COMPILED:
        objective = by_torch_compile(objective, (x, labels, *tensors), COMPILED[contender])
    narrow = {"bf16": found.bfloat16, "fp16": found.float16}.get(precision)
    keeps = CONTENDERS[contender] is not captured

    def step() -> Any:
        if contender in COMPILED:  # the graph of the step before is done with its memory
            found.compiler.cudagraph_mark_step_begin()
        if narrow is None:
            loss = objective(x, labels)
        else:
            with found.autocast(DEVICE, dtype=narrow, cache_enabled=keeps):
                loss = objective(x, labels)
        gradients = found.autograd.grad(loss, tensors)
        with found.no_grad():
            found._foreach_add_(tensors, gradients, alpha=-RATE)
        return loss

    first = float(step().item())
    return first, CONTENDERS[contender](step)

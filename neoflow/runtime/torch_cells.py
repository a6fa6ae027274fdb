"""PyTorch's recurrent networks, on memory of ours, by its kernels for CPUs.

Gradients are autograd's: a call that has some keeps the graph of its last run.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from neoflow import dtype as dt
from neoflow.code import Handed

GRADIENT = " gradient"
STATES = {"torch.lstm": "hc", "torch.gru": "h", "torch.rnn_tanh": "h", "torch.rnn_relu": "h"}
"""By name what is carried; the function of the name is of `torch._VF`."""


def tensor(address: int, shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor in that memory, dense."""
    kind = np.dtype(dt.NUMPY[dtype])
    memory: Any = (ctypes.c_byte * max(1, math.prod(shape) * kind.itemsize)).from_address(address)
    return torch.from_numpy(np.frombuffer(memory, kind, math.prod(shape)).reshape(shape))


def run(call: Handed, inputs: Sequence[Any], outputs: Sequence[Any], kept: dict[int, Any]) -> None:
    """See `handed.Made.run`."""
    told = dict(call.attributes)
    if call.implementation.endswith(GRADIENT):
        made = _back(told, inputs, kept[call.ticket])
    else:
        kept.pop(call.ticket, None)
        made = _forward(call, told, inputs, kept)
    with torch.no_grad():
        for there, t in zip(outputs, made, strict=True):
            if t is None:
                there.zero_()
            else:
                there.copy_(t)


def _forward(call: Handed, told: Mapping[str, str], inputs: Sequence[Any], kept: dict[int, Any]) -> Sequence[Any]:
    """All steps of the first state, then every state after the last one."""
    leaves = [t.detach().requires_grad_(n in call.slopes) for n, t in enumerate(inputs)]
    holes = dict(zip(told["holes"].split(), leaves, strict=True))
    with torch.set_grad_enabled(bool(call.slopes)):
        biases = [holes[n] if n in holes else torch.zeros_like(holes["b"]) for n in "ba"] if "b" in holes else []
        states = [holes[s].unsqueeze(0) for s in STATES[call.implementation]]
        first = states if len(states) > 1 else states[0]
        function = getattr(torch._VF, call.implementation.partition(".")[2])
        weights = [holes["w"], holes["u"], *biases]
        ys, *last = function(holes["x"], first, weights, bool(biases), 1, 0.0, bool(call.slopes), False, False)
        made = [ys, *(t.squeeze(0) for t in last)]
    if call.slopes:
        kept[call.ticket] = leaves, made
    return made


def _back(told: Mapping[str, str], inputs: Sequence[Any], forward: Any) -> Sequence[Any]:
    """The cotangents of the inputs that are wanted, from those of the results that are given."""
    leaves, made = forward
    given = [int(n) for n in told["given"].split()]
    wanted = [leaves[int(n)] for n in told["wanted"].split()]
    cotangents = list(inputs[len(inputs) - len(given) :])
    found: Sequence[Any] = torch.autograd.grad(
        [made[n] for n in given], wanted, cotangents, retain_graph=True, allow_unused=True
    )
    return found

"""PyTorch's recurrent networks, on memory of ours: by its kernels for CPUs, and what `torch_cuda` shares with these.

Gradients are autograd's: a call that has some keeps the graph of its last run.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from neoflow import dtype as dt
from neoflow.code import Handed

GRADIENT = " gradient"
STATES = {"torch.lstm": "hc", "torch.gru": "h", "torch.rnn_tanh": "h", "torch.rnn_relu": "h"}
"""By name what is carried; the function of the name is of `torch._VF`."""
WEIGHTS = "wuba"
"""The holes of weights and biases, in the order in which PyTorch takes them."""


Packed = Callable[[Handed, Mapping[str, Any]], Sequence[Any]]
"""Weights and biases of a call as they are wanted, leaves all of them, in the order w u b a; of its holes by name."""


def refusal(_: Any) -> str | None:
    """On a CPU it is there."""
    return None


def on(_: Any) -> Any:
    """See `handed.Made`: this module is one."""
    return sys.modules[__name__]


def tensor(address: int, shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor in that memory, dense."""
    kind = np.dtype(dt.NUMPY[dtype])
    memory: Any = (ctypes.c_byte * max(1, math.prod(shape) * kind.itemsize)).from_address(address)
    return torch.from_numpy(np.frombuffer(memory, kind, math.prod(shape)).reshape(shape))


def run(
    call: Handed,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    kept: dict[int, Any],
    packed: Packed | None = None,
) -> None:
    """See `handed.Made.run`. packed: None: weights are used as they lie."""
    told = dict(call.attributes)
    if call.implementation.endswith(GRADIENT):
        made = _back(told, inputs, kept[call.ticket])
    else:
        kept.pop(call.ticket, None)
        made = _forward(call, told, inputs, kept, packed)
    with torch.no_grad():
        for there, t in zip(outputs, made, strict=True):
            if t is None:
                there.zero_()
            else:
                there.copy_(t)


def _forward(
    call: Handed,
    told: Mapping[str, str],
    inputs: Sequence[Any],
    kept: dict[int, Any],
    packed: Packed | None = None,
) -> Sequence[Any]:
    """All steps of the first state, then every state after the last one."""
    names = told["holes"].split()
    holes = {n: t.detach().requires_grad_(k in call.slopes) for k, (n, t) in enumerate(zip(names, inputs, strict=True))}
    if packed is None:
        biases = [holes[n] if n in holes else torch.zeros_like(holes["b"]) for n in "ba"] if "b" in holes else []
        weights: Sequence[Any] = [holes["w"], holes["u"], *biases]
    else:
        weights = packed(call, holes)
        holes |= {n: t for n, t in zip(WEIGHTS, weights, strict=False) if n in holes}
    with torch.set_grad_enabled(bool(call.slopes)):
        states = [holes[s].unsqueeze(0) for s in STATES[call.implementation]]
        first = states if len(states) > 1 else states[0]
        function = getattr(torch._VF, call.implementation.partition(".")[2])
        trains = bool(call.slopes)
        ys, *last = function(holes["x"], first, weights, len(weights) > 2, 1, 0.0, trains, False, False)
        made = [ys, *(t.squeeze(0) for t in last)]
    if call.slopes:
        kept[call.ticket] = [holes[n] for n in names], made
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

"""Operators of PyTorch that are written in neoflow, each with arguments and with what PyTorch makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

import neoflow as nf
from benchmarks import torch_operator
from benchmarks.torch_operator import capsules_einsum, circulant_fft, gate_linear, involution_einsum
from tests.interop import written
from tests.interop.written import SHAPES


def torch_tropical(x, w):
    windows = x.unfold(2, w.shape[2], 2)
    return (windows[:, None] + w[None, :, :, None]).amax((2, 4))


tropical, attention, lookup, twice = map(
    nf.torch.operator, (written.tropical, written.attention, written.lookup, written.twice)
)
capsules = nf.torch.operator(torch_operator.capsules)
involution = nf.torch.operator(torch_operator.involution)
circulant = nf.torch.operator(written.circulant)
gate = nf.torch.operator(torch_operator.gate)


def torch_attention(q, k, v, scale):
    scores = q @ k.transpose(1, 2) * scale
    return scores.softmax(-1) @ v, scores.argmax(-1)


def torch_lookup(table, ids):
    return torch.tanh(F.embedding(ids, table))


def torch_twice(x, w):
    return torch.tanh(x @ w) @ w.T


@dataclass(frozen=True)
class Example:
    """arguments: shapes of float tensors, or values."""

    operator: Any
    torch: Callable[..., Any]
    arguments: tuple[Any, ...]

    def draw(self, dtype=torch.float64, requires_grad=True, seed=0):
        generator = torch.Generator().manual_seed(seed)

        def drawn(a):
            if not isinstance(a, tuple):
                return a.clone() if isinstance(a, torch.Tensor) else a
            return torch.randn(a, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(requires_grad)

        return [drawn(a) for a in self.arguments]


IDS = torch.tensor(written.IDS)
EXAMPLES = {
    "tropical": Example(tropical, torch_tropical, SHAPES["tropical"]),
    "capsules": Example(capsules, capsules_einsum, ((2, 2, 5, 5, 2, 3), (3, 2, 3, 3, 3, 2), 2)),
    "involution": Example(involution, involution_einsum, ((2, 4, 5, 6), (2, 2, 2, 3, 4, 4))),
    "circulant": Example(circulant, circulant_fft, SHAPES["circulant"]),
    "gate": Example(gate, gate_linear, ((2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,), (4,), (4,))),
    "gate without bias": Example(gate, gate_linear, ((2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,), (4,), None)),
    "attention": Example(attention, torch_attention, SHAPES["attention"]),
    "lookup": Example(lookup, torch_lookup, ((4, 3), IDS)),
    "twice": Example(twice, torch_twice, SHAPES["twice"]),
}

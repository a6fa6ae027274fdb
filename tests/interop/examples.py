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


@nf.torch.operator
def tropical(x, w):
    """y[b,o,t] = max[c,r](x[b,c,2t+r] + w[o,c,r])"""
    return nf.expr("y[b,o,t] = max[c,r](x[b,c,2*t+r] + w[o,c,r])", x=x, w=w)


def torch_tropical(x, w):
    windows = x.unfold(2, w.shape[2], 2)
    return (windows[:, None] + w[None, :, :, None]).amax((2, 4))


capsules = nf.torch.operator(torch_operator.capsules)
involution = nf.torch.operator(torch_operator.involution)
circulant = nf.torch.operator(torch_operator.circulant)
gate = nf.torch.operator(torch_operator.gate)


@nf.torch.operator
def attention(q, k, v, scale: float) -> tuple[nf.Tensor, nf.Tensor]:
    """Two results: values, and the place that weighs most, which is an integer and has no gradient."""
    scores = nf.expr("s[b,i,j] = sum(q[b,i,d] * k[b,j,d])", q=q, k=k) * scale
    weights = nf.nn.functional.softmax(scores)
    return nf.expr("y[b,i,d] = sum(p[b,i,j] * v[b,j,d])", p=weights, v=v), nf.argmax(scores, axis=-1)


def torch_attention(q, k, v, scale):
    scores = q @ k.transpose(1, 2) * scale
    return scores.softmax(-1) @ v, scores.argmax(-1)


@nf.torch.operator
def lookup(table, ids):
    """Reads by data, whose gradient scatters."""
    return nf.expr("y[t,h] = tanh(table[ids[t],h])", table=table, ids=ids)


def torch_lookup(table, ids):
    return torch.tanh(F.embedding(ids, table))


@nf.torch.operator
def twice(x, w):
    """Two products: the first is kept for the backward pass, where it is slow to compute again."""
    h = nf.tanh(nf.expr("h[b,o] = sum(x[b,i] * w[i,o])", x=x, w=w))
    return nf.expr("y[b,i] = sum(h[b,o] * w[i,o])", h=h, w=w)


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


IDS = torch.tensor([1, 0, 3, 3, 2])
EXAMPLES = {
    "tropical": Example(tropical, torch_tropical, ((2, 3, 9), (4, 3, 3))),
    "capsules": Example(capsules, capsules_einsum, ((2, 2, 5, 5, 2, 3), (3, 2, 3, 3, 3, 2), 2)),
    "involution": Example(involution, involution_einsum, ((2, 4, 5, 6), (2, 2, 2, 3, 4, 4))),
    "circulant": Example(circulant, circulant_fft, ((3, 2, 4), (3, 2, 4))),
    "gate": Example(gate, gate_linear, ((2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,), (4,), (4,))),
    "gate without bias": Example(gate, gate_linear, ((2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,), (4,), None)),
    "attention": Example(attention, torch_attention, ((2, 3, 4), (2, 5, 4), (2, 5, 3), 0.5)),
    "lookup": Example(lookup, torch_lookup, ((4, 3), IDS)),
    "twice": Example(twice, torch_twice, ((2, 40), (40, 3))),
}

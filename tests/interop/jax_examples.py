"""Functions of JAX that are written in neoflow, each with arguments and with the same formula in jnp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neoflow as nf


def tropical(x, w):
    return nf.expr("y[b,o,t] = max[c,r](x[b,c,2*t+r] + w[o,c,r])", x=x, w=w)


def jnp_tropical(x, w):
    places = 2 * jnp.arange((x.shape[2] - w.shape[2]) // 2 + 1)[:, None] + jnp.arange(w.shape[2])
    return (x[:, None, :, places] + w[None, :, :, None]).max((2, 4))


def circulant(x, w):
    """Blocks that are given by their first columns."""
    j, k, size = nf.axis(x.shape[1], "j"), nf.axis(x.shape[2], "k"), x.shape[2]
    return nf.compute(
        (x.shape[0], w.shape[0], size),
        lambda b, i, n: nf.sum(x[b, j, k] * w[i, j, (n - k) % size], axis=[j, k]),
        name="y",
    )


def jnp_circulant(x, w):
    k = w.shape[2]
    shifts = (jnp.arange(k)[:, None] - jnp.arange(k)) % k
    return jnp.einsum("bcj,ocij->boi", x, w[:, :, shifts])


def gate(x, h, u, w, bias=None):
    """Multiplicative integration, with a bias or without one."""
    y = nf.expr("y[b,o] = sum(x[b,i] * u[o,i])", x=x, u=u) * nf.expr("y[b,o] = sum(h[b,i] * w[o,i])", h=h, w=w)
    return nf.sigmoid(y if bias is None else y + bias)


def jnp_gate(x, h, u, w, bias=None):
    return jax.nn.sigmoid((x @ u.T) * (h @ w.T) + (0 if bias is None else bias))


def attention(q, k, v, scale: float) -> tuple[nf.Tensor, nf.Tensor]:
    """Two results: values, and the place that weighs most, which is an integer and has no gradient."""
    scores = nf.expr("s[b,i,j] = sum(q[b,i,d] * k[b,j,d])", q=q, k=k) * scale
    weights = nf.nn.functional.softmax(scores)
    return nf.expr("y[b,i,d] = sum(p[b,i,j] * v[b,j,d])", p=weights, v=v), nf.argmax(scores, axis=-1)


def jnp_attention(q, k, v, scale):
    scores = jnp.einsum("bid,bjd->bij", q, k) * scale
    return jnp.einsum("bij,bjd->bid", jax.nn.softmax(scores), v), scores.argmax(-1)


def lookup(table, ids):
    """Reads by data, whose gradient scatters."""
    return nf.expr("y[t,h] = tanh(table[ids[t],h])", table=table, ids=ids)


def jnp_lookup(table, ids):
    return jnp.tanh(table[ids])


def twice(x, w):
    """Two products: the first is kept for the backward pass, where it is slow to compute again."""
    h = nf.tanh(nf.expr("h[b,o] = sum(x[b,i] * w[i,o])", x=x, w=w))
    return nf.expr("y[b,i] = sum(h[b,o] * w[i,o])", h=h, w=w)


def jnp_twice(x, w):
    return jnp.tanh(x @ w) @ w.T


@dataclass(frozen=True)
class Example:
    """arguments: shapes of float arrays, or values."""

    written: Callable[..., Any]
    jnp: Callable[..., Any]
    arguments: tuple[Any, ...]

    def draw(self, seed=0):
        """Arrays in place of shapes; the numbers of those."""
        generator = np.random.default_rng(seed)
        drawn = [jnp.asarray(generator.normal(size=a)) if isinstance(a, tuple) else a for a in self.arguments]
        return drawn, [n for n, a in enumerate(self.arguments) if isinstance(a, tuple)]


IDS = np.array([1, 0, 3, 3, 2], np.int32)
EXAMPLES = {
    "tropical": Example(tropical, jnp_tropical, ((2, 3, 9), (4, 3, 3))),
    "circulant": Example(circulant, jnp_circulant, ((3, 2, 4), (3, 2, 4))),
    "gate": Example(gate, jnp_gate, ((2, 3), (2, 4), (4, 3), (4, 4), (4,))),
    "gate without bias": Example(gate, jnp_gate, ((2, 3), (2, 4), (4, 3), (4, 4), None)),
    "attention": Example(attention, jnp_attention, ((2, 3, 4), (2, 5, 4), (2, 5, 3), 0.5)),
    "lookup": Example(lookup, jnp_lookup, ((4, 3), IDS)),
    "twice": Example(twice, jnp_twice, ((2, 40), (40, 3))),
}

"""Functions of JAX that are written in neoflow, each with arguments and with the same formula in jnp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neoflow as nf
from tests.interop import written
from tests.interop.written import SHAPES, attention, circulant, lookup, tropical, twice


def jnp_tropical(x, w):
    places = 2 * jnp.arange((x.shape[2] - w.shape[2]) // 2 + 1)[:, None] + jnp.arange(w.shape[2])
    return (x[:, None, :, places] + w[None, :, :, None]).max((2, 4))


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


def jnp_attention(q, k, v, scale):
    scores = jnp.einsum("bid,bjd->bij", q, k) * scale
    return jnp.einsum("bij,bjd->bid", jax.nn.softmax(scores), v), scores.argmax(-1)


def jnp_lookup(table, ids):
    return jnp.tanh(table[ids])


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


IDS = np.array(written.IDS, np.int32)
EXAMPLES = {
    "tropical": Example(tropical, jnp_tropical, SHAPES["tropical"]),
    "circulant": Example(circulant, jnp_circulant, SHAPES["circulant"]),
    "gate": Example(gate, jnp_gate, ((2, 3), (2, 4), (4, 3), (4, 4), (4,))),
    "gate without bias": Example(gate, jnp_gate, ((2, 3), (2, 4), (4, 3), (4, 4), None)),
    "attention": Example(attention, jnp_attention, SHAPES["attention"]),
    "lookup": Example(lookup, jnp_lookup, ((4, 3), IDS)),
    "twice": Example(twice, jnp_twice, SHAPES["twice"]),
}

"""The transformer encoder of `models/bert.py` in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax_base import Network, Tensors, linear

DEPTH = 64
"""Columns of a head."""


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    """Over the last axis, by its biased variance."""
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-12) * gamma + beta


class Bert(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [B, S, E] -> logits [B, classes]."""
        for n in range(sum(name.endswith("qkv_w") for name in p)):
            prefix = f"layer.{n}."
            x = encoder_layer(x, {key.removeprefix(prefix): t for key, t in p.items() if key.startswith(prefix)})
        return linear(x.mean(1), p["out_w"], p["out_b"]), state


def encoder_layer(x: Array, p: Tensors) -> Array:
    """Attention, then two linear maps with a gelu between, each added and normalised: x [B, S, E] -> [B, S, E]."""
    batch, length, width = x.shape
    q, k, v = linear(x, p["qkv_w"], p["qkv_b"]).reshape(batch, length, 3, -1, DEPTH).transpose(2, 0, 3, 1, 4)
    weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / DEPTH**0.5)
    a = jnp.einsum("bhqk,bhkd->bqhd", weights, v).reshape(batch, length, width)
    x = layer_norm(x + linear(a, p["o_w"], p["o_b"]), p["n1.gamma"], p["n1.beta"])
    inner = jax.nn.gelu(linear(x, p["f1_w"], p["f1_b"]), approximate=False)
    return layer_norm(x + linear(inner, p["f2_w"], p["f2_b"]), p["n2.gamma"], p["n2.beta"])


Peer = Bert
"""The name `neoflow bench` looks for."""

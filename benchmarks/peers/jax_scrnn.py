"""The structurally constrained recurrent network of `models/scrnn.py` in JAX, unrolled."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.nn import sigmoid
from jax_base import Network, Tensors, linear


class Scrnn(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [T, B, I] -> logits [B, classes]."""
        batch, dtype = x.shape[1], p["u_w"].dtype
        s, h = jnp.zeros((batch, len(p["b_w"])), dtype), jnp.zeros((batch, len(p["u_w"])), dtype)
        for step in x:
            s = 0.5 * linear(step, p["b_w"], p["b_b"]) + 0.5 * s
            a = sigmoid(linear(jnp.concatenate([s, step, h], axis=1), p["p_w"], p["p_b"]))
            h = linear(a, p["u_w"], p["u_b"]) + linear(s, p["v_w"], p["v_b"])
        return linear(h, p["out_w"], p["out_b"]), state


Peer = Scrnn
"""The name `neoflow bench` looks for."""

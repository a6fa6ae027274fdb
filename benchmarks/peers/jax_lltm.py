"""The long-long-term memory of `models/lltm.py` in JAX, unrolled."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.nn import elu, sigmoid
from jax_base import Network, Tensors, linear


class Lltm(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [T, B, I] -> logits [B, classes]; gates in the order i, o, z."""
        h = c = jnp.zeros((x.shape[1], len(p["w"]) // 3), p["w"].dtype)
        for step in x:
            i, o, z = jnp.split(linear(jnp.concatenate([step, h], axis=1), p["w"], p["b"]), 3, axis=1)
            c = c + elu(z) * sigmoid(i)
            h = jnp.tanh(c) * sigmoid(o)
        return linear(h, p["out_w"], p["out_b"]), state


Peer = Lltm
"""The name `neoflow bench` looks for."""

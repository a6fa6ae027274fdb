"""The LSTM with gates that subtract of `models/sublstm.py` in JAX, unrolled."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.nn import sigmoid
from jax_base import Network, Tensors, linear


class SubLstm(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [T, B, I] -> logits [B, classes]; gates in the order i, f, z, o."""
        h = c = jnp.zeros((x.shape[1], p["wh"].shape[1]), p["wh"].dtype)
        for step in x:
            gates = sigmoid(linear(step, p["wx"], p["bx"]) + linear(h, p["wh"], p["bh"]))
            i, f, z, o = jnp.split(gates, 4, axis=1)
            c = f * c + z - i
            h = sigmoid(c) - o
        return linear(h, p["out_w"], p["out_b"]), state


Peer = SubLstm
"""The name `neoflow bench` looks for."""

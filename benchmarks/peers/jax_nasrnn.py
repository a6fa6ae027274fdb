"""The searched recurrent cell of `models/nasrnn.py` in JAX, unrolled."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.nn import relu, sigmoid
from jax_base import Network, Tensors, linear


class NasRnn(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [T, B, I] -> logits [B, classes]."""
        h = jnp.zeros((x.shape[1], p["wh"].shape[1]), p["wh"].dtype)
        for step in x:
            t = jnp.split(step @ p["wx"].T + h @ p["wh"].T, 8, axis=1)
            m0 = relu(t[0]) + sigmoid(t[3])
            m1 = sigmoid(t[1]) + jnp.tanh(t[2])
            m2 = sigmoid(t[4]) * jnp.tanh(t[5])
            m3 = sigmoid(t[6]) * relu(t[7])
            left = jnp.tanh(sigmoid(m1) + jnp.tanh(m2))
            h = jnp.tanh(left * jnp.tanh(jnp.tanh(m0) * jnp.tanh(m3)))
        return linear(h, p["out_w"], p["out_b"]), state


Peer = NasRnn
"""The name `neoflow bench` looks for."""

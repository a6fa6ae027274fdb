"""The LSTM with multiplicative integration of `models/mi_lstm.py` in JAX, unrolled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax_base import Network, Tensors, linear


class MiLstm(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [T, B, I] -> logits [B, classes], words [T, B] -> [T, B, words]; gates in the order i, f, o, z."""
        states = []
        of_words = "embedding" in p
        x = p["embedding"][x] if of_words else x
        h = c = jnp.zeros((x.shape[1], p["wh"].shape[1]), p["wh"].dtype)
        for step in x:
            u, g = linear(step, p["wx"], p["bx"]), linear(h, p["wh"], p["bh"])
            i, f, o, z = jnp.split(p["alpha"] * u * g + p["beta1"] * u + p["beta2"] * g, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            states.append(h)
        return linear(jnp.stack(states) if of_words else h, p["out_w"], p["out_b"]), state


Peer = MiLstm
"""The name `neoflow bench` looks for."""

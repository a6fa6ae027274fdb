"""The language model of `models/ptb_lstm.py` in JAX, unrolled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax_base import Network, Tensors, linear

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def layer(xs: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array) -> Array:
    """One layer over all steps: [T, B, I] -> [T, B, H]; gates in the order i, f, z, o."""
    h = c = jnp.zeros((xs.shape[1], w_hh.shape[1]), w_hh.dtype)
    outputs = []
    for x in xs:
        i, f, z, o = jnp.split(linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh), 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        outputs.append(h)
    return jnp.stack(outputs)


class PtbLstm(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """Word numbers [T, B] -> logits [T, B, V]."""
        outputs = p["embedding"][x]
        for n in range(sum(name.startswith("lstm.weight_ih") for name in p)):
            outputs = layer(outputs, *(p[f"lstm.{key}_l{n}"] for key in WEIGHTS))
        return linear(outputs, p["out_w"], p["out_b"]), state


Peer = PtbLstm
"""The name `neoflow bench` looks for."""

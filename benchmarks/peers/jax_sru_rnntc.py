"""The simple recurrent unit of `models/sru_rnntc.py` in JAX, unrolled."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.nn import sigmoid
from jax_base import Network, Tensors, linear


class SruRnntc(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [T, B, E] -> logits [B, classes]; the products of all steps are one, which the recurrence allows."""
        u, f, r = jnp.split(x @ p["w0"].T, 3, axis=2)
        f, r = sigmoid(f), sigmoid(r)
        c = jnp.zeros_like(u[0])
        for t in range(len(x)):
            c = f[t] * c + (1 - f[t]) * u[t]
        return linear(r[-1] * c + (1 - r[-1]) * x[-1], p["out_w"], p["out_b"]), state


Peer = SruRnntc
"""The name `neoflow bench` looks for."""

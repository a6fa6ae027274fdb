"""The convolution of capsules of `models/capsconv.py` in JAX: an ordinary one, as in the peer of capsnet."""

from __future__ import annotations

from jax import Array
from jax_base import Operator, Tensors
from jax_capsnet import capsule_conv


class CapsConv(Operator):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """[B, C, H, W, I, K] -> [B, O, P, Q, I, J]."""
        a = x.transpose(4, 0, 2, 3, 5, 1)
        y = capsule_conv(a.reshape(*a.shape[:4], -1), p["w"])
        y = y.reshape(*y.shape[:4], x.shape[5], -1)  # [I, B, P, Q, J, O]
        return y.transpose(1, 5, 2, 3, 0, 4), state


Peer = CapsConv
"""The name `neoflow bench` looks for."""

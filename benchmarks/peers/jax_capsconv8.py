"""The convolution of capsules of `models/capsconv8.py` in JAX: one convolution to all elements."""

from __future__ import annotations

from jax import Array
from jax_base import Operator, Tensors, convolution


class CapsConv8(Operator):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """[B, C, H, W] -> [B, O, P, Q, N]."""
        elements, outputs, *kernel = p["w"].shape
        w = p["w"].reshape(elements * outputs, *kernel)
        y = convolution(x.transpose(0, 2, 3, 1), w, 2, is_padded=False)
        return y.reshape(*y.shape[:3], elements, outputs).transpose(0, 4, 1, 2, 3), state


Peer = CapsConv8
"""The name `neoflow bench` looks for."""

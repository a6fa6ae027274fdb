"""The MobileNet of `models/mobilenet.py` in JAX."""

from __future__ import annotations

from jax import Array
from jax.nn import relu
from jax_base import ConvNet, Forward, Tensors


class MobileNet(ConvNet):
    def features(self, forward: Forward, x: Array) -> Array:
        """x [B, H, W, 3] -> [B, P, Q, channels]."""
        for n in range(sum(name.startswith("body.") and name.endswith(".0.weight") for name in forward.p)):
            x = relu(forward.conv(x, f"body.{n}", stride(forward.p, n)))
        return x


def stride(p: Tensors, n: int) -> int:
    """2 of the first, and of a depthwise one (but the first) where the 1x1 after it doubles the channels."""
    if n < 2 or n % 2 == 0:
        return 2 if n == 0 else 1
    outputs, inputs, *_ = p[f"body.{n + 1}.0.weight"].shape
    return outputs // inputs


Peer = MobileNet
"""The name `neoflow bench` looks for."""

"""The residual networks of `models/resnet.py` in JAX: as deep and in as many groups as the parameters say."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.nn import relu
from jax_base import ConvNet, Forward, pool


class ResNet(ConvNet):
    def features(self, forward: Forward, x: Array) -> Array:
        """x [B, H, W, 3] -> [B, P, Q, channels]."""
        y = pool(relu(forward.conv(x, "stem.0", stride=2)), -jnp.inf, lax.max)
        for n in range(sum(name.startswith("blocks.") and name.endswith("body.0.0.weight") for name in forward.p)):
            y = block(forward, y, n)
        return y


def block(forward: Forward, x: Array, n: int) -> Array:
    """Two 3x3 convolutions, or one between two of 1x1; a block that changes the size has the stride in its 3x3."""
    name = f"blocks.{n}"
    short, wide = f"{name}.short.0.weight" in forward.p, f"{name}.body.2.0.weight" in forward.p
    stride = 2 if short and n > 0 else 1
    y = x
    for k, s in enumerate((1, stride, 1) if wide else (stride, 1)):
        y = forward.conv(relu(y) if k else y, f"{name}.body.{k}", s)
    return relu(y + (forward.conv(x, f"{name}.short", stride) if short else x))


Peer = ResNet
"""The name `neoflow bench` looks for."""

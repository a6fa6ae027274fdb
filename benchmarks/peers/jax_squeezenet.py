"""The SqueezeNet of `models/squeezenet.py` in JAX; x [B, H, W, C] inside."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.nn import relu
from jax_base import Network, Tensors, convolution, pool


class SqueezeNet(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [B, 3, H, W] -> logits [B, classes]; a pooling stands where a number is left out."""
        fires = {int(name.split(".")[1]) for name in p if name.startswith("body.")}
        y = max_pool(relu(conv(p, x.transpose(0, 2, 3, 1), "conv1", stride=2)))
        for n in range(1, max(fires) + 1):
            y = fire(p, y, f"body.{n}") if n in fires else max_pool(y)
        return relu(conv(p, y, "conv10")).mean((1, 2)), state


def conv(p: Tensors, x: Array, name: str, stride: int = 1) -> Array:
    """Of its own size with stride 1."""
    return convolution(x, p[f"{name}.weight"], stride) + p[f"{name}.bias"]


def max_pool(x: Array) -> Array:
    """Windows of 3x3, stride 2."""
    return pool(x, -jnp.inf, lax.max, pad=0)


def fire(p: Tensors, x: Array, name: str) -> Array:
    """A 1x1 to few channels, a 3x3 and a 1x1 side by side, added to x or to a 1x1 of it."""
    s = relu(conv(p, x, f"{name}.squeeze"))
    y = relu(jnp.concatenate([conv(p, s, f"{name}.e3"), conv(p, s, f"{name}.e1")], axis=-1))
    return y + (relu(conv(p, x, f"{name}.bypass")) if f"{name}.bypass.weight" in p else x)


Peer = SqueezeNet
"""The name `neoflow bench` looks for."""

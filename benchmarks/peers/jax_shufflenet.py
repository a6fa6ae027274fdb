"""The ShuffleNet of `models/shufflenet.py` in JAX."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.nn import relu
from jax_base import ConvNet, Forward, pool


def shuffle(x: Array, groups: int) -> Array:
    """Channels viewed as [groups, C / groups] and transposed: x [B, H, W, C]."""
    return x.reshape(*x.shape[:3], groups, -1).swapaxes(3, 4).reshape(x.shape)


class ShuffleNet(ConvNet):
    def features(self, forward: Forward, x: Array) -> Array:
        """x [B, H, W, 3] -> [B, P, Q, channels]."""
        y = pool(relu(forward.conv(x, "stem.0", stride=2)), -jnp.inf, lax.max)
        for n in range(sum(name.endswith(".a.0.weight") for name in forward.p)):
            y = unit(forward, y, f"units.{n}")
        return y


def unit(forward: Forward, x: Array, name: str) -> Array:
    """A bottleneck with a shuffle, added to its input; or beside the pooled input, where it changes the size."""
    middle, inner = len(forward.p[f"{name}.b.0.weight"]), forward.p[f"{name}.c.0.weight"].shape[1]
    stride = 1 if x.shape[-1] == 4 * middle else 2
    y = relu(forward.conv(x, f"{name}.a"))
    y = forward.conv(shuffle(y, middle // inner), f"{name}.b", stride)
    y = forward.conv(y, f"{name}.c")
    return relu(x + y if stride == 1 else jnp.concatenate([pool(x, 0.0, lax.add) / 9, y], axis=-1))


Peer = ShuffleNet
"""The name `neoflow bench` looks for."""

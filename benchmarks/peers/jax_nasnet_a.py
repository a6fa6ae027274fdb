"""The NASNet-A of `models/nasnet_a.py` in JAX; x [B, H, W, C] inside."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.nn import relu
from jax_base import Network, Tensors, convolution, linear, pool


class NasNet(Network):
    def scores(self, p: Tensors, state: Tensors, x: Array, training: bool) -> tuple[Array, Tensors]:
        """x [B, 3, H, W] -> logits [B, classes]; a cell whose first kernel is 7x7 halves the image and ends a stage."""
        y = relu(convolution(x.transpose(0, 2, 3, 1), p["stem.weight"], 2))
        prev = cur = pool(y, -jnp.inf, lax.max)
        for n in range(sum(name.endswith("cur.weight") for name in p)):
            name = f"cells.{n}"
            ours = [relu(convolution(y, p[f"{name}.{key}.weight"])) for key, y in (("cur", cur), ("prev", prev))]
            if p[f"{name}.sep.0.0.weight"].shape[-1] == 7:
                prev = cur = reduction(p, *ours, name)
            else:
                prev, cur = cur, normal(p, *ours, name)
        return linear(cur.mean((1, 2)), p["fc.weight"], p["fc.bias"]), state


def avg(x: Array, stride: int = 1) -> Array:
    """Means of windows of 3x3, without their padding."""
    return pool(x, 0.0, lax.add, stride) / pool(jnp.ones_like(x[:1, :, :, :1]), 0.0, lax.add, stride)


def sep(p: Tensors, x: Array, name: str, stride: int = 1) -> Array:
    """A depthwise convolution, then a 1x1."""
    return convolution(convolution(x, p[f"{name}.0.weight"], stride), p[f"{name}.1.weight"])


def normal(w: Tensors, c: Array, p: Array, name: str) -> Array:
    """[B, H, W, C] twice -> [B, H, W, 5C]."""
    s = [sep(w, x, f"{name}.sep.{n}") for n, x in enumerate((c, p, c, p, p))]
    mean = avg(p)
    return jnp.concatenate([s[0] + c, s[1] + s[2], avg(c) + p, mean + mean, s[3] + s[4]], axis=-1)


def reduction(w: Tensors, c: Array, p: Array, name: str) -> Array:
    """[B, H, W, C] twice -> [B, H/2, W/2, 5C]."""
    s = [sep(w, x, f"{name}.sep.{n}", 2) for n, x in enumerate((p, c, p, p))]
    largest, o0 = pool(c, -jnp.inf, lax.max), s[0] + s[1]
    o1, o2 = largest + s[2], avg(c, 2) + s[3]
    return jnp.concatenate([o0, o1, o2, largest + sep(w, o0, f"{name}.sep.4"), avg(o0) + o1], axis=-1)


Peer = NasNet
"""The name `neoflow bench` looks for."""

"""The Inception of `models/inception_v3.py` in JAX."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.nn import relu
from jax_base import ConvNet, Forward, pool


class Inception(ConvNet):
    eps = 1e-3

    def features(self, forward: Forward, x: Array) -> Array:
        """x [B, H, W, 3] -> [B, P, Q, channels]."""
        y = conv(forward, x, "0", 2, False)
        y = conv(forward, conv(forward, y, "1", is_padded=False), "2")
        y = conv(forward, max_pool(y), "4")
        y = max_pool(conv(forward, y, "5", is_padded=False))
        last = max(int(name.split(".")[1]) for name in forward.p if name.startswith("body."))
        for n in range(7, last - 1):
            y = block(forward, y, f"{n}.b")
        for n in (last - 1, last):
            y = forked(forward, y, f"{n}.b")
        return y


def conv(forward: Forward, x: Array, name: str, stride: int = 1, is_padded: bool = True) -> Array:
    return relu(forward.conv(x, f"body.{name}", stride, is_padded))


def max_pool(x: Array) -> Array:
    return pool(x, -jnp.inf, lax.max, pad=0)


def block(forward: Forward, x: Array, name: str) -> Array:
    """Branches side by side; with one that is pooled, or, where there is none, halving the image."""
    branches = sorted({n.split(".")[3] for n in forward.p if n.startswith(f"body.{name}.")})
    is_halving = len(branches) == 2
    parts = [chain(forward, x, f"{name}.{n}", is_halving) for n in branches[: 2 if is_halving else -1]]
    parts.append(max_pool(x) if is_halving else pooled(forward, x, f"{name}.3"))
    return jnp.concatenate(parts, axis=-1)


def chain(forward: Forward, x: Array, name: str, is_halving: bool) -> Array:
    """One convolution after another, the last of stride 2 where the image is halved."""
    count = sum(f"body.{name}.{n}.0.weight" in forward.p for n in range(5))
    names = [f"{name}.{n}" for n in range(count)] or [name]
    for inner in names[:-1]:
        x = conv(forward, x, inner)
    return conv(forward, x, names[-1], 2 if is_halving else 1, not is_halving)


def pooled(forward: Forward, x: Array, name: str) -> Array:
    return conv(forward, pool(x, 0.0, lax.add, stride=1) / 9, name)


def forked(forward: Forward, x: Array, name: str) -> Array:
    """Two of the branches end in a row and a column of 3, side by side."""
    first = conv(forward, x, f"{name}.1.stem")
    second = conv(forward, conv(forward, x, f"{name}.2.stem.0"), f"{name}.2.stem.1")
    forks = [conv(forward, y, f"{name}.{n}.{side}") for n, y in ((1, first), (2, second)) for side in "lr"]
    parts = [conv(forward, x, f"{name}.0"), *forks, pooled(forward, x, f"{name}.3")]
    return jnp.concatenate(parts, axis=-1)


Peer = Inception
"""The name `neoflow bench` looks for."""

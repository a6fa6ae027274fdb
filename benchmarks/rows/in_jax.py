"""The forms in JAX, each row one function that is compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks.rows.cases import Row

NAME = "jax"
Run = Callable[[], Sequence[Array]]


def _matmul(a: Array, b: Array, left: str, right: str) -> Array:
    return (a if left == "mk" else a.T) @ (b if right == "kn" else b.T)


def _convolution(x: Array, w: Array, stride: int = 2, padding: int = 0, groups: int = 1) -> Array:
    sides = [(padding, padding)] * 2
    return lax.conv_general_dilated(x, w, (stride, stride), sides, feature_group_count=groups)


def _capsule(x: Array, w: Array) -> Array:
    """As one convolution of b i images with c k channels."""
    b, c, height, width, i, k = x.shape
    o, _, r, s, _, j = w.shape
    planes = x.transpose(0, 4, 1, 5, 2, 3).reshape(b * i, c * k, height, width)
    y = _convolution(planes, w.transpose(0, 5, 1, 4, 2, 3).reshape(o * j, c * k, r, s))
    return y.reshape(b, i, o, j, *y.shape[2:]).transpose(0, 2, 4, 5, 1, 3)


def _normalized(x: Array, axes: tuple[int, ...]) -> Array:
    return (x - x.mean(axes, keepdims=True)) * lax.rsqrt(x.var(axes, keepdims=True) + 1e-5)


def _batch_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return _normalized(x, (0, 2, 3)) * gamma[:, None, None] + beta[:, None, None]


def _max_pool(x: Array) -> Array:
    sides = ((0, 0), (0, 0), (1, 1), (1, 1))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), sides)


def _lstm(x: Array, h: Array, c: Array, wx: Array, wh: Array, bias: Array) -> tuple[Array, ...]:
    return _gates(x @ wx.T + bias + h @ wh.T, c, "ifgo")


def _mi_lstm(
    x: Array, h: Array, c: Array, wx: Array, wh: Array, bx: Array, bh: Array, *scales: Array
) -> tuple[Array, ...]:
    alpha, one, two = scales
    u, g = x @ wx.T + bx, h @ wh.T + bh
    return _gates(alpha * u * g + one * u + two * g, c, "ifog")


def _gates(pre: Array, c: Array, order: str) -> tuple[Array, ...]:
    at = dict(zip(order, jnp.split(pre, 4, axis=1), strict=True))
    new = jax.nn.sigmoid(at["f"]) * c + jax.nn.sigmoid(at["i"]) * jnp.tanh(at["g"])
    return jax.nn.sigmoid(at["o"]) * jnp.tanh(new), new


FORMS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "batched": jnp.matmul,
    "convolution": _convolution,
    "capsule": _capsule,
    "capsules_by_convolutions": lambda x, w: jnp.stack([_convolution(x, v) for v in w], 1),
    "softmax": jax.nn.softmax,
    "layer_norm": lambda x, g, b: _normalized(x, (1,)) * g + b,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "tanh": jnp.tanh,
    "batch_norm": _batch_norm,
    "max_pool": _max_pool,
    "lstm": _lstm,
    "mi_lstm": _mi_lstm,
    "embedding": lambda table, ids: table[ids],
}


def prepared(
    row: Row,
    arrays: Sequence[np.ndarray],
    is_compiled: bool = True,
    forms: Mapping[str, Callable[..., Any]] = FORMS,
) -> Run:
    """What a call computes, all of it done on return."""
    held = [jax.device_put(a) for a in arrays]

    def whole(*arrays: Array) -> tuple[Array, ...]:
        given, cotangents = list(arrays[: len(row.shapes)]), arrays[len(row.shapes) :]

        def values(*chosen: Array) -> tuple[Array, ...]:
            for n, a in zip(row.wrt, chosen, strict=True):
                given[n] = a
            made = forms[row.form](*given, **row.options)
            return made if isinstance(made, tuple) else (made,)

        if not row.wrt:
            return values()
        found, pull = jax.vjp(values, *[given[n] for n in row.wrt])
        return (*(found if row.with_value else ()), *pull(tuple(cotangents)))

    compiled = jax.jit(whole) if is_compiled else whole
    return lambda: jax.block_until_ready(compiled(*held))

"""Layer norm over the last dimension: by the mean of squares of what is centred, or of squares less that of the mean.

Source: Ba et al., 2016.
"""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.tensor import Tensor
from neoflow.mapping.cell import Cell, Pattern
from neoflow.nn import functional as F

EPS = 1e-5


def _scaled(z: Tensor, p: dict[str, Tensor]) -> tuple[Tensor]:
    z = z * p["gamma"] if "gamma" in p else z
    return (z + p["beta"] if "beta" in p else z,)


def centred(x: Tensor, eps: float, **p: Tensor) -> tuple[Tensor]:
    """(x - m) / sqrt(mean((x - m)^2) + eps)"""
    z = x - dsl.mean(x, axis=-1, keepdims=True)
    return _scaled(z / dsl.sqrt(dsl.mean(z * z, axis=-1, keepdims=True) + eps), p)


def by_squares(x: Tensor, eps: float, **p: Tensor) -> tuple[Tensor]:
    """The variance as mean(x^2) - m^2."""
    m = dsl.mean(x, axis=-1, keepdims=True)
    variance = dsl.mean(x * x, axis=-1, keepdims=True) - m * m
    return _scaled((x - m) / dsl.sqrt(variance + eps), p)


def implementation(x: Tensor, eps: float, **p: Tensor) -> tuple[Tensor]:
    return (F.layer_norm(x, p.get("gamma"), p.get("beta"), eps),)


FORMS: tuple[Cell, ...] = (by_squares,)
PATTERNS = tuple(
    Pattern("layer norm", {"x": f"{rows}K"} | weights, centred, {}, implementation, {"eps": EPS}, FORMS)
    for rows in ("N", "MN", "LMN")
    for weights in ({"gamma": "K", "beta": "K"}, {"gamma": "K"}, {})
)

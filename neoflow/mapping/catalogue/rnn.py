"""The plain recurrent network: h' = tanh(w x + u h). Source: Elman, 1990."""

from __future__ import annotations

from neoflow.expr.dsl import tanh
from neoflow.expr.shape.join import concat
from neoflow.expr.tensor import Tensor
from neoflow.mapping.pattern import Pattern
from neoflow.nn import functional as F

HOLES = {"x": "BI", "h": "BH", "w": "HI", "u": "HH"}


def cell(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor]:
    """h'"""
    return (tanh(F.linear(x, w) + F.linear(h, u)),)


def joined(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor]:
    """The same by one product."""
    return (tanh(F.linear(concat([x, h], 1), concat([w, u], 1))),)


PATTERNS = (Pattern("RNN", HOLES, cell, {"h": 0}, joined),)

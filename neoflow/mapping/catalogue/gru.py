"""GRU, a product a gate, without biases. Source: Cho et al., 2014."""

from __future__ import annotations

from neoflow.expr.dsl import sigmoid, tanh
from neoflow.expr.tensor import Tensor
from neoflow.mapping.beside import beside
from neoflow.mapping.pattern import Pattern
from neoflow.nn import functional as F

GATES = "rzn"
HOLES = {"x": "BI", "h": "BH"} | {f"w{g}": "HI" for g in GATES} | {f"u{g}": "HH" for g in GATES}


def cell(x: Tensor, h: Tensor, **p: Tensor) -> tuple[Tensor]:
    """h'; the weights of gate g are wg and ug."""
    r, z = (sigmoid(F.linear(x, p[f"w{g}"]) + F.linear(h, p[f"u{g}"])) for g in "rz")
    n = tanh(F.linear(x, p["wn"]) + r * F.linear(h, p["un"]))
    return ((1.0 - z) * n + z * h,)


def joined(x: Tensor, h: Tensor, **p: Tensor) -> tuple[Tensor]:
    """The same by one product of all gates with x and one with h."""
    return (F.gru_cell(x, h, *(beside([p[f"{letter}{g}"] for g in GATES]) for letter in "wu")),)


PATTERNS = (Pattern("GRU", HOLES, cell, {"h": 0}, joined),)

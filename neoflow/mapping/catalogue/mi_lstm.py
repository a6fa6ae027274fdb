"""LSTM with multiplicative integration, a product a gate.

Source: Wu et al., On Multiplicative Integration with Recurrent Neural Networks, 2016, section 2.2.
"""

from __future__ import annotations

from neoflow.expr.dsl import sigmoid, tanh
from neoflow.expr.tensor import Tensor
from neoflow.mapping.beside import beside, order_of
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F

GATES = "ifgo"
VECTORS = "abc"
"""First letters of the names of what weighs both products together, the one with x, the one with h."""
HOLES = {"x": "BI", "h": "BH", "c": "BH"} | {f"w{g}": "HI" for g in GATES} | {f"u{g}": "HH" for g in GATES}
HOLES |= {f"{v}{g}": "H" for v in VECTORS for g in GATES}


def cell(x: Tensor, h: Tensor, c: Tensor, **p: Tensor) -> tuple[Tensor, Tensor]:
    """(h', c'); the weights of gate g are wg and ug."""

    def before(g: str) -> Tensor:
        u, v = F.linear(x, p[f"w{g}"]), F.linear(h, p[f"u{g}"])
        return p[f"a{g}"] * u * v + p[f"b{g}"] * u + p[f"c{g}"] * v

    new = sigmoid(before("f")) * c + sigmoid(before("i")) * tanh(before("g"))
    return sigmoid(before("o")) * tanh(new), new


def joined(x: Tensor, h: Tensor, c: Tensor, **p: Tensor) -> tuple[Tensor, Tensor]:
    """The same by one product of all gates with x and one with h."""
    kinds = {letter: {g: p[f"{letter}{g}"] for g in GATES} for letter in ("w", "u", *VECTORS)}
    gates = order_of(GATES, *kinds.values())
    w, u, a, b, d = (beside([parts[g] for g in gates]) for parts in kinds.values())
    of_x, of_h, size = F.linear(x, w), F.linear(h, u), h.shape[1]
    pre = a * of_x * of_h + b * of_x + d * of_h
    return F.lstm_gates(pre, c, {g: size * n for n, g in enumerate(gates)})


PATTERNS = (Pattern("MI-LSTM", HOLES, cell, {"h": 0, "c": 1}, joined),)

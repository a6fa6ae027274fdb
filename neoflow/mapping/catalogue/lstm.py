"""LSTM, a product a gate; with two biases, as libraries have it, with one, or none.

Source: Hochreiter and Schmidhuber, 1997; Gers et al., 2000.
"""

from __future__ import annotations

from functools import partial

from neoflow.expr.dsl import sigmoid, tanh
from neoflow.expr.tensor import Tensor
from neoflow.mapping.beside import beside, order_of
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F

GATES = "ifgo"
HOLES = {"x": "BI", "h": "BH", "c": "BH"} | {f"w{g}": "HI" for g in GATES} | {f"u{g}": "HH" for g in GATES}
BIASES = ("ba", "b", "")
"""First letters of the names of the biases: two, one, none; what has fewer may be in the holes of what has more."""


def cell(x: Tensor, h: Tensor, c: Tensor, **p: Tensor) -> tuple[Tensor, Tensor]:
    """(h', c'); the weights of gate g are wg and ug, its biases bg, added to the product with x, and ag."""
    pre = {g: F.linear(x, p[f"w{g}"], p.get(f"b{g}")) + F.linear(h, p[f"u{g}"], p.get(f"a{g}")) for g in GATES}
    new = sigmoid(pre["f"]) * c + sigmoid(pre["i"]) * tanh(pre["g"])
    return sigmoid(pre["o"]) * tanh(new), new


def joined(x: Tensor, h: Tensor, c: Tensor, **p: Tensor) -> tuple[Tensor, Tensor]:
    """The same by one product of all gates with x and one with h, the gates in the order in which their weights lie."""
    kinds = {letter: {g: p[f"{letter}{g}"] for g in GATES} for letter in "wuba" if f"{letter}i" in p}
    gates = order_of(GATES, *kinds.values())
    whole = {letter: beside([parts[g] for g in gates]) for letter, parts in kinds.items()}
    return F.lstm_cell(x, h, c, whole["w"], whole["u"], whole.get("b"), whole.get("a"), gates=gates)


def _pattern(biases: str) -> Pattern:
    holes = HOLES | {f"{b}{g}": "H" for b in biases for g in GATES}
    name = f"LSTM, {len(biases)} biases" if biases else "LSTM"
    return Pattern(name, holes, cell, {"h": 0, "c": 1}, joined)


def together(
    x: Tensor, h: Tensor, c: Tensor, u: Tensor, b: Tensor | None = None, gates: str = GATES
) -> tuple[Tensor, Tensor]:
    """(h', c') of what was multiplied of all steps, x, the gates in one product; its own implementation."""
    pre = x + F.linear(h, u) if b is None else x + F.linear(h, u) + b
    return F.lstm_gates(pre, c, {g: h.shape[1] * n for n, g in enumerate(gates)})


def _together(gates: str, with_bias: bool) -> Pattern:
    holes = {"x": "B4H", "h": "BH", "c": "BH", "u": "4HH"} | ({"b": "4H"} if with_bias else {})
    own = partial(together, gates=gates)
    return Pattern(f"LSTM, gates {gates} together", holes, own, {"h": 0, "c": 1}, own)


ORDERS = ("ifgo", "iofg")
"""Of PyTorch and of ONNX."""
PATTERNS = (*map(_pattern, BIASES), *(_together(gates, b) for gates in ORDERS for b in (True, False)))

"""The plain recurrent network: h' = tanh(w x + u h), or with relu. Source: Elman, 1990."""

from __future__ import annotations

from functools import partial

from neoflow.expr import dsl
from neoflow.expr.shape.join import concat
from neoflow.expr.tensor import Tensor
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F

FUNCTIONS = {"tanh": dsl.tanh, "relu": dsl.relu}


def cell(x: Tensor, h: Tensor, w: Tensor, u: Tensor, name: str = "tanh") -> tuple[Tensor]:
    """h'"""
    return (FUNCTIONS[name](F.linear(x, w) + F.linear(h, u)),)


def joined(x: Tensor, h: Tensor, w: Tensor, u: Tensor, name: str = "tanh") -> tuple[Tensor]:
    """The same by one product."""
    return (FUNCTIONS[name](F.linear(concat([x, h], 1), concat([w, u], 1))),)


def projected(x: Tensor, h: Tensor, u: Tensor, name: str = "tanh") -> tuple[Tensor]:
    """The same of what was multiplied of all steps, and is its own implementation."""
    return (FUNCTIONS[name](x + F.linear(h, u)),)


def _patterns(name: str) -> tuple[Pattern, ...]:
    own = "RNN" if name == "tanh" else f"RNN, {name}"
    holes = {"x": "BI", "h": "BH", "w": "HI", "u": "HH"}
    later = {"x": "BH", "h": "BH", "u": "HH"}
    same = partial(projected, name=name)
    return (
        Pattern(own, holes, partial(cell, name=name), {"h": 0}, partial(joined, name=name)),
        Pattern(f"{own}, inputs of all steps", later, same, {"h": 0}, same),
    )


PATTERNS = tuple(p for name in FUNCTIONS for p in _patterns(name))

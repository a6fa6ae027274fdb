"""GRU, a product a gate, without biases. Source: Cho et al., 2014."""

from __future__ import annotations

from neoflow.expr.dsl import sigmoid, tanh
from neoflow.expr.tensor import Tensor
from neoflow.mapping.beside import beside
from neoflow.mapping.cell import Pattern
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


def together(x: Tensor, h: Tensor, v: Tensor, u: Tensor, **p: Tensor) -> tuple[Tensor]:
    """h' of what was multiplied of all steps, x, its gates in the order z, r, n as ONNX has it; v are the weights of
    the first two."""
    return _of_onnx(x, h, v, u, False, **p)


def before(x: Tensor, h: Tensor, v: Tensor, u: Tensor, **p: Tensor) -> tuple[Tensor]:
    """The same where r weighs h before the product."""
    return _of_onnx(x, h, v, u, True, **p)


def _of_onnx(x: Tensor, h: Tensor, v: Tensor, u: Tensor, is_before: bool, **p: Tensor) -> tuple[Tensor]:
    """is_before: whether r weighs h before the product, and not what that gives."""
    size = h.shape[1]
    two = x[:, : 2 * size] + F.linear(h, v)
    two = sigmoid(two + p["b"] if "b" in p else two)
    z, r = two[:, :size], two[:, size:]
    last = F.linear(r * h if is_before else h, u)
    last = last + p["a"] if "a" in p else last
    n = tanh(x[:, 2 * size :] + (last if is_before else r * last))
    return ((1.0 - z) * n + z * h,)


LATER = {"x": "B3H", "h": "BH", "v": "2HH", "u": "HH"}
PATTERNS = (
    Pattern("GRU", HOLES, cell, {"h": 0}, joined),
    *(
        Pattern(f"GRU, gates zrn together{name}", LATER | biases, own, {"h": 0}, own)
        for name, own in (("", together), (", reset before", before))
        for biases in ({"b": "2H", "a": "H"}, {})
    ),
)

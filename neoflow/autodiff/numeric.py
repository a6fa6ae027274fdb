"""Gradients checked against central differences in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neoflow.autodiff.backward import vjp
from neoflow.errors import GradientError
from neoflow.expr import dtype as dt
from neoflow.expr.dsl import placeholder
from neoflow.expr.interp import evaluate
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Constant, Parameter, Placeholder, Tensor, topological


def check_grad(
    y: Tensor,
    wrt: Sequence[Tensor] | Tensor | None = None,
    feeds: dict[Tensor, Any] | None = None,
    *,
    samples: int = 24,
    step: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
) -> float:
    """Compare the symbolic gradient of <y, random cotangent> with central differences, everything in float64.

    wrt: float inputs, and constants, to differentiate by; None means all inputs that y reads.
    feeds: values of inputs; the others are drawn from a normal distribution (integers: 0 or 1).
    samples: elements of each tensor that are checked, at most (random ones).
    Returns the worst |difference| / (atol + rtol * |gradient|), which is <= 1. Raises `GradientError` with the worst
    element.
    """
    if seed < 0 or not step > 0:
        raise GradientError(f"the seed is {seed}, the step {step}; they are at least 0, and above 0")
    rng = np.random.default_rng(seed)
    asked = [wrt] if isinstance(wrt, Tensor) else list(wrt or ())
    constants = {c: Placeholder(c.shape, c.dtype, c.name, c.where) for c in asked if isinstance(c, Constant)}
    if constants:
        y, wrt = _reading(y, constants), [constants.get(t, t) if isinstance(t, Constant) else t for t in asked]
        feeds = {**(feeds or {}), **{p: c.value for c, p in constants.items()}}
    inputs: list[Tensor] = [t for t in topological([y]) if isinstance(t, Placeholder)]
    if wrt is None:
        wrt = [t for t in inputs if dt.is_float(t.dtype)]
    wrt = [wrt] if isinstance(wrt, Tensor) else list(wrt)
    given = feeds or {}
    values = {t: _value(t, given.get(t), rng) for t in inputs}
    cotangent = placeholder(y.shape, y.dtype, "cotangent")
    values[cotangent] = rng.standard_normal(y.shape)
    gradients = evaluate(vjp(y, wrt, cotangent), values, dtype="float64")

    def inner_product() -> float:
        (result,) = evaluate([y], {t: v for t, v in values.items() if t is not cotangent}, dtype="float64")
        return float(np.sum(result * values[cotangent]))

    worst = (0.0, "")
    for tensor, gradient in zip(wrt, gradients, strict=True):
        flat = values[tensor].reshape(-1)
        for n in rng.permutation(tensor.size)[:samples]:
            kept, h = flat[n], step * max(1.0, float(np.abs(flat[n])))
            flat[n] = kept + h
            above = inner_product()
            flat[n] = kept - h
            below = inner_product()
            flat[n] = kept
            numeric, symbolic = (above - below) / (2 * h), float(gradient.reshape(-1)[n])
            error = abs(numeric - symbolic) / (atol + rtol * abs(symbolic))
            if not error <= worst[0]:
                where = ", ".join(str(int(i)) for i in np.unravel_index(n, tensor.shape))
                worst = (
                    error,
                    f"d {y.name} / d {tensor.name}[{where}] is {symbolic:.8g} but differences give {numeric:.8g}",
                )
    if not worst[0] <= 1:
        raise GradientError(worst[1] + f" (allowed: {atol:g} + {rtol:g} * |gradient|)")
    return worst[0]


def _reading(y: Tensor, instead: Mapping[Constant, Placeholder]) -> Tensor:
    """y over other tensors in place of some constants."""
    (made,) = replaced([y], lambda t: instead.get(t) if isinstance(t, Constant) else None)
    return made


def _value(t: Tensor, given: Any, rng: np.random.Generator) -> np.ndarray:
    if given is None and isinstance(t, Parameter) and isinstance(t.init, np.ndarray):
        given = t.init
    if given is None:
        given = rng.standard_normal(t.shape) if dt.is_float(t.dtype) else rng.integers(0, 2, t.shape)
    array = np.array(given, dtype=np.float64 if dt.is_float(t.dtype) else dt.NUMPY[t.dtype])
    if array.size != t.size:
        raise GradientError(f"{t.name} has shape {t.shape}, the array fed for it {array.shape}", t.where)
    return array.reshape(t.shape)

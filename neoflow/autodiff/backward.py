"""Reverse accumulation over a graph of tensors. The result is tensors of the same language, again differentiable."""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.autodiff.adjoint import accumulate, adjoint, adjoint_of_padded, fresh_axes
from neoflow.caller import caller
from neoflow.errors import GradientError
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.ir import Const
from neoflow.expr.tensor import Compute, Tensor, topological


def full(shape: tuple[int, ...], value: float, dtype: str, name: str) -> Compute:
    """A tensor of one value."""
    return define(shape, fresh_axes(shape), Const(value, dtype), name)


def grad(loss: Tensor, wrt: Sequence[Tensor], allow_unused: bool = False) -> list[Tensor]:
    """Gradients of a scalar `loss` (one element) with respect to each of `wrt`, as tensors of their shapes.

    Raises `GradientError` for a loss that is no scalar or no float, and for a tensor the loss does not depend on,
    unless `allow_unused` (then zeros).
    """
    if loss.size != 1:
        raise GradientError(
            f"grad needs a loss of one element; {loss.name} has shape {loss.shape}. Reduce it (nf.mean), or use nf.vjp",
            caller(),
        )
    return vjp(loss, wrt, None, allow_unused)


def vjp(y: Tensor, wrt: Sequence[Tensor], cotangent: Tensor | None = None, allow_unused: bool = False) -> list[Tensor]:
    """Vector-Jacobian products: `cotangent` (shape and dtype of y; None means ones) pulled back to each of `wrt`."""
    if isinstance(wrt, Tensor):
        wrt = [wrt]
    if cotangent is not None and not isinstance(cotangent, Tensor):
        raise GradientError(f"the cotangent of {y.name} is a tensor, not a {type(cotangent).__name__}", caller())
    for t in (y, *wrt):
        if not dt.is_float(t.dtype):
            raise GradientError(f"{t.name} is {t.dtype}: only float tensors have gradients", caller())
    if cotangent is None:
        cotangent = full(y.shape, 1.0, y.dtype, "one")
    if cotangent.shape != y.shape or cotangent.dtype != y.dtype:
        raise GradientError(
            f"the cotangent has {cotangent.dtype}{cotangent.shape}, but {y.name} has {y.dtype}{y.shape}", caller()
        )
    order = topological([y])
    wanted = set(wrt)
    reaches: set[Tensor] = set()
    for t in order:
        if t in wanted or (isinstance(t, Compute) and any(i in reaches for i in t.inputs)):
            reaches.add(t)
    cotangents: dict[Tensor, list[Tensor]] = {y: [cotangent]}
    total: dict[Tensor, Tensor] = {}
    for t in reversed(order):
        if t not in cotangents or t not in reaches:
            continue
        g = total[t] = accumulate(cotangents.pop(t), f"d_{t.name}", t.where)
        if isinstance(t, Compute) and dt.is_float(t.dtype) and any(i in reaches for i in t.inputs):
            for source, part in _contributions(t, g, reaches, wanted):
                cotangents.setdefault(source, []).append(part)
    return [total[t] if t in total else _unreached(t, y, allow_unused) for t in wrt]


def _contributions(t: Compute, g: Tensor, reaches: set[Tensor], wanted: set[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """What `t` with cotangent `g` adds to the cotangents of tensors: of those it reads, past their paddings."""
    found: list[tuple[Tensor, Tensor | None]] = []
    direct: set[int] = set()
    for position, source in enumerate(t.inputs):
        if source not in reaches:
            continue
        if isinstance(source, Compute) and source not in wanted and set(source.inputs).isdisjoint(t.inputs):
            past = adjoint_of_padded(t.definition, position, source.definition)
            if past is not None:
                (x,) = source.inputs
                tensors = (*t.inputs[:position], x, *t.inputs[position + 1 :], t, g)
                found.append((x, past.instantiate(tensors, (f"d_{x.name}",), t.where)[0]))
                continue
        direct.add(position)
    names = [f"d_{source.name}" for source in t.inputs]
    recipe = adjoint(t.definition, frozenset(direct))
    found += zip(t.inputs, recipe.instantiate((*t.inputs, t, g), names, t.where), strict=True)
    return [(source, part) for source, part in found if part is not None]


def _unreached(t: Tensor, y: Tensor, allow_unused: bool) -> Tensor:
    if not allow_unused:
        raise GradientError(
            f"{y.name} does not depend on {t.name} through differentiable operations (integers, conditions, argmax and "
            "rounding have no gradient); pass allow_unused=True to get zeros",
            caller(),
        )
    return full(t.shape, 0.0, t.dtype, f"d_{t.name}")

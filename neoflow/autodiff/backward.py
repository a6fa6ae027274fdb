"""Reverse accumulation over a graph of tensors. The result is tensors of the same language, again differentiable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from neoflow.autodiff.adjoint import accumulate, adjoint, adjoint_of_padded
from neoflow.autodiff.foreign import contributions_of_call
from neoflow.autodiff.loops import contributions_of, full
from neoflow.caller import caller
from neoflow.errors import GradientError
from neoflow.expr import dtype as dt
from neoflow.expr.foreign import Called, Given
from neoflow.expr.memo import memo_of
from neoflow.expr.recurrence import Looped, Run
from neoflow.expr.tensor import Compute, Tensor, topological


@dataclass(frozen=True)
class Pulled:
    """What a gradient is: the cotangent of y pulled back to `wrt`."""

    y: Tensor
    cotangent: Tensor
    wrt: Tensor


def pulled_of(t: Tensor) -> Pulled | None:
    """What a tensor was derived as, where it was."""
    found = memo_of(t).get(Pulled)
    return found if isinstance(found, Pulled) else None


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
    total = pulled([(y, cotangent)], wrt)
    for t, g in total.items():
        memo_of(g)[Pulled] = Pulled(y, cotangent, t)
    return [total[t] if t in total else _unreached(t, y, allow_unused) for t in wrt]


def pulled(given: Sequence[tuple[Tensor, Tensor]], wrt: Collection[Tensor]) -> dict[Tensor, Tensor]:
    """The cotangents of those of `wrt` that tensors depend on, from the cotangents `given` of these."""
    order = topological([t for t, _ in given])
    wanted = set(wrt)
    reaches: set[Tensor] = set()
    for t in order:
        if t in wanted or any(i in reaches for i in t.inputs):
            reaches.add(t)
    cotangents: dict[Tensor, list[Tensor]] = {}
    for t, g in given:
        cotangents.setdefault(t, []).append(g)
    total: dict[Tensor, Tensor] = {}
    left: Counter[Run | Called] = Counter(t.run for t in order if isinstance(t, Looped))
    left.update(t.called for t in order if isinstance(t, Given))
    for t in reversed(order):
        if t in cotangents and t in reaches:
            total[t] = accumulate(cotangents.pop(t), f"d_{t.name}", t.where)
        found: list[tuple[Tensor, Tensor]] = []
        if isinstance(t, Looped):
            left[t.run] -= 1
            if not left[t.run]:  # all that leads out of the run has its cotangent
                led = {s: g for s, g in total.items() if isinstance(s, Looped) and s.run is t.run}
                found = contributions_of(t.run, led, reaches, pulled) if led else []
        elif isinstance(t, Given):
            left[t.called] -= 1
            if not left[t.called]:
                gave = {s: g for s, g in total.items() if isinstance(s, Given) and s.called is t.called}
                found = contributions_of_call(t.called, gave, reaches, pulled) if gave else []
        elif t in total and isinstance(t, Compute) and dt.is_float(t.dtype) and any(i in reaches for i in t.inputs):
            found = _contributions(t, total[t], reaches, wanted)
        for source, part in found:
            cotangents.setdefault(source, []).append(part)
    return {t: total[t] for t in wanted if t in total}


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

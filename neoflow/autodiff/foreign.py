"""The gradient of a foreign call: another one, that the same library computes; and of a gradient what that means."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neoflow.autodiff.loops import Pull
from neoflow.expr import dtype as dt
from neoflow.expr.foreign import GRADIENT, Called, Foreign, Given
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Placeholder, Tensor


def contributions_of_call(
    called: Called, given: Mapping[Given, Tensor], reaches: Collection[Tensor], pull: Pull
) -> list[tuple[Tensor, Tensor]]:
    """What a call adds to the cotangents of its inputs in `reaches`, from those `given` of its results."""
    f = called.foreign
    led = sorted(given, key=lambda t: t.number)
    rows = [Placeholder(t.shape, t.dtype, f"d_{t.name}", t.where) for t in led]
    pairs = list(zip(f.placeholders, called.inputs, strict=True))
    wanted = [p for p, t in pairs if dt.is_float(p.dtype) and t in reaches]
    found = pull([(f.results[t.number], row) for t, row in zip(led, rows, strict=True)], wanted)
    reached = [p for p in wanted if p in found]
    cotangents = [given[t] for t in led]
    if f.forward is not None:  # a gradient of a gradient: by what it means
        bound: dict[Tensor, Tensor] = {**dict(pairs), **dict(zip(rows, cotangents, strict=True))}
        slopes = replaced([found[p] for p in reached], bound.get)
    else:
        after = [Placeholder(t.shape, t.dtype, t.name, t.where) for t in led]  # what it gave: it comes after it
        names = (
            *f.attributes,
            ("given", " ".join(str(t.number) for t in led)),
            ("wanted", " ".join(str(f.placeholders.index(p)) for p in reached)),
        )
        back = Foreign(
            f.implementation + GRADIENT, names, (*f.placeholders, *after, *rows), tuple(found[p] for p in reached), f
        )
        slopes = list(Called(back, (*called.inputs, *led, *cotangents)).results)
    inputs = dict(pairs)
    return [(inputs[p], g) for p, g in zip(reached, slopes, strict=True)]

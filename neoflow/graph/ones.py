"""Vectors that were kept broadcastable, [1, C, 1, 1], as vectors: kernels of them are then of one shape with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Const, Expr, Read, Scatter, Slot, rewrite, substitute
from neoflow.expr.recipe import derived
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import own_indices
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

LEAST_RANK = 3
"""Of what is squeezed: a row of a matrix, [1, N], is one of a batch as often as a vector."""


def _is_padded(shape: tuple[int, ...]) -> bool:
    """Whether only one dimension, and not the first, is longer than 1."""
    return len(shape) >= LEAST_RANK and shape[0] == 1 and sum(n > 1 for n in shape) == 1


def _is_widened(t: Tensor) -> bool:
    """Whether it is a vector with dimensions of length 1 around it, and no more."""
    if not (isinstance(t, Compute) and isinstance(t.definition.body, Read) and _is_padded(t.shape)):
        return False
    (at,) = (i for i, n in zip(own_indices(t.shape), t.shape, strict=True) if n > 1)
    read = t.definition.body
    return len(read.indices) == 1 and read.indices[0] is at and read.source.shape[0] == max(t.shape)


@dataclass(frozen=True)
class DropOnes(Rewrite):
    """What has one dimension longer than 1, and not first, is computed as a vector.

    m[0, c, 0, 0] = sum[b, p, q](x[b, c, p, q])    ->    v[c] = sum[b, p, q](x[b, c, p, q]);  m[0, c, 0, 0] = v[c]
    """

    name: str = "drop ones"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        body = t.definition.body
        if _is_padded(t.shape) and not isinstance(body, (Read, Scatter, Const)) and not editor.is_root(t):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return Verdict(True, f"{list(match.tensors[0].shape)} is a vector")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        place = next(d for d, n in enumerate(t.shape) if n > 1)
        extent = t.shape[place]
        axes: dict[Axis, Expr] = {
            a: Axis(0, extent) if d == place else Const(0, dt.INDEX) for d, a in enumerate(t.definition.axes)
        }
        vector = build((extent,), _free(t, axes), editor.inputs(t), t.name)
        read = Read(Slot(0, (extent,), t.dtype), (Axis(place, extent),))
        return {t: build(t.shape, read, (vector,), derived(t.name, suffix="_wide"))}


def _free(t: Compute, axes: dict[Axis, Expr]) -> Expr:
    """The body of t over other axes; those that it binds get numbers behind them."""
    bound = {a: Axis(n, a.extent) for n, a in enumerate(t.definition.reduction_axes, 1)}
    return substitute(t.definition.body, {**axes, **bound})


@dataclass(frozen=True)
class ReadVectors(Rewrite):
    """Who reads a vector with dimensions of length 1 around it reads the vector.

    m[0, c, 0, 0] = v[c];  y[b, c, p, q] = x[b, c, p, q] - m[0, c, 0, 0]    ->    y[b, c, p, q] = x[b, c, p, q] - v[c]
    """

    name: str = "read vectors"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if any(map(_is_widened, editor.inputs(t))):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        found = next(i for i in editor.inputs(match.tensors[0]) if _is_widened(i))
        return Verdict(True, f"{found.name} is a vector")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        inputs = list(editor.inputs(t))
        known = len(inputs)
        inputs += [editor.inputs(i)[0] if isinstance(i, Compute) and _is_widened(i) else i for i in inputs]

        def rule(e: Expr) -> Expr | None:
            if not (isinstance(e, Read) and isinstance(e.source, Slot) and _is_widened(inputs[e.slot])):
                return None
            vector = inputs[known + e.slot]
            (at,) = (i for i, n in zip(e.indices, e.source.shape, strict=True) if n > 1)
            return Read(Slot(known + e.slot, vector.shape, vector.dtype), (at,))

        return {t: build(t.shape, rewrite(t.definition.body, rule), tuple(inputs), t.name)}

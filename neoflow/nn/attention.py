"""Attention."""

from __future__ import annotations

import math

from neoflow.expr import dsl
from neoflow.expr.dsl import axis
from neoflow.expr.ir import Expr
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Tensor
from neoflow.nn.activation import softmax
from neoflow.nn.tools import compute, describe, expect, leading

__all__ = ["multi_head_attention", "scaled_dot_product_attention"]

_MASKED = -1e30
"""What a masked score becomes: large enough that its weight is exactly 0, finite so that nothing is NaN."""


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(q k^T * scale) v;  q [..., S, D], k [..., T, D], v [..., T, E] -> [..., S, E].

    mask: of type bool, broadcast to [..., S, T]: True where s may see t; or of floats, added to the scores.
    causal: s sees t <= s only. scale: 1 / sqrt(D) unless given. A row that sees nothing gets the mean of all v.
    Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2.1.
    """
    fits = q.rank == k.rank == v.rank >= 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    fits = fits and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]
    expect(fits, f"attention takes q[..., S, D], k[..., T, D] and v[..., T, E], not {describe(q, k, v)}")
    batch, (rows, depth), columns = q.shape[:-2], q.shape[-2:], k.shape[-2]
    names, factor = leading(len(batch)), 1.0 / math.sqrt(depth) if scale is None else scale
    expect(
        mask is None or mask.rank <= q.rank, f"attention: the mask has more dimensions than the scores: {describe(q)}"
    )
    d, t = axis(depth, "d"), axis(columns, "t")
    scores = compute(
        (*batch, rows, columns),
        (*names, "s", "t"),
        lambda ix: dsl.sum(q[(*ix[:-1], d)] * k[(*ix[:-2], ix[-1], d)], axis=[d]),
        "scores",
    )
    weights = softmax(_masked(scores, factor, mask, causal))
    return compute(
        (*batch, rows, v.shape[-1]),
        (*names, "s", "e"),
        lambda ix: dsl.sum(weights[(*ix[:-1], t)] * v[(*ix[:-2], t, ix[-1])], axis=[t]),
        "attention",
    )


def _masked(scores: Tensor, factor: float, mask: Tensor | None, causal: bool) -> Tensor:
    """The scores scaled and masked, element by element."""

    def body(ix: tuple[Expr, ...]) -> Expr:
        score = scores[ix] * factor
        visible = ix[-1] <= ix[-2] if causal else None
        if mask is not None:
            own = ix[len(ix) - mask.rank :]
            given = mask[tuple(0 if n == 1 else i for n, i in zip(mask.shape, own, strict=True))]
            if mask.dtype != "bool":
                score = score + given
            else:
                visible = given if visible is None else visible & given
        return score if visible is None else dsl.select(visible, score, _MASKED)

    return compute(scores.shape, (*leading(scores.rank - 2), "s", "t"), body, "scaled")


def multi_head_attention(
    x: Tensor, qkv_w: Tensor, qkv_b: Tensor, o_w: Tensor, o_b: Tensor, heads: int, mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:  # fmt: skip
    """Self-attention with `heads` heads: x [B, S, E], qkv_w [3E, E], qkv_b [3E], o_w [E, E], o_b [E] -> [B, S, E].

    The rows of qkv_w give q, k and v, each head by head. q, k and v are written as [3, B, heads, S, D] by the
    projection itself, so that nothing is transposed. Source: Vaswani et al., 2017, section 3.2.2.
    """
    expect(x.rank == 3, f"multi_head_attention takes x[B, S, E], not {describe(x)}")
    batch, length, width = x.shape
    expect(
        heads >= 1 and width % heads == 0 and qkv_w.shape == (3 * width, width),
        f"{heads} heads do not fit {describe(x, qkv_w)}",
    )
    depth = width // heads
    w, bias = reshape(qkv_w, (3, heads, depth, width)), reshape(qkv_b, (3, heads, depth))
    e, h, d = axis(width, "e"), axis(heads, "h"), axis(depth, "d")
    projected = dsl.compute(
        (3, batch, heads, length, depth), lambda n, b, h, s, d: dsl.sum(x[b, s, e] * w[n, h, d, e], axis=[e]), "project"
    )
    qkv = dsl.compute(projected.shape, lambda n, b, h, s, d: projected[n, b, h, s, d] + bias[n, h, d], "qkv")
    a = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], mask, causal)
    wo = reshape(o_w, (width, heads, depth))
    y = dsl.compute(x.shape, lambda b, s, o: dsl.sum(a[b, h, s, d] * wo[o, h, d], axis=[h, d]), "output")
    return y + o_b

"""Attention."""

from __future__ import annotations

import math

import numpy as np

from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.constant import constant
from neoflow.expr.dsl import axis, stop_gradient
from neoflow.expr.ir import Expr
from neoflow.expr.scan import scan
from neoflow.expr.shape.fill import full, zeros
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Tensor
from neoflow.nn.activation import softmax
from neoflow.nn.tools import compute, describe, expect, leading

__all__ = ["multi_head_attention", "scaled_dot_product_attention"]

LARGE, BLOCK, LEAST = 1 << 28, 256, 32
"""Bytes of scores from which attention goes through keys in blocks, of so many keys, and of how many at least: as long
as with all scores in memory or a little shorter there, and longer below."""
_MASKED = -1e30
"""What a masked score becomes: large enough that its weight is exactly 0, finite so that nothing is NaN."""


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    block: int | None = None,
) -> Tensor:
    """softmax(q k^T * scale) v;  q [..., S, D], k [..., T, D], v [..., T, E] -> [..., S, E].

    mask: of type bool, broadcast to [..., S, T]: True where s may see t; or of floats, added to the scores.
    causal: s sees t <= s only. scale: 1 / sqrt(D) unless given. A row that sees nothing gets the mean of all v.
    block: keys that are looked at together, a divisor of T: no [S, T] is in memory then, of gradients either; T: all.
    Unless given, all of them up to `LARGE` bytes of scores, beyond that as many as divide T and `BLOCK`.
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
    expect(
        block is None or (block >= 1 and columns % block == 0),
        f"attention: blocks of {block} do not divide {columns} keys",
    )
    block = _block(q, columns) if block is None else block
    if block < columns:
        return _in_blocks(q, k, v, mask, causal, factor, block)
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


def _block(q: Tensor, columns: int) -> int:
    """How many keys are looked at together."""
    whole = math.prod(q.shape[:-1]) * columns * dt.itemsize(q.dtype)
    block = math.gcd(columns, BLOCK)
    return columns if whole < LARGE or block < LEAST else block


def _in_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, factor: float, block: int) -> Tensor:
    """The same, block by block of keys, with the largest score so far, the sum of weights and of weighted values:

        m' = max(m, z),  p = exp(z - m'),  l' = l exp(m - m') + sum(p),  a' = a exp(m - m') + p v;  the last a / l

    Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Rabe and Staats, Self-attention
    does not need O(n^2) memory, 2021.
    """
    batch, (rows, depth), columns, width = q.shape[:-2], q.shape[-2:], k.shape[-2], v.shape[-1]
    names, count = leading(len(batch)), columns // block
    d, t = axis(depth, "d"), axis(block, "t")

    def cut(x: Tensor) -> Tensor:
        """[..., T, D] -> [count, ..., block, D]"""
        shape = (count, *batch, block, x.shape[-1])
        at = ("g", *names, "t", "d")
        return compute(shape, at, lambda ix: x[(*ix[1:-2], ix[0] * block + ix[-2], ix[-1])], f"{x.name}_blocks")

    slices = {"k": cut(k), "v": cut(v)}
    if causal:
        slices["first"] = constant(np.arange(0, columns, block))
    if mask is not None and mask.shape[-1] > 1:
        seen, own = mask, tuple(f"m{n}" for n in range(mask.rank - 1))
        shape = (count, *mask.shape[:-1], block)
        at = ("g", *own, "t")
        slices["mask"] = compute(shape, at, lambda ix: seen[(*ix[1:-1], ix[0] * block + ix[-1])], "mask_blocks")

    def step(old: tuple[Tensor, ...], of: dict[str, Tensor]) -> tuple[tuple[Tensor, ...], tuple[()]]:
        most, total, sums = old
        scores = compute(
            (*batch, rows, block),
            (*names, "s", "t"),
            lambda ix: dsl.sum(q[(*ix[:-1], d)] * of["k"][(*ix[:-2], ix[-1], d)], axis=[d]),
            "scores",
        )
        z = _masked(scores, factor, of.get("mask", mask), causal, of.get("first"))
        top = stop_gradient(dsl.maximum(most, dsl.max(z, axis=-1)))
        p = compute(z.shape, (*names, "s", "t"), lambda ix: dsl.exp(z[ix] - top[ix[:-1]]), "weights")
        less = dsl.exp(most - top)
        part = compute(
            (*batch, rows, width),
            (*names, "s", "e"),
            lambda ix: dsl.sum(p[(*ix[:-1], t)] * of["v"][(*ix[:-2], t, ix[-1])], axis=[t]),
            "part",
        )
        new = compute(sums.shape, (*names, "s", "e"), lambda ix: sums[ix] * less[ix[:-1]] + part[ix], "sums")
        return (top, total * less + dsl.sum(p, axis=-1), new), ()

    shape = (*batch, rows)
    begin = (full(shape, _MASKED, q.dtype), zeros(shape, q.dtype), zeros((*shape, width), q.dtype))
    (_, total, sums), _ = scan(step, begin, slices)
    return compute(sums.shape, (*names, "s", "e"), lambda ix: sums[ix] / total[ix[:-1]], "attention")


def _masked(scores: Tensor, factor: float, mask: Tensor | None, causal: bool, first: Tensor | None = None) -> Tensor:
    """The scores scaled and masked, element by element. first: the number of the first key, where they are some."""

    def body(ix: tuple[Expr, ...]) -> Expr:
        score = scores[ix] * factor
        key = ix[-1] if first is None else first[()] + ix[-1]
        visible = key <= ix[-2] if causal else None
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

"""Matrix products and other contractions, and reads of tables."""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.dsl import axis
from neoflow.expr.shape.indexing import one_hot, take
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Tensor
from neoflow.nn.tools import compute, describe, expect, leading

__all__ = ["block_circulant", "embedding", "linear", "matmul", "mttkrp", "one_hot"]


def linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[..., o] = sum_k x[..., k] w[o, k] + bias[o]; x [..., I], w [O, I], bias [O] -> [..., O]."""
    expect(w.rank == 2 and x.shape[-1:] == w.shape[1:], f"linear takes x[..., I] and w[O, I], not {describe(x, w)}")
    k = axis(x.shape[-1], "k")
    names = (*leading(x.rank - 1), "o")
    y = compute(
        (*x.shape[:-1], w.shape[0]), names, lambda ix: dsl.sum(x[(*ix[:-1], k)] * w[ix[-1], k], axis=[k]), "linear"
    )
    return y if bias is None else y + bias


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """y[..., i, j] = sum_k a[..., i, k] b[..., k, j]; the leading dimensions of both are the same."""
    fits = a.rank == b.rank >= 2 and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]
    expect(fits, f"matmul takes a[..., I, K] and b[..., K, J], not {describe(a, b)}")
    k = axis(a.shape[-1], "k")

    def body(ix):
        *batch, i, j = ix
        return dsl.sum(a[(*batch, i, k)] * b[(*batch, k, j)], axis=[k])

    return compute((*a.shape[:-1], b.shape[-1]), (*leading(a.rank - 2), "i", "j"), body, "matmul")


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    """table[ids[...], h]: table [V, H], integer ids of any shape -> [..., H]."""
    expect(table.rank == 2, f"embedding takes table[V, H], not {describe(table)}")
    return take(table, ids, 0)


def block_circulant(x: Tensor, w: Tensor) -> Tensor:
    """y = W x where W consists of P x Q circulant blocks, each given by its first column.

    y[b, k p + r] = sum_{q,s} w[p, q, (r - s) mod k] x[b, k q + s]; x [B, Q k], w [P, Q, k] -> [B, P k].
    Source: Ding et al., CirCNN, 2017, section 3.
    """
    expect(x.rank == 2 and w.rank == 3, f"block_circulant takes x[B, Q*k] and w[P, Q, k], not {describe(x, w)}")
    batch, (blocks, inner, size) = x.shape[0], w.shape
    expect(x.shape[1] == inner * size, f"block_circulant: {inner} blocks of {size} do not fit {describe(x)}")
    q, s = axis(inner, "q"), axis(size, "s")
    y = dsl.compute(
        (batch, blocks, size),
        lambda b, p, r: dsl.sum(w[p, q, (r - s) % size] * x[b, size * q + s], axis=[q, s]),
        "block_circulant",
    )
    return reshape(y, (batch, blocks * size))


def mttkrp(x: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Matricised tensor times Khatri-Rao product: y[i, r] = sum_{j,k} x[i, j, k] b[j, r] c[k, r]; [I, R].

    Source: Kolda and Bader, Tensor Decompositions and Applications, 2009, section 3.4.
    """
    expect(
        x.rank == 3 and b.rank == c.rank == 2 and x.shape[1:] == (b.shape[0], c.shape[0]) and b.shape[1] == c.shape[1],
        f"mttkrp takes x[I, J, K], b[J, R] and c[K, R], not {describe(x, b, c)}",
    )
    j, k = axis(x.shape[1], "j"), axis(x.shape[2], "k")
    return dsl.compute(
        (x.shape[0], b.shape[1]), lambda i, r: dsl.sum(x[i, j, k] * b[j, r] * c[k, r], axis=[j, k]), "mttkrp"
    )

"""Operators of neoflow that tests use inside of other libraries, each with the same formula in them beside it."""

from __future__ import annotations

import neoflow as nf


def tropical(x, w):
    """y[b,o,t] = max[c,r](x[b,c,2t+r] + w[o,c,r])"""
    return nf.expr("y[b,o,t] = max[c,r](x[b,c,2*t+r] + w[o,c,r])", x=x, w=w)


def circulant(x, w):
    """x [B, J, K], w [I, J, K]: blocks that are given by their first columns; y [B, I, K]."""
    j, k, size = nf.axis(x.shape[1], "j"), nf.axis(x.shape[2], "k"), x.shape[2]
    return nf.compute(
        (x.shape[0], w.shape[0], size),
        lambda b, i, n: nf.sum(x[b, j, k] * w[i, j, (n - k) % size], axis=[j, k]),
        name="y",
    )


def attention(q, k, v, scale: float) -> tuple[nf.Tensor, nf.Tensor]:
    """Two results: values, and the place that weighs most, which is an integer and has no gradient."""
    scores = nf.expr("s[b,i,j] = sum(q[b,i,d] * k[b,j,d])", q=q, k=k) * scale
    weights = nf.nn.functional.softmax(scores)
    return nf.expr("y[b,i,d] = sum(p[b,i,j] * v[b,j,d])", p=weights, v=v), nf.argmax(scores, axis=-1)


def lookup(table, ids):
    """Reads by data, whose gradient scatters."""
    return nf.expr("y[t,h] = tanh(table[ids[t],h])", table=table, ids=ids)


def twice(x, w):
    """Two products: the first is kept for the backward pass, where it is slow to compute again."""
    h = nf.tanh(nf.expr("h[b,o] = sum(x[b,i] * w[i,o])", x=x, w=w))
    return nf.expr("y[b,i] = sum(h[b,o] * w[i,o])", h=h, w=w)


SHAPES = {
    "tropical": ((2, 3, 9), (4, 3, 3)),
    "circulant": ((3, 2, 4), (3, 2, 4)),
    "attention": ((2, 3, 4), (2, 5, 4), (2, 5, 3), 0.5),
    "twice": ((2, 40), (40, 3)),
}
"""Of the arguments; numbers are what they are."""
IDS = [1, 0, 3, 3, 2]
"""Rows of a table that `lookup` reads."""

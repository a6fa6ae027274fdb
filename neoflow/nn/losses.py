"""Losses: scalars (rank 0), means over samples."""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Expr
from neoflow.expr.tensor import Tensor
from neoflow.nn.activation import log_total, softplus
from neoflow.nn.tools import compute, describe, expect, leading

__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "margin_loss", "mse_loss"]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over all samples of -log softmax(logits)[label]; logits [..., K], integer labels [...] -> []."""
    fits = logits.rank >= 2 and logits.shape[:-1] == labels.shape and dt.is_int(labels.dtype)
    expect(fits, f"cross_entropy takes logits[..., K] and integer labels[...], not {describe(logits, labels)}")
    largest, total = log_total(logits)

    def surprise(ix: tuple[Expr, ...]) -> Expr:
        return total[(*ix, 0)] - (logits[(*ix, labels[ix])] - largest[(*ix, 0)])

    return dsl.mean(compute(labels.shape, leading(labels.rank), surprise, "cross_entropy"))


def binary_cross_entropy_with_logits(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over all elements of -t log sigmoid(x) - (1 - t) log sigmoid(-x); logits x, targets t of one shape -> [].

    As (1 - t) x + softplus(-x): no sigmoid is rounded to 0 or 1 before its logarithm is taken.
    """
    fits = logits.shape == target.shape and logits.dtype == target.dtype
    expect(
        fits,
        f"binary_cross_entropy_with_logits takes two tensors of one shape and type, not {describe(logits, target)}",
    )
    return dsl.mean((1.0 - target) * logits + softplus(-logits))


def margin_loss(lengths: Tensor, labels: Tensor, above: float = 0.9, below: float = 0.1, weight: float = 0.5) -> Tensor:
    """Mean over samples of sum_k T max(0, above - |v|)^2 + weight (1 - T) max(0, |v| - below)^2, T the label's one-hot.

    lengths |v| [B, K], integer labels [B] -> []. Source: Sabour et al., 2017, equation 4.
    """
    fits = lengths.rank == 2 and lengths.shape[:1] == labels.shape and dt.is_int(labels.dtype)
    expect(fits, f"margin_loss takes lengths[B, K] and integer labels[B], not {describe(lengths, labels)}")

    def term(b, k):
        short, long = dsl.relu(above - lengths[b, k]), dsl.relu(lengths[b, k] - below)
        return dsl.select(dsl.equal(labels[b], k), short * short, weight * (long * long))

    margins = dsl.compute(lengths.shape, term, "margins")
    return dsl.sum(margins) * (1.0 / lengths.shape[0])


def mse_loss(y: Tensor, target: Tensor) -> Tensor:
    """Mean over all elements of (y - target)^2; two tensors of one shape -> []."""
    expect(y.shape == target.shape, f"mse_loss takes two tensors of one shape, not {describe(y, target)}")
    d = y - target
    return dsl.mean(d * d)

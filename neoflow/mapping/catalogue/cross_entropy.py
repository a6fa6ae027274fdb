"""Softmax cross entropy, a mean over samples: of the logarithm of a softmax, however that is written.

Source: Bridle, 1990.
"""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.shape.indexing import one_hot, take_along_axis
from neoflow.expr.shape.rearrange import expand_dims
from neoflow.expr.tensor import Tensor
from neoflow.mapping.catalogue import softmax
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F


def _picked(x: Tensor, labels: Tensor) -> Tensor:
    return take_along_axis(x, expand_dims(labels, -1), -1)


def naive(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    """-mean(log(softmax(x)[label]))"""
    return (-dsl.mean(dsl.log(_picked(softmax.naive(x)[0], labels))),)


def shifted(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    return (-dsl.mean(dsl.log(_picked(softmax.shifted(x)[0], labels))),)


def of_all(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    """The logarithm of the library's softmax."""
    return (-dsl.mean(dsl.log(_picked(F.softmax(x), labels))),)


def of_logs(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    """-mean(log_softmax(x)[label])"""
    return (-dsl.mean(_picked(F.log_softmax(x), labels)),)


def of_one_hot(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    """-sum(one_hot(label) * log_softmax(x)) / N"""
    count = labels.size
    return (-dsl.sum(dsl.cast(one_hot(labels, x.shape[-1]), x.dtype) * F.log_softmax(x)) / float(count),)


def by_total(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    """mean(log(sum(exp(x))) - x[label])"""
    total = dsl.log(dsl.sum(dsl.exp(x), axis=-1, keepdims=True))
    return (dsl.mean(total - _picked(x, labels)),)


def implementation(x: Tensor, labels: Tensor) -> tuple[Tensor]:
    return (F.cross_entropy(x, labels),)


PATTERNS = tuple(
    Pattern(
        "softmax cross entropy",
        {"x": f"{rows}K", "labels": f"{rows}<K"},
        naive,
        {},
        implementation,
        forms=(of_logs, of_one_hot, of_all, shifted, by_total),
    )
    for rows in ("N", "MN")
)

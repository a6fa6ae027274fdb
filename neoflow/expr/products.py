"""Sums of products by NumPy's names: einsum, matmul."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.caller import caller
from neoflow.expr import dsl
from neoflow.expr.close import define
from neoflow.expr.dsl import read
from neoflow.expr.ir import Axis, Expr
from neoflow.expr.shape.tools import checked_tensor
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import fail, operand


@dataclass(frozen=True)
class _Factor:
    """A tensor and the label of each of its dimensions."""

    tensor: Tensor
    labels: tuple[str, ...]


def einsum(subscripts: str, *tensors: Any) -> Tensor:
    """The sum of products that `subscripts` describes, as in NumPy: `nf.einsum("bij,bjk->bik", a, b)`.

    A label that several dimensions share runs over them together; without `->` the labels that stand once remain, in
    alphabetical order; `...` stands for dimensions that broadcast. Three and more tensors are multiplied two by two in
    the order that `numpy.einsum_path` finds.
    """
    if not isinstance(subscripts, str):
        raise fail(f"einsum takes its subscripts first, einsum('ij,jk->ik', a, b), not {subscripts!r}")
    operands = [checked_tensor(operand(t), "einsum") for t in tensors]
    factors, result, sizes = _parsed(subscripts, operands)
    left = list(factors)
    for pair in _path(left, result, sizes)[:-1]:
        taken = [left[n] for n in pair]
        left = [f for n, f in enumerate(left) if n not in pair]
        kept = {*result}.union(*(f.labels for f in left))
        labels = tuple(dict.fromkeys(a for f in taken for a in f.labels if a in kept))
        left.append(_Factor(_product(taken, labels, sizes), labels))
    return _product(left, result, sizes)


def _path(factors: Sequence[_Factor], result: tuple[str, ...], sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Which factors are multiplied in turn, by their places among those that are left."""
    if len(factors) < 3 or len(sizes) > len(string.ascii_letters):
        return [tuple(range(len(factors)))]
    letter = dict(zip(sizes, string.ascii_letters, strict=False))
    text = ",".join("".join(letter[a] for a in f.labels) for f in factors)
    shapes = [np.broadcast_to(np.int8(0), [sizes[a] for a in f.labels]) for f in factors]
    path, _ = np.einsum_path(f"{text}->{''.join(letter[a] for a in result)}", *shapes, optimize="greedy")
    return [tuple(step) for step in path[1:]]


def _parsed(subscripts: str, operands: list[Tensor]) -> tuple[list[_Factor], tuple[str, ...], dict[str, int]]:
    """The factors, the labels of the result, and the extent of every label."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise fail(f"einsum '{subscripts}' describes {len(terms)} tensors, but {len(operands)} are given")
    sizes: dict[str, int] = {}
    factors = []
    for term, x in zip(terms, operands, strict=True):
        labels = _labels(term, x.rank, subscripts)
        if len(labels) != x.rank:
            raise fail(f"einsum '{subscripts}': `{term}` has {len(labels)} labels, but {x.name} has shape {x.shape}")
        for label, n in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, n)
            if label.startswith("..."):
                sizes[label] = n if known == 1 else known
            if n != sizes[label] and not (label.startswith("...") and n == 1):
                dimension = "a dimension of `...`" if label.startswith("...") else f"`{label}`"
                raise fail(
                    f"einsum '{subscripts}': {dimension} has extent {n} in {x.name} {x.shape}, but "
                    f"{sizes[label]} before"
                )
        factors.append(_Factor(x, labels))
    spread = sorted((a for a in sizes if a.startswith("...")), key=lambda a: -int(a[3:]))
    if not arrow:
        counts = Counter(inputs.replace("...", ""))
        return factors, (*spread, *sorted(a for a, n in counts.items() if n == 1 and a != ",")), sizes
    rank = len(output.replace("...", "")) + len(spread) * ("..." in output)
    result = _labels(output, rank, subscripts)
    for label in result:
        if label not in sizes or result.count(label) > 1:
            raise fail(f"einsum '{subscripts}': `{label}` of the result stands twice there, or in no tensor")
    return factors, result, sizes


def _labels(term: str, rank: int, subscripts: str) -> tuple[str, ...]:
    """One label a dimension; those of `...` are numbered from the right: "...1", "...0"."""
    before, dots, after = term.partition("...")
    if not all(c.isalpha() for c in before + after):
        raise fail(f"einsum '{subscripts}': `{term}` is no row of letters")
    spread = range(rank - len(before) - len(after)) if dots else ()
    return (*before, *(f"...{n}" for n in reversed(spread)), *after)


def _product(factors: Sequence[_Factor], labels: tuple[str, ...], sizes: dict[str, int]) -> Tensor:
    """The product of the factors, summed over the labels that do not remain."""
    where = caller()
    axes: dict[str, Axis] = {}
    for label in (*labels, *(a for f in factors for a in f.labels)):
        if label not in axes:
            axes[label] = dsl.axis(sizes[label], label if label.isidentifier() else "")
    total: Any = None
    for f in factors:
        indices: list[Any] = [0 if n == 1 else axes[a] for a, n in zip(f.labels, f.tensor.shape, strict=True)]
        element = read(f.tensor, indices)
        total = element if total is None else total * element
    summed = [a for label, a in axes.items() if label not in labels]
    body: Expr = dsl.sum(total, axis=summed) if summed else total
    outer = tuple(axes[a] for a in labels)
    return define(tuple(a.extent for a in outer), outer, body, "einsum", where)


def matmul(a: Any, b: Any) -> Tensor:
    """The matrix product, as in NumPy: of the last two dimensions, those before them broadcast; a vector is a row on
    the left and a column on the right, and its dimension is gone."""
    a, b = checked_tensor(operand(a), "matmul"), checked_tensor(operand(b), "matmul")
    inner = b.shape[-2 if b.rank > 1 else -1] if b.rank else 0
    if not a.rank or not b.rank or a.shape[-1] != inner:
        raise fail(f"matmul of {a.name}{list(a.shape)} and {b.name}{list(b.shape)}: the inner extents must be equal")
    left, right = "...ik" if a.rank > 1 else "k", "...kj" if b.rank > 1 else "k"
    spread = "..." if a.rank > 1 or b.rank > 1 else ""
    return einsum(f"{left},{right}->{spread}{'i' * (a.rank > 1)}{'j' * (b.rank > 1)}", a, b)

"""The weights of several products as those of one: rows of one tensor, or put one behind the other.

w[0:n], w[n:2n], w[2n:3n]    ->    w[0:3n]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neoflow.expr import affine
from neoflow.expr.ir import Read
from neoflow.expr.shape.join import concat
from neoflow.expr.tensor import Compute, Tensor


def rows_of(t: Tensor) -> tuple[Tensor, int]:
    """(x, n) where t is x[n:n + m]; any other tensor is its own rows from 0 on."""
    if isinstance(t, Compute) and isinstance(t.definition.body, Read) and t.rank:
        first, *rest = t.definition.body.indices
        own, *others = t.definition.axes
        terms, offset = affine.linear(first)
        is_plain = len(rest) == len(others) and all(a is b for a, b in zip(rest, others, strict=True))
        if is_plain and terms == {own: 1} and t.inputs[0].shape[1:] == t.shape[1:]:
            return t.inputs[0], offset
    return t, 0


def order_of(names: str, *kinds: Mapping[str, Tensor]) -> str:
    """The names in the order in which the tensors of a kind lie in one; as they are given where no kind tells."""
    for parts in kinds:
        rows = {n: rows_of(parts[n]) for n in names}
        if len({x for x, _ in rows.values()}) == 1:
            return "".join(sorted(names, key=lambda n: rows[n][1]))
    return names


def beside(parts: Sequence[Tensor]) -> Tensor:
    """The tensors one behind the other along their first dimension: what they are rows of, where they lie so."""
    rows = [rows_of(t) for t in parts]
    (source, begin), end = rows[0], rows[0][1]
    for t, (x, n) in zip(parts, rows, strict=True):
        if x is not source or n != end:
            return concat(parts)
        end += t.shape[0]
    return source if (begin, end) == (0, source.shape[0]) else source[begin:end]

"""Where a compute reads others of its kernel, through what is computed in place: so kernels that go by rows are judged.

c[b, k] = x[b, k] - m[k];  s[k] = sum[b](c[b, k] * c[b, k])        s reads m at [k], its own row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from neoflow.expr import affine
from neoflow.expr.ir import Expr, same, substitute
from neoflow.expr.tensor import Definition
from neoflow.graph import own_indices

T = TypeVar("T")

Places = tuple[tuple[T, tuple[Expr, ...]], ...]
"""What is read, and at which indices over the axes of the reader; each once."""
InPlace = Mapping[T, tuple[Definition, Places[T]]]
"""What is computed where it is read, and the places that it reads."""


def places(definition: Definition, sources: Sequence[T], inside: InPlace[T], is_one: Callable[[T], bool]) -> Places[T]:
    """Where a compute that reads `sources` reads those that `is_one` holds for, itself or through what is `inside`."""
    found: dict[tuple[T, tuple[Expr, ...]], None] = {}
    for read in definition.reads:
        source = sources[read.slot]
        if source in inside:
            producer, further = inside[source]
            at = {a: i for a, i in zip(producer.axes, read.indices, strict=True) if a is not i}
            for s, indices in further:
                found[s, tuple(affine.simplify(substitute(i, at)) for i in indices)] = None
        elif is_one(source):
            found[source, read.indices] = None
    return tuple(found)


def is_at_own_row(indices: Sequence[Expr], source: Sequence[int], shape: tuple[int, ...], rows: int) -> bool:
    """Whether these indices into a tensor of shape `source` begin with the own first ones of a compute of `shape`."""
    if tuple(source[:rows]) != shape[:rows] or len(indices) < rows:
        return False
    return same(tuple(indices[:rows]), own_indices(shape[:rows]))

"""The same program over batches of its inputs: each tensor with one more axis, the first, and no loop over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Binder, Expr, Read, Scatter, Slot, rewrite
from neoflow.expr.tensor import Compute, Definition, Tensor, topological


def batched(roots: Sequence[Tensor], batches: Mapping[Tensor, Tensor], size: int) -> list[Tensor]:
    """The roots for each of `size` samples: root[b, ...] follows from batches[x][b, ...] in place of each x.

    batches: of some placeholders, tensors of their dtype with one more axis of extent `size` before the others. A root
    that needs none of them stays the tensor it is.

    y[i] = sum[k](x[i, k] * w[k])  ->  y[b, i] = sum[k](x[b, i, k] * w[k])     of a batch of x
    y[id[a]] += x[a]               ->  y[b', id[b', a]] += x[b', a]            of batches of x and id
    """
    new: dict[Tensor, Tensor] = dict(batches)
    for t in topological(list(roots)):
        if t in new or not isinstance(t, Compute) or not any(i in new for i in t.inputs):
            continue
        stretched = frozenset(n for n, i in enumerate(t.inputs) if i in new)
        body = _stretched(t.definition, stretched, size)
        new[t] = build((size, *t.shape), body, tuple(new.get(i, i) for i in t.inputs), t.name)
    return [new.get(t, t) for t in roots]


def _stretched(definition: Definition, slots: frozenset[int], size: int) -> Expr:
    """A closed body with a first axis more, which the reads of these slots take as their first index."""
    body = definition.body
    axes = {a: Axis(a.ident + 1, a.extent) for a in (*definition.axes, *definition.reduction_axes)}
    own = Axis(0, size)
    if isinstance(body, Scatter):  # its own indices are no axes: what is scattered goes through the samples
        own = Axis(1 + max(a.ident for a in axes.values()), size)

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.slot in slots:
            slot = cast(Slot, e.source)
            return Read(Slot(slot.position, (size, *slot.shape), slot.dtype), (own, *e.indices))
        if isinstance(e, Binder):
            return e.rebind(tuple(axes[a] for a in e.axes), e.children)
        return axes.get(e) if isinstance(e, Axis) else None

    found = rewrite(body, rule)
    return Scatter((own, *found.axes), (own, *found.targets), found.body) if isinstance(found, Scatter) else found

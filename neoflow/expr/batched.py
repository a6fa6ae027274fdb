"""The same program over batches of its inputs: each tensor with one more axis, the first, and no loop over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Binder, Expr, Read, Scatter, Slot, rewrite
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked
from neoflow.expr.shape.rearrange import broadcast_to, swapaxes
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, topological


def batched(roots: Sequence[Tensor], batches: Mapping[Tensor, Tensor], size: int) -> list[Tensor]:
    """The roots for each of `size` samples: root[b, ...] follows from batches[x][b, ...] in place of each x.

    batches: of some placeholders, tensors of their dtype with one more axis of extent `size` before the others. A root
    that needs none of them stays the tensor it is.

    y[i] = sum[k](x[i, k] * w[k])  ->  y[b, i] = sum[k](x[b, i, k] * w[k])     of a batch of x
    y[id[a]] += x[a]               ->  y[b', id[b', a]] += x[b', a]            of batches of x and id
    """
    new: dict[Tensor, Tensor] = dict(batches)
    order = topological(list(roots))
    for t in order:
        if t in new or not any(i in new for i in t.inputs):
            continue
        if isinstance(t, Looped):
            new.update(_recurring(t.run, [s for s in order if isinstance(s, Looped) and s.run is t.run], new, size))
            continue
        assert isinstance(t, Compute)
        stretched = frozenset(n for n, i in enumerate(t.inputs) if i in new)
        body = _stretched(t.definition, stretched, size)
        new[t] = build((size, *t.shape), body, tuple(new.get(i, i) for i in t.inputs), t.name)
    return [new.get(t, t) for t in roots]


def _recurring(run: Run, wanted: Sequence[Looped], new: Mapping[Tensor, Tensor], size: int) -> dict[Tensor, Tensor]:
    """What leads out of a run over batches of some of its inputs: what is carried has samples once anything that it
    follows from has."""
    r = run.recurrence
    kept = [t.of for t in wanted if isinstance(t, Stacked)]
    apart = {p for p, i in run.by_placeholder.items() if i in new}
    while True:
        stand = {p: Placeholder((size, *p.shape), p.dtype, p.name, p.where) for p in r.placeholders if p in apart}
        made = batched([*r.then, *kept], {p: q for p, q in stand.items()}, size)
        then, of = made[: len(r.then)], dict(zip(kept, made[len(r.then) :], strict=True))
        more = {c for c, a, b in zip(r.carried, r.then, then, strict=True) if a is not b}
        if more <= apart:
            break
        apart |= more
    carried, slices, fixed = (tuple(stand.get(p, p) for p in part) for part in (r.carried, r.slices, r.fixed))
    inputs = []
    for p, i in run.by_placeholder.items():
        given = new.get(i, i)
        if p in apart and i not in new:
            given = _repeated(i, size)
        inputs.append(swapaxes(given, 0, 1) if p in apart and any(p is s for s in r.slices) else given)
    steps = [
        _repeated(a, size) if c in apart and a is b else a for c, a, b in zip(r.carried, then, r.then, strict=True)
    ]
    other = Run(Recurrence(carried, slices, fixed, tuple(steps), r.steps, r.is_reversed, r.where), inputs)
    found: dict[Tensor, Tensor] = {}
    for t in wanted:
        if isinstance(t, Last) and t.of in apart:
            found[t] = other.last(t.number, t.name)
        elif isinstance(t, Stacked) and of[t.of] is not t.of:
            found[t] = swapaxes(other.stacked(of[t.of], t.name), 0, 1)
    return found


def _repeated(t: Tensor, size: int) -> Tensor:
    return broadcast_to(t, (size, *t.shape))


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

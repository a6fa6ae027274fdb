"""The adjoint of a run of a recurrence: another one, backwards.

    h[t+1] = f(h[t], x[t], w)    ->    dh[t], dx[t], dw[t] = adjoint of f at h[t], x[t], w, with dh[t+1]
                                       dw = sum[t](dw[t])

Its steps read what the forward ones had: what is carried, sums and inner runs are kept of each, what follows from these
element by element is computed again, and what would be huge of all steps (`Recurrence.is_huge`). Of a sum that leads to
one thing alone, h = tanh(x @ w), that is kept instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from neoflow.autodiff.adjoint import fresh_axes
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.dsl import sum as total
from neoflow.expr.ir import Const
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Placeholder, Tensor, topological

Pull = Callable[[Sequence[tuple[Tensor, Tensor]], Collection[Tensor]], dict[Tensor, Tensor]]
"""The cotangents of some tensors, from those of others: see `backward.pulled`."""


def full(shape: tuple[int, ...], value: float, dtype: str, name: str) -> Compute:
    """A tensor of one value."""
    return define(shape, fresh_axes(shape), Const(value, dtype), name)


def contributions_of(
    run: Run, given: Mapping[Looped, Tensor], reaches: Collection[Tensor], pull: Pull
) -> list[tuple[Tensor, Tensor]]:
    """What a run adds to the cotangents of its inputs in `reaches`, from those `given` of what leads out of it."""
    r = run.recurrence
    carried = {c: _like(c) for c in r.carried if dt.is_float(c.dtype)}
    rows = {s: _like(s.of) for s in given if isinstance(s, Stacked)}
    pairs = [(then, carried[c]) for c, then in zip(r.carried, r.then, strict=True) if c in carried]
    pairs += [(s.of, row) for s, row in rows.items()]
    wanted = [p for p, t in run.by_placeholder.items() if dt.is_float(p.dtype) and (p in carried or t in reaches)]
    found = pull(pairs, wanted)
    for c in carried:
        found.setdefault(c, full(c.shape, 0.0, c.dtype, f"d_{c.name}"))
    forward = set(topological([*r.then, *(s.of for s in rows)]))
    remembered = _last_of_each(list(found.values()), forward, r)
    kept: dict[Tensor, Placeholder] = {}

    def instead(t: Tensor) -> Tensor | None:
        if t not in remembered:
            return None
        if t not in kept:
            kept[t] = Placeholder(t.shape, t.dtype, t.name, t.where)
        return kept[t]

    steps = dict(zip(found, replaced(list(found.values()), instead), strict=True))
    read = set(topological(list(steps.values())))
    stacks: dict[Placeholder, Tensor] = {c: run.stacked(c) for c in r.carried if c in read}
    stacks |= {s: run.by_placeholder[s] for s in r.slices if s in read}
    stacks |= {p: run.stacked(t) for t, p in kept.items() if p in read}
    stacks |= {row: given[s] for s, row in rows.items() if row in read}
    fixed = {p: run.by_placeholder[p] for p in r.fixed if p in read}
    lasts = {t.of: g for t, g in given.items() if isinstance(t, Last)}
    first = [lasts[c] if c in lasts else full(c.shape, 0.0, c.dtype, d.name) for c, d in carried.items()]
    backward = Recurrence(
        tuple(carried.values()),
        tuple(stacks),
        tuple(fixed),
        tuple(steps[c] for c in carried),
        r.steps,
        not r.is_reversed,
        r.where,
    )
    back = Run(backward, (*first, *stacks.values(), *fixed.values()))
    parts: list[tuple[Tensor, Tensor]] = []
    for n, c in enumerate(carried):
        if run.by_placeholder[c] in reaches:
            parts.append((run.by_placeholder[c], back.last(n, f"d_{c.name}")))
    for p in (p for p in (*r.slices, *r.fixed) if p in steps):
        stack = back.stacked(steps[p], f"d_{p.name}")
        is_slice = any(p is s for s in r.slices)
        parts.append((run.by_placeholder[p], stack if is_slice else total(stack, axis=0)))
    return parts


def _like(t: Tensor) -> Placeholder:
    return Placeholder(t.shape, t.dtype, f"d_{t.name}", t.where)


def _is_kept(t: Tensor, r: Recurrence) -> bool:
    """Whether the backward steps read it as it was, and do not compute it again."""
    is_sum = isinstance(t, Compute) and t.definition.has_reduction and not r.is_huge(t)
    return is_sum or isinstance(t, Looped) or any(t is then for then in r.then if t.inputs)


def _last_of_each(roots: Sequence[Tensor], forward: Collection[Tensor], r: Recurrence) -> set[Tensor]:
    """What is kept of the forward steps for `roots`: in the place of what only one tensor follows from, which is no
    larger, that tensor."""
    kept = {t for t in topological(list(roots)) if t in forward and _is_kept(t, r)}
    free = {*roots, *r.then}
    while True:
        readers = _readers(roots, kept)
        better: dict[Tensor, Tensor] = {}
        for t in kept:
            if t not in free and len(found := readers.get(t, set())) == 1:
                (only,) = found
                if only in forward and only not in roots and only.nbytes <= t.nbytes and not r.is_huge(only):
                    better[t] = only
        if not better:
            return kept
        kept = kept.difference(better) | set(better.values())


def _readers(roots: Sequence[Tensor], kept: Collection[Tensor]) -> dict[Tensor, set[Tensor]]:
    """What reads each tensor that the roots need where those kept are there."""
    readers: dict[Tensor, set[Tensor]] = {}
    left, seen = list(roots), set(roots)
    while left:
        t = left.pop()
        for i in () if t in kept else t.inputs:
            readers.setdefault(i, set()).add(t)
            if i not in seen:
                seen.add(i)
                left.append(i)
    return readers

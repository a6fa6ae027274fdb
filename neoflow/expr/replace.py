"""The same program over other tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neoflow.expr.tensor import Tensor


def replaced(roots: Sequence[Tensor], instead: Callable[[Tensor], Tensor | None]) -> list[Tensor]:
    """The roots, `instead(t)` standing for every tensor t of which it is not None, in all that reads t.

    What stands for a tensor is gone through like the rest; so it may read what that tensor reads, but not the tensor
    itself. What reads nothing new stays the tensor it is.
    """
    new: dict[Tensor, Tensor] = {}
    stack = list(reversed(roots))
    substitutes: dict[Tensor, Tensor | None] = {}
    while stack:
        t = stack[-1]
        if t in new:
            stack.pop()
            continue
        if t not in substitutes:
            substitutes[t] = instead(t)
        other = substitutes[t]
        needs = (other,) if other is not None else t.inputs
        waiting = [n for n in needs if n not in new]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if other is not None:
            new[t] = new[other]
        elif any(new[n] is not n for n in t.inputs):
            new[t] = t.over(tuple(new[n] for n in t.inputs))
        else:
            new[t] = t
    return [new[t] for t in roots]

"""From runs to kernel calls: what is written again is another tensor, of the same definition, by the same kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from neoflow.expr.tensor import Compute, Tensor
from neoflow.partition import KernelCall, View
from neoflow.recompute.steps import Steps
from neoflow.recompute.unroll import Run


class _Tensors:
    """Which tensor stands for which now, and the views of those that are new."""

    def __init__(self, views: Mapping[Tensor, View]):
        self.views = dict(views)
        self._now: dict[Tensor, Tensor] = {}
        """by what has memory"""
        self._viewed: dict[tuple[Tensor, Tensor], Tensor] = {}
        """a view, and what it is a view of now"""

    def read(self, t: Tensor) -> Tensor:
        """What is read in the place of a tensor."""
        view = self.views.get(t)
        base = t if view is None else view.base
        now = self._now.get(base, base)
        return t if now is base else now if view is None else self._view(t, view, now)

    def renew(self, base: Tensor) -> None:
        """From now on another tensor stands for what has this memory."""
        self._now[base] = again(base)

    def _view(self, t: Tensor, view: View, now: Tensor) -> Tensor:
        if (t, now) not in self._viewed:
            made = self._viewed[t, now] = again(t)
            self.views[made] = View(now, view.offset, view.is_part)
        return self._viewed[t, now]


def again(t: Tensor) -> Compute:
    """Another tensor of the same value."""
    assert isinstance(t, Compute)
    return Compute(t.definition, t.inputs, t.name, t.axis_names, t.where)


def repeated(
    calls: Sequence[KernelCall], views: Mapping[Tensor, View], steps: Steps, runs: Iterable[Run]
) -> tuple[tuple[KernelCall, ...], Mapping[Tensor, View]]:
    """The kernel calls of runs, and every view: each call reads what was written last."""
    tensors, found = _Tensors(views), list[KernelCall]()
    for run in runs:
        call = calls[run.step]
        for m in run.wanted:
            if run.step == steps.makers[m][0]:
                tensors.renew(steps.temporaries[m])
        inputs = tuple(map(tensors.read, call.inputs))
        outputs, name = call.outputs, call.name
        if run.wanted:
            wanted, name = {steps.temporaries[m] for m in run.wanted}, f"{name} again"
            own = [(views[t].base if t in views else t) in wanted for t in call.outputs]
            outputs = tuple(
                tensors.read(t) if is_own else again(t) for t, is_own in zip(call.outputs, own, strict=True)
            )
        found.append(KernelCall(call.subgraph, inputs, outputs, name))
    return tuple(found), tensors.views

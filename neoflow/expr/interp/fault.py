"""Which integer led outside of a tensor: found with NumPy, once a kernel has said that one did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.expr.close import define
from neoflow.expr.guards import guarded_reads
from neoflow.expr.interp.program import evaluate
from neoflow.expr.ir import Axis, Const, Expr, Read, Scatter, Select, postorder, substitute
from neoflow.expr.normal import opened
from neoflow.expr.printer import axis_names, print_expr
from neoflow.expr.tensor import Compute, Tensor, topological

_WORK = 1 << 30
"""Most points that are computed to find one: some seconds."""


def find_fault(roots: Sequence[Tensor], feeds: Mapping[Tensor, Any]) -> RuntimeFault | None:
    """The first index read from data that leaves its tensor: its value, where, and the line of what reads there.

    Only what the indices are computed from is computed. None where no index does, or where that would take long.
    """
    left = _WORK
    for t in topological(list(roots)):
        for probe in _probes(t) if isinstance(t, Compute) else ():
            needed = topological([probe.index])
            left -= sum(_points(n) for n in needed if isinstance(n, Compute))
            if left < 0:
                return None
            try:
                (values,) = evaluate([probe.index], {n: feeds[n] for n in needed if n in feeds})
            except RuntimeFault as inside:  # an index that this one is read with
                return inside
            found = probe.judged(values)
            if found is not None:
                return found
    return None


def _points(t: Compute) -> int:
    return math.prod(a.extent for a in (*t.definition.axes, *t.definition.reduction_axes))


@dataclass(frozen=True)
class _Probe:
    """Index number `position` of what `reader` accesses, as a tensor over the axes that it needs."""

    reader: Compute
    target: str
    expression: Expr
    position: int
    extent: int
    index: Compute
    axes: tuple[Axis, ...]

    def judged(self, values: np.ndarray) -> RuntimeFault | None:
        """The fault of the first value that is outside."""
        outside = (values < 0) | (values >= self.extent)
        if not outside.any():
            return None
        at = np.unravel_index(int(np.argmax(outside)), outside.shape)
        names, sources = axis_names(self.reader), tuple(s.name for s in self.reader.inputs)
        place = ", ".join(f"{names[a.ident]}={int(i)}" for a, i in zip(self.axes, at, strict=True))
        return RuntimeFault(
            f"index out of range: {self.target} is indexed in dimension {self.position} by "
            f"`{print_expr(self.expression, names, sources)}` = {values[at]}{place and f' at {place}'}, but its extent "
            f"is {self.extent}",
            self.reader.where,
        )


def _probes(t: Compute) -> Iterator[_Probe]:
    """Every index of `t` that is read from data; 0 where it is not used."""
    body, names = t.definition.body, axis_names(t)
    accesses = [(t.inputs[r.slot].name, r.indices, r.source.shape, g) for r, g in guarded_reads(body)]
    if isinstance(body, Scatter):
        accesses.append((t.name, body.targets, t.shape, ()))
    for target, indices, shape, guards in accesses:
        for position, (index, extent) in enumerate(zip(indices, shape, strict=True)):
            if any(isinstance(n, Read) for n in postorder(index)):
                used = index
                for guard in reversed(guards):
                    used = Select(guard, used, Const(0, index.dtype))
                axes = tuple(sorted(used.free, key=lambda a: a.ident))
                named = {a: Axis(-1 - a.ident, a.extent, names[a.ident]) for a in axes}
                probed = substitute(opened(used, t.inputs), named)
                probe = define(tuple(a.extent for a in axes), tuple(named.values()), probed, t.name, t.where)
                yield _Probe(t, target, index, position, extent, probe, axes)

"""A loss that is not finite, and where that began."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Parameter, Placeholder, Tensor, topological
from neoflow.runtime.store import STORE
from neoflow.train.feed import as_array

LARGEST = 3.0e38
"""A loss beyond it counts as infinite."""


def diagnose(step: int, value: float, loss: Tensor, inputs: Sequence[Placeholder], arrays: Sequence[Any]) -> str:
    """The first tensor, in order of computation, that is not finite; found with NumPy."""
    head = f"step {step}: the loss is {value}"
    feeds: dict[Tensor, Any] = dict(zip(inputs, map(as_array, arrays), strict=True))
    order = topological([loss])
    feeds.update({p: STORE.get(p) for p in order if isinstance(p, Parameter)})
    given = [t for t in order if t in feeds]
    computed = [t for t in order if t not in feeds]
    with np.errstate(all="ignore"):
        values = [*(feeds[t] for t in given), *evaluate(computed, feeds)]
    for t, found in zip((*given, *computed), values, strict=True):
        bad = ~np.isfinite(np.asarray(found, np.float64))
        if not bad.any():
            continue
        at = [int(n) for n in np.argwhere(bad)[0]]
        what = "parameter" if isinstance(t, Parameter) else "input" if t in feeds else "tensor"
        line = f" ({os.path.relpath(t.where[0])}:{t.where[1]})" if t.where else ""
        text = f"{head}; the first to go bad is {what} {t.name}{at} = {found[tuple(at)]}{line}, {bad.sum()} of its "
        text += f"{bad.size} elements"
        return text + (", since the step before" if what == "parameter" else "")
    return f"{head}, but NumPy finds every tensor finite: a kernel is wrong; NEOFLOW_CHECK=1 finds it"

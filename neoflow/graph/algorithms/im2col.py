"""A correlation as a product of matrices: what the windows see, written out.

y[p] = sum[c, r](x[c, p + r] * w[c, r])    ->    C[p, r, c] = x[c, p + r];   y[p] = sum[r, c](C[p, r, c] * w[c, r])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoflow.expr.close import define
from neoflow.expr.ir import Apply, Read, Reduce
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.algorithms.form import Correlation
from neoflow.graph.algorithms.operand import operand
from neoflow.verdict import Verdict

MOST_BYTES = 1 << 28
"""What the windows see, written out, at most: beyond, it does not pass through any cache."""


def pays(form: Correlation, itemsize: int) -> Verdict:
    """Whether what is written out is of a size that can pay."""
    axes = (*form.batch, *form.rows, *form.summed, *(a for w in form.windows for a in (w.out, w.tap)))
    nbytes = math.prod(a.extent for a in axes) * itemsize
    return Verdict(nbytes <= MOST_BYTES, f"what the windows see takes {nbytes} bytes, of {MOST_BYTES} at most")


def build(t: Compute, inputs: Sequence[Tensor], form: Correlation) -> Tensor:
    """The same value as t, which reads `inputs`."""
    inside = {a for w in form.windows for a in (w.out, w.tap)}
    image = operand(form.image, inputs[form.image.slot], inside, None)
    windows = [w.out for w in form.windows] + [w.tap for w in form.windows]
    axes = [*image.axes[: image.inner], *(a for a in windows if a.extent > 1), *image.axes[image.inner :]]
    columns = define(
        tuple(a.extent for a in axes), tuple(axes), image.at({a: a for a in axes}, ()), f"{t.name}_columns"
    )
    assert isinstance(t.definition.body, Reduce)
    seen = Read(columns, tuple(axes))
    taps = Read(inputs[form.taps.slot], form.taps.indices)
    summed = tuple(a for a in t.definition.body.axes if a.extent > 1)
    body = Reduce("sum", summed, Apply("mul", (seen, taps)))
    return define(t.shape, t.definition.axes, body, t.name)

"""The adjoint of a strided read as one correlation, without strides, over the cotangent with zeros between its points.

    dx[z] = sum over (p, r) with 2*p + r = z of  g[p] * w[r]
        ->  G[u] = select(u % 2 == 0, g[u // 2], 0);   dx[z] = sum[r](G[z - r] * w[r])

    g    a b c          G    a . b . c          dx[3] = G[3] w[0] + G[2] w[1] + G[1] w[2] = b w[1]

One contraction of a plain form and one map in place of a contraction for each residue class; of its products, those
with zeros are in vain: for steps of m and n all but one of m * n. Source: Dumoulin and Visin, A guide to convolution
arithmetic for deep learning, 2016, section 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Read, Reduce
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.algorithms.im2col import MOST_BYTES
from neoflow.graph.algorithms.spread import Apart, spread
from neoflow.graph.algorithms.strided import Strided
from neoflow.graph.algorithms.transforms import added, compute
from neoflow.verdict import Verdict


def pays(form: Strided) -> Verdict:
    """Whether what has zeros between its points is of a size that can pay, and how many products it takes."""
    apart = _apart(form)
    extents = (apart[d].extent if d in apart else n for d, n in enumerate(form.cotangent.source.shape))
    nbytes = math.prod(extents) * dt.itemsize(form.cotangent.dtype)
    if nbytes > MOST_BYTES:
        return Verdict(False, f"with zeros between, its points take {nbytes} bytes, of {MOST_BYTES} at most")
    times = math.prod(line.out.extent * line.taps / len(line.solutions) for line in form.lines)
    return Verdict(True, f"one contraction of {times:.2f} times its products, the others with zeros")


def build(t: Compute, inputs: Sequence[Tensor], form: Strided) -> Tensor:
    """The same value as t, which reads `inputs`."""
    names = itertools.count(1 << 16)
    at, taps = list(form.cotangent.indices), list(form.taps.indices)
    summed, apart = list(form.summed), _apart(form)
    for line in form.lines:
        tap = Axis(next(names), line.taps)
        start = added(line.out, affine.integer(line.offset - apart[line.at].low))
        distance = Apply("mul", (affine.integer(-line.dilation), tap))
        at[line.at] = affine.simplify(added(start, distance))
        if line.tap is not None:
            taps[line.tap] = affine.simplify(tap)
            summed.append(tap)
    points = spread(inputs[form.cotangent.slot], apart, "spread")
    product = Apply("mul", (Read(points, tuple(at)), Read(inputs[form.taps.slot], tuple(taps))))
    left = tuple(a for a in summed if a.extent > 1)
    return compute(t.name, t.definition.axes, Reduce("sum", left, product) if left else product)


def _apart(form: Strided) -> dict[int, Apart]:
    """How far apart the points of the cotangent lie along each line."""
    return {line.at: Apart(line.step, *line.reach) for line in form.lines}

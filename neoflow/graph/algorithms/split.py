"""The adjoint of a strided read by residue classes of its results: one contraction each, then laid side by side.

    dx[z] = sum over (p, r) with 2*p + r = z of  g[p] * w[r]
        ->  even[k] = sum[s](g[k - s] * w[2*s]);   odd[k] = sum[s](g[k - s] * w[2*s + 1])
            dx[z] = select(z % 2 == 0, even[z // 2], odd[z // 2])

    z     0  1  2  3  4        even takes w[0], w[2], odd takes w[1]: no product is masked, no tap is looked up by z % 2
    even  *     *     *
    odd      *     *

Autodiff writes gradients so where this leaves out products (`autodiff/gather.py`). Here it is for whatever is written
otherwise: taps that do not overlap, a transposed convolution, products that were summed first. Source: Shi et al., Is
the deconvolution layer the same as a convolutional layer?, 2016.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce
from neoflow.expr.residues import interleaved, members
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.algorithms.classes import MOST_CLASSES
from neoflow.graph.algorithms.spread import Apart, spread
from neoflow.graph.algorithms.strided import Strided
from neoflow.graph.algorithms.ties import Line
from neoflow.graph.algorithms.transforms import added, compute
from neoflow.verdict import Verdict


def pays(form: Strided) -> Verdict:
    """Whether it is written otherwise, and in how many classes it falls."""
    if form.is_split:
        return Verdict(False, "it is split by residues as it is written")
    count = math.prod(min(line.step, line.out.extent) for line in form.lines)
    if count > MOST_CLASSES:
        return Verdict(False, f"it falls into {count} residue classes, {MOST_CLASSES} at most")
    steps = " x ".join(str(line.step) for line in form.lines if line.step > 1)
    return Verdict(True, f"{count} residue classes of a step of {steps}")


def build(t: Compute, inputs: Sequence[Tensor], form: Strided) -> Tensor:
    """The same value as t, which reads `inputs`."""
    moduli = {line.out: line.step for line in form.lines if line.step > 1}
    apart = {line.at: _reach(line) for line in form.lines}
    operands = spread(inputs[form.cotangent.slot], apart, "padded"), inputs[form.taps.slot]
    parts: list[tuple[Mapping[Axis, int], Tensor]] = []
    for residues in itertools.product(*(range(min(m, z.extent)) for z, m in moduli.items())):
        chosen = dict(zip(moduli, residues, strict=True))
        if all(line.taps_of(chosen.get(line.out, 0)) for line in form.lines):
            parts.append((chosen, _part(t, operands, form, apart, chosen)))
    return interleaved(t.definition.axes, moduli, parts, t.name, t.dtype)


def _part(
    t: Compute, operands: tuple[Tensor, Tensor], form: Strided, apart: Mapping[int, Apart], chosen: Mapping[Axis, int]
) -> Compute:
    """The results of a residue class. apart: from which point on the cotangent is there."""
    names = itertools.count(1 << 16)
    at, taps, summed = list(form.cotangent.indices), list(form.taps.indices), list(form.summed)
    place: dict[Axis, Axis] = {}
    for line in form.lines:
        residue = chosen.get(line.out, 0)
        own = line.taps_of(residue)
        within = place[line.out] = Axis(next(names), members(line.out.extent, line.step, residue))
        which = Axis(next(names), len(own))
        first = line.point(residue, own[0]) - apart[line.at].low
        at[line.at] = _linear(within, first, -line.dilation * own.step // line.step, which)
        if line.tap is not None:
            taps[line.tap] = _linear(affine.integer(0), own[0], own.step, which)
            summed.append(which)
    product = Apply("mul", (Read(operands[0], tuple(at)), Read(operands[1], tuple(taps))))
    left = tuple(a for a in summed if a.extent > 1)
    axes = tuple(place.get(a, a) for a in t.definition.axes)
    name = f"{t.name}_{''.join(map(str, chosen.values()))}"
    return compute(name, axes, Reduce("sum", left, product) if left else product)


def _linear(e: Expr, start: int, factor: int, axis: Axis) -> Expr:
    """e + start + factor * axis"""
    return affine.simplify(added(added(e, affine.integer(start)), Apply("mul", (affine.integer(factor), axis))))


def _reach(line: Line) -> Apart:
    """The points that some residue class reads, and at least all there are."""
    low, high = 0, line.points - 1
    for residue in range(min(line.step, line.out.extent)):
        for tap in line.taps_of(residue):
            point = line.point(residue, tap)
            low, high = min(low, point), max(high, point + members(line.out.extent, line.step, residue) - 1)
    return Apart(1, low, high)

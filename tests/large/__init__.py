"""Random programs of the size of small models, the same for the same seed: what `strategies` is too small to reach.

Blocks that models are made of, in any order and with any reader of any tensor before: contractions with several axes
on a side, convolutions, attention, normalisations, lookups, recurrences, rearrangements. A tensor has up to 100,000
elements, so loops are parallel, operands packed, sums split and rows long.

Values stay near 1 in size. Functions with kinks are applied to inputs alone: those have the same bits however the
program is computed, so no rounding takes an element to the other side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

import neoflow as nf
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import Compute, Parameter, Tensor, topological
from tests.large.products import Products
from tests.large.rows import Rows


@dataclass
class Large:
    """Outputs, a scalar loss over all of them, and an array for each input."""

    seed: int
    outputs: list[Tensor]
    loss: Tensor
    feeds: dict[Tensor, np.ndarray] = field(default_factory=dict)

    @property
    def float_inputs(self) -> list[Tensor]:
        """The placeholders and parameters one can differentiate by."""
        return [t for t in self.feeds if t.dtype == "float32"]

    @property
    def parameters(self) -> list[Parameter]:
        return [t for t in self.feeds if isinstance(t, Parameter)]

    def __str__(self) -> str:
        return f"# seed {self.seed}\n{print_program(topological([*self.outputs, self.loss]))}"


def large_program(seed: int, training: bool = False) -> Large:
    """The program of a seed; with `training` some of its inputs are parameters."""
    return _Builder(seed, training).program()


class _Builder(Products, Rows):
    def program(self) -> Large:
        for _ in range(self.between(2, 6)):
            y = self.pick(BLOCKS)(self)
            self.made += y if isinstance(y, list) else [y]
        read = {s for t in topological(self.made) if isinstance(t, Compute) for s in t.inputs}
        outputs = [t for t in self.made if isinstance(t, Compute) and t not in read]
        loss = None
        for y in outputs:
            kind, scale = self.between(0, 2), 1.0 / math.sqrt(y.size)
            if kind == 0:
                term = nf.sum(y * self.fresh(y.shape)) * scale
            elif kind == 1:
                term = nf.mean(y * y)
            else:
                term = nf.mean(nf.tanh(y))
            loss = term if loss is None else loss + term
        needed = topological([loss, *outputs])
        return Large(self.seed, outputs, loss, {t: a for t, a in self.feeds.items() if any(t is n for n in needed)})


BLOCKS = (
    [_Builder.matmul] * 3
    + [_Builder.contraction] * 4
    + [_Builder.deep] * 3
    + [_Builder.batched] * 2
    + [_Builder.windows, _Builder.capsules, _Builder.conv1d, _Builder.conv1d]
    + [_Builder.conv2d] * 3
    + [_Builder.depthwise, _Builder.conv_transpose, _Builder.pool]
    + [_Builder.embedding, _Builder.gathered, _Builder.scattered]
    + [_Builder.attention, _Builder.self_attention, _Builder.routing, _Builder.cumulative]
    + [_Builder.normalised] * 3
    + [_Builder.reduced] * 3
    + [_Builder.recurrence] * 2
    + [_Builder.rearranged] * 4
    + [_Builder.elementwise] * 3
    + [_Builder.crossed]
)

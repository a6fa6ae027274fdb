"""Derive once, replay often: a small program over placeholders, instantiated on any tensors of the same shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, topological

_STAND_IN = re.compile(r"(?<![A-Za-z0-9])\$(\d+)")


@dataclass(frozen=True)
class Recipe:
    """`outputs` as computes over `inputs`; an output may be None where there is nothing to give."""

    inputs: tuple[Placeholder, ...]
    outputs: tuple[Tensor | None, ...]

    def instantiate(self, tensors: Sequence[Tensor], names: Sequence[str] = ()) -> tuple[Tensor | None, ...]:
        """The outputs over `tensors` in place of the inputs; `names` renames the outputs."""
        actual: dict[Tensor, Tensor] = dict(zip(self.inputs, tensors, strict=True))
        renamed = {o: n for o, n in zip(self.outputs, names, strict=False) if o is not None}

        def name(t: Tensor) -> str:
            return renamed.get(t) or _STAND_IN.sub(lambda m: tensors[int(m[1])].name, t.name)

        for t in topological([o for o in self.outputs if o is not None]):
            if isinstance(t, Compute):
                inputs = tuple(actual[i] for i in t.inputs)
                actual[t] = Compute(t.definition, inputs, name(t), t.axis_names)
        return tuple(None if o is None else actual[o] for o in self.outputs)


def stand_ins(definition: Definition) -> tuple[Placeholder, ...]:
    """A placeholder for each slot of a definition."""
    return tuple(Placeholder(s.shape, s.dtype, f"${s.position}", None) for s in definition.slots)

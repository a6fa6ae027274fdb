"""Derive once, replay often: a small program over placeholders, instantiated on any tensors of the same shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.errors import Location
from neoflow.expr.tensor import Compute, Constant, Definition, Placeholder, Tensor, topological


class Name(str):
    """A name inside a recipe: that of the input at `position` between two texts; until it is known, `d_$0`."""

    __slots__ = ("position", "prefix", "suffix")
    prefix: str
    position: int
    suffix: str

    def __new__(cls, prefix: str, position: int, suffix: str) -> Name:
        name = super().__new__(cls, f"{prefix}${position}{suffix}")
        name.prefix, name.position, name.suffix = prefix, position, suffix
        return name


def derived(name: str, prefix: str = "", suffix: str = "") -> str:
    """A name with a text before and after it; of a name inside a recipe, one inside it."""
    if isinstance(name, Name):
        return Name(prefix + name.prefix, name.position, name.suffix + suffix)
    return f"{prefix}{name}{suffix}"


@dataclass(frozen=True)
class Recipe:
    """`outputs` as computes over `inputs` and constants; an output may be None where there is nothing to give."""

    inputs: tuple[Placeholder, ...]
    outputs: tuple[Tensor | None, ...]

    def instantiate(
        self, tensors: Sequence[Tensor], names: Sequence[str] = (), where: Location | None = None
    ) -> tuple[Tensor | None, ...]:
        """The outputs over `tensors` in place of the inputs; `names` renames the outputs. where: what they follow from
        was written there."""
        actual: dict[Tensor, Tensor] = dict(zip(self.inputs, tensors, strict=True))
        renamed = {o: n for o, n in zip(self.outputs, names, strict=False) if o is not None}

        def name(t: Tensor) -> str:
            own = t.name
            if isinstance(own, Name):
                own = derived(tensors[own.position].name, own.prefix, own.suffix)
            return renamed.get(t) or own

        for t in topological([o for o in self.outputs if o is not None]):
            if isinstance(t, Compute):
                inputs = tuple(i if isinstance(i, Constant) else actual[i] for i in t.inputs)
                actual[t] = Compute(t.definition, inputs, name(t), t.axis_names, where)
        return tuple(None if o is None else actual[o] for o in self.outputs)


def stand_ins(definition: Definition) -> tuple[Placeholder, ...]:
    """A placeholder for each slot of a definition."""
    return tuple(Placeholder(s.shape, s.dtype, Name("", s.position, ""), None) for s in definition.slots)

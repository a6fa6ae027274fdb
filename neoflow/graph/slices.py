"""Reads at constant indices as reads of the slice that lies there: steps that read a slice each are then one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Const, Expr, Read, Slot, rewrite
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import own_indices
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

Place = tuple[int, ...]
"""The constant indices in the first dimensions of a read."""


@dataclass(frozen=True)
class ReadSlices(Rewrite):
    """Computes that read a tensor at different constant first indices read its slices instead, which are memory of it.

    a[i] = x[3, i] * y[i];  b[i] = x[4, i] * y[i]
        ->  p[i] = x[3, i];  q[i] = x[4, i];  a[i] = p[i] * y[i];  b[i] = q[i] * y[i]
    """

    name: str = "read slices"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if not isinstance(t.definition.body, Read) and self._places(editor, t):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        (t,) = match.tensors
        names = ", ".join(editor.inputs(t)[slot].name for slot in self._places(editor, t))
        return Verdict(True, f"others read {names} at other constant indices")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        inputs = list(editor.inputs(t))
        slices: dict[int, Slot] = {}
        places = self._places(editor, t)
        for slot, place in places.items():
            sliced = _slice(inputs[slot], place)
            slices[slot] = Slot(len(inputs), sliced.shape, sliced.dtype)
            inputs.append(sliced)

        def rule(e: Expr) -> Expr | None:
            if isinstance(e, Read) and e.slot in places and e.source is not slices[e.slot]:
                return Read(slices[e.slot], e.indices[len(places[e.slot]) :])
            return None

        return {t: build(t.shape, rewrite(t.definition.body, rule), tuple(inputs), t.name)}

    def _places(self, editor: Editor, t: Compute) -> dict[int, Place]:
        """The slots of t whose tensor another compute reads at other constant indices, and where t reads them."""
        inputs, found = editor.inputs(t), {}
        for slot, place in _constant_places(t.definition).items():
            if any(_is_read_elsewhere(editor, r, inputs[slot], place) for r in editor.each_reader(inputs[slot])):
                found[slot] = place
        return found


def _is_read_elsewhere(editor: Editor, reader: Compute, source: Tensor, place: Place) -> bool:
    """Whether a compute reads a tensor at constant indices that are not these."""
    places = _constant_places(reader.definition)
    return any(places[n] != place for n, i in enumerate(editor.inputs(reader)) if i is source and n in places)


@remembered
def _constant_places(definition: Definition) -> dict[int, Place]:
    """Slots that are read at the same constant indices in their first dimensions by all reads, and these indices."""
    found: dict[int, Place] = {}
    for read in definition.reads:
        place = _first_constants(read)
        found[read.slot] = _shared(found.get(read.slot, place), place)
    slots = definition.slots
    return {n: place for n, place in found.items() if any(e > 1 for e in slots[n].shape[: len(place)])}


def _first_constants(read: Read) -> Place:
    constants: list[int] = []
    for index in read.indices:
        if not isinstance(index, Const):
            break
        constants.append(int(index.value))
    return tuple(constants)


def _shared(a: Place, b: Place) -> Place:
    """What two places begin with."""
    n = next((n for n, (i, j) in enumerate(zip(a, b, strict=False)) if i != j), min(len(a), len(b)))
    return a[:n]


def _slice(source: Tensor, place: Place) -> Compute:
    shape = source.shape[len(place) :]
    indices = tuple(affine.integer(n) for n in place) + own_indices(shape)
    return build(shape, Read(Slot(0, source.shape, source.dtype), indices), (source,), f"{source.name}_slice")

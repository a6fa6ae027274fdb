"""Tensors of one shape side by side: steps through one that is there, or one that is put together of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Slot, postorder, rewrite, substitute
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.edit import Editor, Place
from neoflow.graph.facts import is_move, own_indices
from neoflow.graph.pieces import pieces, stacked


@dataclass(frozen=True, eq=False)
class Beside:
    """Of `parts`, number n is `base` at `indices`, over the axes of a part, but at start + step * n in `dimension`.

    base: None where the parts are to be put together. copied: bytes that this copies. replaced: what was put together
    of a run of the parts, with the number of the first: it is read there from now on.
    """

    parts: tuple[Tensor, ...]
    base: Tensor | None
    indices: tuple[Expr, ...]
    dimension: int = 0
    start: int = 0
    step: int = 1
    copied: int = 0
    replaced: tuple[tuple[Compute, int], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is read."""
        return (len(self.parts), *self.parts[0].shape) if self.base is None else self.base.shape

    def made(self) -> Tensor:
        """What is read."""
        return stacked(self.parts, f"{self.parts[0].name}_steps") if self.base is None else self.base

    def read(self, slot: Slot, indices: Sequence[Expr], number: Expr) -> Read:
        """Of the part of this number at these indices."""
        mapping: dict[Expr, Expr] = {Axis(d, n): indices[d] for d, n in enumerate(self.parts[0].shape)}
        found = [substitute(i, mapping) for i in self.indices]
        found[self.dimension] = Apply(
            "add", (Apply("mul", (number, affine.integer(self.step))), affine.integer(self.start))
        )
        return Read(slot, tuple(map(affine.simplify, found)))


def class_of(t: Tensor) -> Hashable:
    """Equal for tensors that may lie side by side: slices of one tensor, computed ones, and what is given."""
    if (read := _slice(t)) is not None and isinstance(t, Compute):
        return t.shape, t.inputs[0].uid, tuple(None if isinstance(i, Const) else i.uid for i in read.indices)
    return t.shape, t.dtype, isinstance(t, Compute)


def order_of(editor: Editor, parts: Sequence[Tensor]) -> tuple[int, Sequence[Place]]:
    """How far the order of some tensors is open, 0 least, and what each is to be sorted by."""
    reads = [read for t in parts if (read := _slice(t)) is not None]
    if len(reads) == len(parts):
        return 0, [tuple(int(i.value) for i in read.indices if isinstance(i, Const)) for read in reads]
    for whole in _wholes(editor, parts[0]):
        if len(found := _numbers(editor, whole, parts)) == len(parts):
            return 1, [(n,) for n in found]
    return 2, [editor.place(t) for t in parts]


def beside(editor: Editor, parts: tuple[Tensor, ...], readers: Sequence[Tensor]) -> Beside:
    """Different tensors of one class side by side, in this order. readers: what is to read them there."""
    found = _as_slices(parts) or _as_parts(editor, parts, readers)
    if found is None:
        found = _put_together(editor, parts)
        return (_as_moves(editor, parts, readers) or found) if found.copied else found
    return found


def over(definition: Definition, found: Mapping[int, Beside], at: int, count: int) -> tuple[Expr, tuple[int, ...]]:
    """A body for all of some operands side by side, their number being dimension `at` of the result; and its shape.

    What is read in the place of their slots are slots behind all there are, in order.
    """
    body, shape = definition.body, definition.shape
    axes = (*definition.axes, *definition.reduction_axes)
    later: dict[Expr, Expr] = {a: Axis(a.ident + 1, a.extent) for a in axes if a.ident >= at}
    moved = side_by_side(substitute(body, later), definition, found, Axis(at, count))
    return moved, (*shape[:at], count, *shape[at:])


def side_by_side(body: Expr, definition: Definition, found: Mapping[int, Beside], step: Axis) -> Expr:
    """A body of operands of number `step` of those that lie side by side."""
    slots = slots_behind(definition, found)

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.source is definition.slots[e.slot] and e.slot in found:
            return found[e.slot].read(slots[e.slot], e.indices, step)
        return None

    return rewrite(body, rule)


def slots_behind(definition: Definition, found: Mapping[int, Beside]) -> dict[int, Slot]:
    """In the place of which slots what is read, behind all that there are."""
    behind = len(definition.slots)
    return {n: Slot(behind + k, b.shape, definition.slots[n].dtype) for k, (n, b) in enumerate(found.items())}


def _slice(t: Tensor) -> Read | None:
    """The read of a compute that is a tensor at some constant indices."""
    body = t.definition.body if isinstance(t, Compute) else None
    if not isinstance(body, Read) or any(isinstance(n, Read) for i in body.indices for n in postorder(i)):
        return None
    constant = any(isinstance(i, Const) and n > 1 for i, n in zip(body.indices, body.source.shape, strict=True))
    return body if constant else None


def _as_slices(parts: tuple[Tensor, ...]) -> Beside | None:
    reads = [_slice(t) for t in parts]
    indices = [read.indices for read in reads if read is not None]
    if len(indices) < len(parts):
        return None
    differing = [d for d, each in enumerate(zip(*indices, strict=True)) if any(i is not each[0] for i in each)]
    if len(differing) != 1:
        return None
    (d,) = differing
    numbers = [int(at.value) for i in indices if isinstance(at := i[d], Const)]
    return _steps(parts, parts[0].inputs[0], indices[0], d, numbers) if isinstance(parts[0], Compute) else None


def _as_parts(editor: Editor, parts: tuple[Tensor, ...], readers: Sequence[Tensor]) -> Beside | None:
    for whole in _wholes(editor, parts[0]):
        numbers = _numbers(editor, whole, parts)
        if len(numbers) == len(parts) and not any(editor.depends(whole, r) for r in readers):
            own = (affine.integer(0), *own_indices(parts[0].shape))
            if (found := _steps(parts, whole, own, 0, numbers)) is not None:
                return found
    return None


def _steps(
    parts: tuple[Tensor, ...], base: Tensor, indices: tuple[Expr, ...], dimension: int, numbers: Sequence[int]
) -> Beside | None:
    step = numbers[1] - numbers[0]
    if step and list(numbers) == list(range(numbers[0], numbers[0] + step * len(numbers), step)):
        return Beside(parts, base, indices, dimension, numbers[0], step)
    return None


def _as_moves(editor: Editor, parts: tuple[Tensor, ...], readers: Sequence[Tensor]) -> Beside | None:
    """Equal moves of what lies side by side: one move of that, where each would be copied once more."""
    moves = [t for t in parts if isinstance(t, Compute)]
    definition = moves[0].definition if moves else None
    if definition is None or len(moves) < len(parts) or not is_move(definition):
        return None
    if any(t.definition is not definition or len(editor.inputs(t)) != 1 for t in moves) or not _is_affine(definition):
        return None
    column = tuple(editor.inputs(t)[0] for t in moves)
    found = _as_slices(column) or _as_parts(editor, column, readers) if len(set(column)) == len(column) else None
    if found is None or found.base is None:
        return None
    body, shape = over(definition, {0: found}, 0, len(parts))
    base = build(shape, body, (*editor.inputs(moves[0]), found.base), f"{parts[0].name}_steps")
    return Beside(parts, base, (affine.integer(0), *own_indices(parts[0].shape)))


def _is_affine(definition: Definition) -> bool:
    reads = [n for n in postorder(definition.body) if isinstance(n, Read)]
    return not any(isinstance(n, Read) for r in reads for i in r.indices for n in postorder(i))


def _put_together(editor: Editor, parts: tuple[Tensor, ...]) -> Beside:
    place, replaced = {t: n for n, t in enumerate(parts)}, dict[Compute, int]()
    is_copied = any(not can_be_part(editor, t) for t in parts)
    for whole in () if is_copied else dict.fromkeys(w for t in parts for w in _wholes(editor, t)):
        inside = [place.get(t) for t in _parts(editor, whole)]
        first = inside[0]
        if first is None or inside != list(range(first, first + len(inside))):
            is_copied = True
        else:
            replaced[whole] = first
    copied = 2 * sum(t.nbytes for t in parts) if is_copied else 0
    indices = (affine.integer(0), *own_indices(parts[0].shape))
    return Beside(parts, None, indices, copied=copied, replaced=() if is_copied else tuple(replaced.items()))


def can_be_part(editor: Editor, t: Tensor) -> bool:
    """Whether a kernel may write t wherever that is."""
    is_made = isinstance(t, Compute) and not is_move(t.definition) and pieces(t.definition) is None
    return is_made and not editor.is_root(t)


def _wholes(editor: Editor, t: Tensor) -> Iterator[Compute]:
    """What is a stack of t and others."""
    for r in editor.each_reader(t):
        if pieces(r.definition) is not None and r.shape[1:] == t.shape:
            yield r


def _parts(editor: Editor, whole: Compute) -> list[Tensor]:
    inputs = editor.inputs(whole)
    return [inputs[p.slot] for p in pieces(whole.definition) or ()]


def _numbers(editor: Editor, whole: Compute, parts: Sequence[Tensor]) -> list[int]:
    """Where in a stack tensors are; of those that are."""
    place = {t: n for n, t in enumerate(_parts(editor, whole))}
    return [place[t] for t in parts if t in place]


def part_of(whole: Tensor, first: int, count: int, name: str) -> Compute:
    """So many numbers of a stack, from the first on; memory of it."""
    shape = (count, *whole.shape[1:])
    index = affine.simplify(Apply("add", (Axis(0, count), affine.integer(first))))
    own = tuple(affine.integer(0) if n == 1 else Axis(d, n) for d, n in enumerate(whole.shape[1:], 1))
    return build(shape, Read(Slot(0, whole.shape, whole.dtype), (index, *own)), (whole,), name)

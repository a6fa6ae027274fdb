"""Operands of contractions that are packed once for all kernels that read them, in the order in which these go
through them.

A kernel that packs an operand for itself copies all of it at every call: a recurrence its weights at every step. What
is packed beside is read in place. Which layout a kernel asks for follows from its schedule, which is not known here: it
arrives as wishes.
Source: layout transformation, section 4.3 of NeoFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Slot, postorder, rewrite
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.canonical import MergeEqual
from neoflow.graph.edit import Editor
from neoflow.graph.engine import Pass, run
from neoflow.graph.facts import is_contraction, own_indices
from neoflow.graph.graph import Graph
from neoflow.graph.rewrite import Derivation, Edit, Match, Rewrite
from neoflow.verdict import Verdict

FEW = 3
"""Contractions from which packing once pays: it goes through memory, where what a kernel packs for itself stays in a
cache. Two calls saved paid for it in one measurement (a matrix of 4 MB, 0.25 ms of 1.16 each)."""


@dataclass(frozen=True, order=True)
class Layout:
    """How a tensor lies packed: p[outer, i // width, inner, i % width], i the index of `dimension`, all dimensions of
    the tensor being in `outer`, `inner` or this one. A bijection: `width` divides the extent."""

    outer: tuple[int, ...]
    dimension: int
    inner: tuple[int, ...]
    width: int

    def __str__(self) -> str:
        dims = [*self.outer, f"{self.dimension}/{self.width}", *self.inner, f"{self.dimension}%{self.width}"]
        return f"[{', '.join(map(str, dims))}]"

    def fits(self, shape: Sequence[int]) -> Verdict:
        """Whether a tensor of this shape can lie so."""
        if sorted((*self.outer, self.dimension, *self.inner)) != list(range(len(shape))):
            return Verdict(False, f"{self} is no layout of {len(shape)} dimensions")
        extent = shape[self.dimension]
        if extent % self.width or extent == self.width:
            return Verdict(False, f"its {extent} elements are not several blocks of {self.width}")
        return Verdict(True, f"{extent // self.width} blocks of {self.width}")

    def shape(self, plain: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor of this shape when it is packed."""
        blocks = plain[self.dimension] // self.width
        return (*(plain[d] for d in self.outer), blocks, *(plain[d] for d in self.inner), self.width)

    def plain_shape(self, packed: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor that has this one when it is packed."""
        found = dict(zip((*self.outer, self.dimension, *self.inner), packed, strict=False))
        found[self.dimension] *= self.width
        return tuple(found[d] for d in range(len(found)))

    def points(self, plain: Sequence[int]) -> tuple[Expr, ...]:
        """The point of the tensor, of this shape, that is at the own point of the packed one."""
        axes = own_indices(self.shape(plain))
        at: dict[int, Expr] = dict(zip((*self.outer, self.dimension, *self.inner), axes, strict=False))
        block: Expr = Apply("mul", (at[self.dimension], affine.integer(self.width)))
        at[self.dimension] = Apply("add", (block, axes[-1]))
        return tuple(affine.simplify(at[d]) for d in range(len(plain)))

    def packed(self, t: Tensor) -> Compute:
        """The tensor in this order."""
        read = Read(Slot(0, t.shape, t.dtype), self.points(t.shape))
        return build(self.shape(t.shape), read, (t,), f"{t.name}_packed")

    def pack(self, plain: np.ndarray) -> np.ndarray:
        """An array in this order: a view of it."""
        extent = plain.shape[self.dimension]
        blocks = (extent // self.width, self.width)
        split = plain.reshape(*plain.shape[: self.dimension], *blocks, *plain.shape[self.dimension + 1 :])
        return split.transpose(self._order())

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The array of which this is `pack`."""
        split = packed.transpose(np.argsort(self._order()))
        d = self.dimension
        return split.reshape(*split.shape[:d], split.shape[d] * self.width, *split.shape[d + 2 :])

    def _order(self) -> tuple[int, ...]:
        """The dimensions of the tensor, this one's blocks and places apart, in the order in which they lie."""
        d = self.dimension
        apart = [n + (n > d) for n in (*self.outer, d, *self.inner)]
        return (*apart, d + 1)

    def indices(self, plain: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the element lies that is at `plain` in the tensor."""
        i, width = plain[self.dimension], affine.integer(self.width)
        block, place = Apply("floordiv", (i, width)), Apply("mod", (i, width))
        return (*(plain[d] for d in self.outer), block, *(plain[d] for d in self.inner), place)


@dataclass(frozen=True)
class Wish:
    """What contractions of a definition read in a slot would better lie so. few: contractions from which it pays."""

    definition: Definition
    slot: int
    layout: Layout
    few: int = FEW


@dataclass(frozen=True)
class PackShared(Rewrite):
    """An operand that several contractions pack alike is packed once, and they read that in place.

    y[i, j] = sum[k](x[i, k] * w[k, j]);  z[i, j] = sum[k](u[i, k] * w[k, j])
        ->  p[q, k, r] = w[k, 32 * q + r]
            y[i, j] = sum[k](x[i, k] * p[j // 32, k, j % 32]);  z[i, j] = sum[k](u[i, k] * p[j // 32, k, j % 32])

    wishes: one for each definition at most.
    """

    name: str = "pack shared"
    wishes: tuple[Wish, ...] = field(default=(), repr=False)

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """All that read an operand and wish for it in one layout, found at the first."""
        wish = self._wish(t)
        if wish is None:
            return
        operand = editor.inputs(t)[wish.slot]
        group = [r for r in editor.each_reader(operand) if self._asks(editor, r, operand, wish.layout)]
        group.sort(key=editor.number)
        if group and group[0] is t:
            yield Match(tuple(group))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        wish = self._wish(match.tensors[0])
        assert wish is not None
        operand = editor.inputs(match.tensors[0])[wish.slot]
        if not (verdict := wish.layout.fits(operand.shape)).ok:
            return Verdict(False, f"{operand.name}: {verdict.reason}")
        count = len(match.tensors)
        few = min(w.few for t in match.tensors if (w := self._wish(t)) is not None)
        if count < few:
            return Verdict(False, f"{operand.name} is packed by {count} kernels, and {few} would pay")
        return Verdict(True, f"{operand.name} is packed once for {count} that read it")

    def apply(self, editor: Editor, match: Match) -> Edit:
        edit: dict[Tensor, Tensor] = {}
        packed: Compute | None = None
        for t in match.tensors:
            wish, inputs = self._wish(t), editor.inputs(t)
            assert wish is not None
            if packed is None:
                packed = wish.layout.packed(inputs[wish.slot])
            edit[t] = reading(t, inputs, wish.slot, packed, wish.layout)
        return edit

    def _wish(self, t: Compute) -> Wish | None:
        return next((w for w in self.wishes if w.definition is t.definition), None)

    def _asks(self, editor: Editor, r: Compute, operand: Tensor, layout: Layout) -> bool:
        wish = self._wish(r)
        return wish is not None and wish.layout == layout and editor.inputs(r)[wish.slot] is operand


def reading(t: Compute, inputs: Sequence[Tensor], slot: int, packed: Tensor, layout: Layout) -> Compute:
    """A compute that reads what lies packed in the place of what it reads in a slot."""
    there = Slot(len(inputs), packed.shape, packed.dtype)

    def moved(e: Expr) -> Expr | None:
        return Read(there, layout.indices(e.indices)) if isinstance(e, Read) and e.slot == slot else None

    return build(t.shape, rewrite(t.definition.body, moved), (*inputs, packed), t.name)


def pack_shared(graph: Graph, wishes: Sequence[Wish]) -> tuple[Graph, Derivation]:
    """The graph with what several contractions wish for packed alike. To be used behind `PASSES`."""
    return run(graph, Pass("layouts", (PackShared(wishes=tuple(wishes)),), after=(MergeEqual(),)))


def counterparts(before: Graph, after: Graph) -> dict[Tensor, Tensor]:
    """Of each tensor of a graph what it became by `pack_shared`; what is packed is no counterpart of anything."""
    found: dict[Tensor, Tensor] = {}
    stack: list[tuple[Tensor, Tensor]] = list(zip(before.roots, after.roots, strict=True))
    while stack:
        old, new = stack.pop()
        if old in found:
            continue
        found[old] = new
        if isinstance(old, Compute) and isinstance(new, Compute):
            for i, j in zip(old.inputs, new.inputs, strict=True):
                is_packed = i.shape != j.shape and isinstance(j, Compute)
                stack.append((i, j.inputs[0] if is_packed and isinstance(j, Compute) else j))
    return found


# ------------------------------------------------------------------------------------------------ what is packed


@dataclass(frozen=True)
class Operand:
    """What a contraction reads in a slot, at an axis of its own in each dimension. axes: by dimension, None for one
    that has a single element."""

    slot: int
    axes: tuple[Axis | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(1 if a is None else a.extent for a in self.axes)


@remembered
def operands(definition: Definition) -> tuple[Operand, ...]:
    """What a contraction reads once, at axes alone, each of a dimension of its own; of more than one dimension."""
    if not is_contraction(definition):
        return ()
    found = []
    for slot in range(len(definition.slots)):
        reads = [r for r in definition.reads if r.slot == slot]
        axes = tuple(i if isinstance(i, Axis) else None for i in reads[0].indices) if len(reads) == 1 else ()
        operand, own = Operand(slot, axes), [a for a in axes if a is not None]
        if len(set(own)) == len(own) > 1 and operand.shape == definition.slots[slot].shape:
            found.append(operand)
    return tuple(found)


@remembered
def block_axis(definition: Definition, slot: int) -> Axis | None:
    """The axis along which a definition reads a slot in blocks, at its `//` and `%`; None where it does not."""
    for read in definition.reads if slot < len(definition.slots) else ():
        blocks, places = (_divided(read, fn) for fn in ("floordiv", "mod"))
        if read.slot == slot and (both := blocks & places):
            return both.pop()
    return None


@remembered
def in_blocks(definition: Definition) -> bool:
    """Whether a definition puts what it reads in another order, in blocks: an index counts these and places in them."""
    body, last = definition.body, len(definition.shape) - 1
    if not isinstance(body, Read) or any(isinstance(n, Read) for i in body.indices for n in postorder(i)):
        return False
    return any(len(i.free) > 1 and any(a.ident == last for a in i.free) for i in body.indices)


def _divided(read: Read, fn: str) -> set[Axis]:
    """The axes of which an index is a quotient or a remainder."""
    found = {i.args[0] for i in read.indices if isinstance(i, Apply) and i.fn == fn and isinstance(i.args[1], Const)}
    return {a for a in found if isinstance(a, Axis)}

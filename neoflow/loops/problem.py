"""What a kernel of one nest is to the templates that lower it: its axes fused one way or another, its lanes.

Everything here is derived once a subgraph and asked for by every candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Expr, Read, Select, postorder
from neoflow.loops.knob import MASK, Chosen, Knob, Range, one
from neoflow.loops.nest import Boundary, Nest, is_data_dependent, is_index, stride
from neoflow.target import Target

T = TypeVar("T")


def nbytes(reads: Iterable[Read]) -> int:
    """Bytes of the tensors that are read."""
    sources = {r.slot: r for r in reads}
    return sum(math.prod(r.source.shape) * dt.itemsize(r.dtype) for r in sources.values())


@dataclass(frozen=True)
class Measures:
    """What a schedule makes of a problem, in numbers: a feature each.

    points: of the outputs. terms: of the sum at each. operations: of all points. read, written: bytes of the tensors.
    tasks: that threads may share. accumulators: vectors held in registers. working_set: bytes a task comes back to.
    """

    points: float
    terms: float
    operations: float
    read: float
    written: float
    tasks: float
    accumulators: float
    working_set: float


class Memo:
    """What was derived, by a key; of more than `most` the first ones are forgotten."""

    def __init__(self, most: int = 512):
        self.most = most
        self._known: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once."""
        if key not in self._known:
            found = make()
            for old in list(self._known)[: len(self._known) + 1 - self.most]:
                self._known.pop(old, None)
            self._known[key] = found
            return found
        return self._known[key]


@dataclass(frozen=True, eq=False)
class NestProblem:
    """A kernel that is one nest, as written: the problem of maps, reductions and contractions, and of a row's
    nodes, one for each row."""

    nest: Nest
    memo: Memo = field(default_factory=Memo, repr=False)
    apart: int | None = None
    """bytes that all nests like it write, nothing of which their kernel reads; None: its own outputs are that"""
    reductions: int = 1
    """in its kernel"""

    @cached_property
    def _fused(self) -> tuple[Nest, tuple[Boundary, ...]]:
        return self.nest.fusing(frozenset())

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Where neighbouring axes may become one: a bit each of the knob `fuse`, the first one the lowest."""
        return self._fused[1]

    @property
    def all_fused(self) -> int:
        """The mask with every bit."""
        return (1 << len(self.boundaries)) - 1

    def fused(self, knobs: Chosen) -> Nest:
        """The nest with the axes fused that the knob `fuse` says."""
        mask = int(knobs["fuse"])
        if mask == self.all_fused:
            return self._fused[0]
        apart = frozenset(b for n, b in enumerate(self.boundaries) if not mask >> n & 1)
        return self.memo.once(("fused", mask), lambda: self.nest.fused(apart))


def _fusings(p: NestProblem, _: Target, __: Chosen) -> Range:
    reason = (
        f"a bit for each of the {len(p.boundaries)} pairs of neighbouring axes that every address goes along as one"
    )
    return Range(range(p.all_fused + 1), reason)


FUSE: Knob[NestProblem] = Knob("fuse", MASK, "which neighbouring axes are one", _fusings, lambda p, _, __: p.all_fused)


# --- lanes


def one_lane(expressions: tuple[Expr, ...], axis: Axis, anchor_varies: bool) -> str | None:
    """Why these can be computed at one point only of the axis at a time; None when they can at many.

    anchor_varies: whether the value of the reduction is another one from lane to lane.
    """
    nodes = [n for e in expressions for n in postorder(e)]
    for n in nodes:
        if isinstance(n, Apply) and n.dtype in FUNCTIONS[n.fn].one_lane:
            return f"{n.fn} of {n.dtype} is a call of the C library, one lane at a time"
    return differs_by_lane(expressions, axis, anchor_varies)


def differs_by_lane(expressions: tuple[Expr, ...], axis: Axis, anchor_varies: bool) -> str | None:
    """Why an index that is data, or the condition it is read under, differs along the axis; None when none does."""
    nodes = {n for e in expressions for n in postorder(e)}
    if not any(isinstance(n, Read) and n.indices and is_data_dependent(n) for n in nodes):
        return None
    varying: dict[Expr, bool] = {}
    for e in expressions:
        for n in postorder(e):
            is_anchor = isinstance(n, Read) and not n.indices
            follows = is_anchor or any(varying[c] for c in n.children)
            varying[n] = axis in n.free or (anchor_varies and follows)

    todo, seen = [(e, False) for e in expressions], set()
    while todo:
        node, under = todo.pop()
        if (node, under) in seen:
            continue
        seen.add((node, under))
        if isinstance(node, Read) and node.indices and is_data_dependent(node):
            if any(not is_index(i) and varying[i] for i in node.indices):
                return "an index that is data differs from lane to lane"
            if under:
                return "the condition of a read at an index that is data differs from lane to lane"
        match node:
            case Select():
                branch = under or varying[node.cond]
                todo += [(node.cond, under), (node.then, branch), (node.other, branch)]
            case Apply(fn="and" | "or"):
                todo += [(node.args[0], under), (node.args[1], under or varying[node.args[0]])]
            case _:
                todo += [(c, under) for c in node.children]
    return None


def looks_up_beside_choices(expressions: tuple[Expr, ...], axis: Axis) -> bool:
    """Whether there are indices that are data, and conditions that differ along the axis, somewhere."""
    nodes = {n for e in expressions for n in postorder(e)}
    conditions = [n.cond for n in nodes if isinstance(n, Select)]
    conditions += [n.args[0] for n in nodes if isinstance(n, Apply) and n.fn in ("and", "or")]
    looks_up = any(isinstance(n, Read) and n.indices and is_data_dependent(n) for n in nodes)
    return looks_up and any(axis in c.free for c in conditions)


def widest(expressions: tuple[Expr, ...]) -> str:
    """An element type of the largest size that is computed with: it gives the lanes."""
    wide = any(n.dtype in ("float64", "int64") and not is_index(n) for e in expressions for n in postorder(e))
    return "float64" if wide else "float32"


def filled(axis: Axis) -> int:
    """The least power of two of lanes that holds all of the axis."""
    return 1 << (axis.extent - 1).bit_length()


def lanes_along(axis: Axis | None, expressions: tuple[Expr, ...], anchor_varies: bool, target: Target) -> Range:
    """How many points of the axis may be a vector."""
    if axis is None:
        return one(1, "there is no axis for the lanes")
    reason = one_lane(expressions, axis, anchor_varies)
    if reason is not None:
        return one(1, reason)
    most = min(2 * target.lanes(widest(expressions)), filled(axis))
    powers = tuple(1 << n for n in range(most.bit_length()))
    return Range(powers, f"powers of two up to two registers and to what an axis of {axis.extent} fills")


def usual_lanes(axis: Axis | None, allowed: Range, expressions: tuple[Expr, ...], target: Target) -> int:
    """A vector register, or less for a short axis."""
    if axis is None or len(allowed.values) == 1 or looks_up_beside_choices(expressions, axis):
        return 1
    return min(target.lanes(widest(expressions)), filled(axis))


TURNED = ("float32", "float64", "int32", "int64")
"""Element types that lie in memory as they are computed with, a register's width apart."""


def begins_registers(address: Expr, dtype: str, along: Axis, lanes: int, target: Target, step: int = 1) -> bool:
    """Whether stores of so many lanes along an axis, `step` elements apart, are one register or two of this type, and
    begin at whole ones of their array."""
    register = target.vector_bytes // dt.itemsize(dtype)
    if dtype not in TURNED or lanes not in (register, 2 * register) or stride(address, along) != step:
        return False
    terms, first = affine.linear(address)
    return all(n % register == 0 for n in (first, *(n for axis, n in terms.items() if axis is not along)))


def is_turnable(read: Read, lane_axis: Axis, inner: Axis, held: tuple[str, ...] = TURNED) -> bool:
    """Whether the read, of one of these types, strides along the lanes and is contiguous along `inner`, and never needs
    a guard."""
    if read.dtype not in held or is_data_dependent(read) or not is_index(read.indices[0]):
        return False
    low, high = affine.bounds(read.indices[0])
    if low < 0 or high >= read.source.shape[0]:
        return False
    return stride(read.indices[0], inner) == 1 and stride(read.indices[0], lane_axis) not in (None, 0, 1)

"""What inlining multiplies: at how many points each kernel computes what it recomputes, counted through whole chains.

A reader that reads at several indices computes a producer anew at each, and each of these computes its own producers
anew: three points of a reader are five of what it reads, and seven of what that reads.

    y[i] = a[i-1] + a[i] + a[i+1]                 y: at i      a: at i-1, i, i+1
    a[i] = b[i-1] + b[i] + b[i+1]         ->      b: at i-2, i-1, i, i+1, i+2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.guards import Guards, guarded_reads
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Select, Slot, rewrite, same, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.spans import is_index_condition, together
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import is_move, own_indices
from neoflow.partition.graph_facts import Facts


@dataclass(frozen=True)
class Point:
    """Where a kernel computes a tensor: its indices, over the axes of the kernel, reads in them open.

    guards: the conditions on indices around it, where the indices alone may leave the tensor: what is loaded there is
    masked, and under other conditions it is loaded again.
    """

    indices: tuple[Expr, ...]
    guards: frozenset[Expr] = frozenset()


Points = Mapping[Point, None]
"""The points at which one kernel computes a tensor, each once."""


@remembered
def instructions(definition: Definition) -> int:
    """What a body adds to the code of a kernel wherever it is computed: vector instructions, and index arithmetic."""
    found = 0
    for node in definition.nodes:
        if isinstance(node, Apply):
            found += 1 if node.dtype == dt.INDEX else FUNCTIONS[node.fn].instructions
        elif isinstance(node, (Select, Cast)):
            found += 1
    return found


class Copies:
    """For what is recomputed, the points at which each stored compute needs it; and what that makes of its kernel."""

    def __init__(self, facts: Facts):
        self.facts = facts
        self._known: dict[Tensor, Mapping[Compute, Points]] = {}
        self._recomputed: dict[Compute, Mapping[Compute, Points]] = {}
        self._instructions: dict[Compute, int] = {}
        self._nodes: dict[Compute, int] = {}

    def of(self, t: Compute) -> Mapping[Compute, Points]:
        """The points at which each stored compute would compute t; asked once its readers are decided."""
        if t not in self._known:
            found: dict[Compute, dict[Point, None]] = {}
            for reader in self.facts.readers_of(t):
                needed = self._recomputed.get(reader)
                if needed is None:
                    needed = {reader: {Point(reader.definition.axes): None}}
                slots = [n for n, i in enumerate(reader.inputs) if i is t]
                for kernel, points in needed.items():
                    found.setdefault(kernel, {}).update(dict.fromkeys(_read_at(reader, slots, points)))
            self._known[t] = found
        return self._known[t]

    def recompute(self, t: Compute) -> None:
        """Let t be computed where it is read."""
        self._recomputed[t] = self.of(t)
        for kernel, points in self._recomputed[t].items():
            self._instructions[kernel] = self.instructions(kernel) + len(points) * instructions(t.definition)
            self._nodes[kernel] = self.nodes(kernel) + (not is_move(t.definition))

    def instructions(self, kernel: Compute) -> int:
        """What a stored compute amounts to with all that its kernel recomputes so far, every copy counted."""
        known = self._instructions.get(kernel)
        return instructions(kernel.definition) if known is None else known

    def nodes(self, kernel: Compute) -> int:
        """A stored compute and what its kernel recomputes so far, each once; what only moves elements is none."""
        known = self._nodes.get(kernel)
        return int(not is_move(kernel.definition)) if known is None else known


def _read_at(reader: Compute, slots: Iterable[int], points: Points) -> Iterator[Point]:
    """Where `reader`, computed at `points`, reads one of its inputs."""
    reads = _guarded(reader.definition)
    for slot in slots:
        for read, guards in reads.get(slot, ()):
            opened = _opened((*read.indices, *guards), reader.inputs)
            for point in points:
                found = _moved(read, opened, reader, point)
                if found is not None:
                    yield found


def _moved(read: Read, opened: tuple[Expr, ...], reader: Compute, point: Point) -> Point | None:
    """Where a read is when its reader is computed at a point; None where its conditions never hold."""
    own = own_indices(reader.shape)
    rank, axes = len(read.indices), reader.definition.axes
    if not same(point.indices, axes):
        if same(opened, own):
            opened = point.indices
        else:
            mapping = {a: i for a, i in zip(axes, point.indices, strict=True) if a is not i}
            opened = tuple(affine.simplify(substitute(e, mapping)) for e in opened)
    indices, conditions = opened[:rank], opened[rank:]
    if any(isinstance(c, Const) and not c.value for c in conditions):
        return None
    ranges = [affine.bounds(i) for i in indices]
    if all(low >= 0 and high < n for (low, high), n in zip(ranges, read.source.shape, strict=True)):
        return Point(indices)
    return Point(indices, point.guards.union(c for c in conditions if not isinstance(c, Const)))


def _opened(expressions: tuple[Expr, ...], inputs: tuple[Tensor, ...]) -> tuple[Expr, ...]:
    """Closed expressions with tensors in the place of slots: so indices of two definitions compare."""

    def rule(e: Expr) -> Expr | None:
        return Read(inputs[e.slot], e.indices) if isinstance(e, Read) and isinstance(e.source, Slot) else None

    return tuple(e if isinstance(e, (Axis, Const)) else rewrite(e, rule) for e in expressions)


@remembered
def _guarded(definition: Definition) -> dict[int, list[tuple[Read, Guards]]]:
    """The reads of each slot, each with the conditions on indices around it."""
    found: dict[int, list[tuple[Read, Guards]]] = {}
    for read, guards in guarded_reads(definition.body):
        own = together((), tuple(c for c in guards if is_index_condition(c)))
        found.setdefault(read.slot, []).append((read, own))
    return found

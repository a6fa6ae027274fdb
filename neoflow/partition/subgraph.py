"""`Subgraph`: the unit of tuning and code generation, one kernel each; its structure, apart from where it is used."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.boundary import public
from neoflow.errors import PartitionError
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Binder, Expr, Read, Reduce, Scatter, Slot, same
from neoflow.expr.printer import default_names, print_expr
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor
from neoflow.graph import own_indices, reads_at_own_point
from neoflow.partition.composed import Places, is_at_own_row, places
from neoflow.partition.family import Family, family_of
from neoflow.partition.text import read_subgraph, write_subgraph


@dataclass(frozen=True)
class Value:
    """Shape and dtype of something a kernel reads or writes."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dt.itemsize(self.dtype)


@dataclass(frozen=True)
class Node:
    """One definition inside a subgraph. `inputs[s]` is the value number that slot s reads."""

    definition: Definition
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Subgraph:
    """Nodes in order. Values are numbered: first the `inputs`, then one for each node; `outputs` are written.

    Definitions are in normal form: a reduction-free body, or one `Reduce` at the root over a reduction-free body, or
    a `Scatter` of a tensor (then nothing follows it).
    Rules (`check`): at most one node reduces (the *anchor*). Nodes before it are elementwise producers, to be inlined
    where they are read. Nodes after it have its shape and read it, and each other, at their own axes (the
    *epilogue*). Without an anchor all outputs have one shape. A node that is no output is never stored.
    *Riders* are sums after the anchor of what is there at its points, over some of its axes (`riders`); what follows
    from these has their shape and reads them at its own point (`behind`). Outputs of them come last.

    A *row kernel* (`rows` leading dimensions) has other rules: every node that reads another one, and every node that
    reduces or is an output, begins with the same `rows` extents and reads the others at its own row, itself or through
    nodes that are computed in place (`strays`). So one row after the other goes through all nodes, and what lies
    between them stays in the cache. Where an output's rows are not its first dimensions in memory, or blocks of one,
    `orders` has of each output its dimensions in the order in which they lie there; () where that is its own.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    rows: int | None = None
    orders: tuple[tuple[int, ...], ...] = ()

    def value(self, number: int) -> Value:
        """Shape and dtype of a value number."""
        return self._values[number]

    def lying(self, number: int) -> Value:
        """The same of an output, with its dimensions in the order in which they lie in memory."""
        value = self.value(number)
        return Value(tuple(value.shape[d] for d in self.order(number)), value.dtype)

    @cached_property
    def _values(self) -> tuple[Value, ...]:
        return (*self.inputs, *(Value(s.definition.shape, s.definition.body.dtype) for s in self.nodes))

    @property
    def names(self) -> tuple[str, ...]:
        """The values as they are printed."""
        first = len(self.inputs)
        return (*(f"in{n}" for n in range(first)), *(f"v{first + n}" for n in range(len(self.nodes))))

    @cached_property
    def anchor(self) -> int | None:
        """Position of the node that reduces, or None; a row kernel has none that is special."""
        if self.rows is not None:
            return None
        return next((n for n, s in enumerate(self.nodes) if isinstance(s.definition.body, Binder)), None)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure: equal digests are compiled once."""
        parts = [repr([(v.shape, v.dtype) for v in self.inputs]), repr(self.outputs), repr(self.rows)]
        parts += [f"{s.definition.digest} {s.inputs}" for s in self.nodes]
        parts += [repr(self.orders)] if self.orders else []
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def order(self, number: int) -> tuple[int, ...]:
        """The dimensions of an output in the order in which they lie in memory."""
        found = self.orders[self.outputs.index(number)] if self.orders else ()
        return found or tuple(range(len(self.value(number).shape)))

    def is_turned(self, number: int) -> bool:
        """Whether the dimensions of an output lie in another order than their own, or its rows are blocks of one."""
        return bool(self.orders and self.orders[self.outputs.index(number)])

    def check(self, names: Sequence[str] = ()) -> None:
        """Raise `PartitionError` when a rule is broken. names: what the message calls the values, else as printed."""
        first, called = len(self.inputs), names or self.names
        if not self.outputs or any(not first <= o < len(called) for o in self.outputs):
            raise PartitionError("the outputs are not values of nodes")
        for n, node in enumerate(self.nodes):
            me = called[first + n]
            if any(i >= first + n for i in node.inputs):
                raise PartitionError(f"{me} reads a value that comes later")
            if len(node.inputs) != len(node.definition.slots):
                raise PartitionError(f"{me} has {len(node.inputs)} inputs for {len(node.definition.slots)} slots")
            for slot, i in zip(node.definition.slots, node.inputs, strict=True):
                value = self.value(i)
                if value.shape != slot.shape or value.dtype != slot.dtype:
                    raise PartitionError(f"{me} reads {called[i]} as {slot.dtype}{list(slot.shape)}")
            is_last = self.rows is None and n + 1 == len(self.nodes)
            if isinstance(node.definition.body, Scatter) and not is_last:
                raise PartitionError(f"{me} scatters, and what it scatters is complete only when its kernel ends")
            if self.rows is not None:
                self._check_row(first + n, node, called)
            elif first + n in self.riders:
                self._check_rider(first + n, node, called)
            elif first + n in self.behind:
                self._check_behind(first + n, node, called)
            elif node.definition.has_reduction and n != self.anchor:
                raise PartitionError(f"{me} reduces, which only the kernel's anchor may")
            elif self.anchor is not None and n > self.anchor:
                self._check_epilogue(first + n, node, called)
        if len(self.orders) not in (0, len(self.outputs)):
            raise PartitionError("some outputs have an order and others none")
        for o in self.outputs if self.orders else ():
            if self.rows is None or sorted(self.order(o)) != list(range(len(self.value(o).shape))):
                raise PartitionError(f"{called[o]} does not lie in an order of its dimensions")
            if self._is_written_across(o):
                raise PartitionError(f"a row of {called[o]} would be written across memory, not along it")
        if self.rows is None and len({self.value(o).shape for o in self.outputs if o not in self.behind}) > 1:
            raise PartitionError("the outputs differ in shape")
        if self.outputs[0] in self.behind or sorted(self.outputs, key=self.behind.__contains__) != [*self.outputs]:
            raise PartitionError("sums of what is at a point are stored before anything that is there")

    def _is_written_across(self, output: int) -> bool:
        """Whether neighbours along a row of an output do not lie beside each other in memory."""
        shape = self.value(output).shape
        inside = [d for d in range(self.rows or 0, len(shape)) if shape[d] > 1]
        lying = [d for d in self.order(output) if shape[d] > 1]
        return bool(inside) and inside[-1] != lying[-1]

    def _check_epilogue(self, number: int, node: Node, called: Sequence[str]) -> None:
        anchor = len(self.inputs) + (self.anchor or 0)
        for read in node.definition.reads:
            source = node.inputs[read.slot]
            if source >= anchor and not reads_at_own_point(read, node.definition.shape):
                raise PartitionError(f"{called[number]} reads {called[source]} away from its own point")

    def _check_rider(self, number: int, node: Node, called: Sequence[str]) -> None:
        definition, at = node.definition, self.riders[number]
        anchor = self.nodes[self.anchor or 0].definition
        if not (isinstance(definition.body, Reduce) and definition.body.op == "sum"):
            raise PartitionError(f"{called[number]} is no sum, and only sums ride along with the kernel's anchor")
        axes = {*definition.axes, *definition.reduction_axes}
        extents = tuple(a.extent for a in at if isinstance(a, Axis))
        if extents != anchor.shape or {*at} != axes or len(axes) != len(at):
            raise PartitionError(f"{called[number]} adds up something else than the kernel's points, each once")
        for read in definition.reads:
            source = node.inputs[read.slot]
            if source in self.behind or (self._follows(source) and not same(read.indices, at)):
                raise PartitionError(f"{called[number]} reads {called[source]} away from the point that it adds")

    def _check_behind(self, number: int, node: Node, called: Sequence[str]) -> None:
        for read in node.definition.reads:
            source = node.inputs[read.slot]
            is_there = source in self.behind and self.behind[source] == self.behind[number]
            is_own = is_there and reads_at_own_point(read, node.definition.shape)
            if self._follows(source) and not is_own:
                raise PartitionError(f"{called[number]} reads {called[source]} away from its own point")
        if node.definition.has_reduction:
            raise PartitionError(f"{called[number]} reduces, which only the kernel's anchor may")

    def _follows(self, number: int) -> bool:
        """Whether a value is the anchor's, or comes after it."""
        return self.anchor is not None and number >= len(self.inputs) + self.anchor

    @cached_property
    def riders(self) -> Mapping[int, tuple[Expr, ...]]:
        """Sums after the anchor of what there is at its points, and their axes that go along those of a point."""
        found: dict[int, tuple[Expr, ...]] = {}
        for number, node in enumerate(self.nodes, len(self.inputs)):
            if self.anchor is None or number <= len(self.inputs) + self.anchor or not node.definition.has_reduction:
                continue
            reads = [r for r in node.definition.reads if self._follows(node.inputs[r.slot])]
            if reads:
                found[number] = reads[0].indices
        return found

    @cached_property
    def behind(self) -> Mapping[int, tuple[int, ...]]:
        """The riders and what follows from them, and which dimensions of a point theirs are."""
        found: dict[int, tuple[int, ...]] = {}
        for number, at in self.riders.items():
            idents = [a.ident if isinstance(a, Axis) else -1 for a in at]
            found[number] = tuple(idents.index(d) for d in range(len(self.value(number).shape)) if d in idents)
        for number, node in enumerate(self.nodes, len(self.inputs)):
            source = next((i for i in node.inputs if i in found), None)
            if source is not None and number not in found:
                found[number] = found[source]
        return found

    def _check_row(self, number: int, node: Node, called: Sequence[str]) -> None:
        if not self.depends(number) or number in self.strays:
            return
        if node.definition.shape[: self.rows] != self.row_shape:
            raise PartitionError(f"{called[number]} does not go through the kernel's rows {list(self.row_shape)}")
        for source, indices in self._rows_read[number]:
            if not self._is_own_row(number, source, indices):
                raise PartitionError(f"{called[number]} reads {called[source]} away from its own row")

    @cached_property
    def strays(self) -> frozenset[int]:
        """Values of a row kernel that follow from its rows and are no part of one: computed where they are read."""
        return frozenset(n for n in self._rows_read if self._strays(n, self._rows_read[n]))

    @cached_property
    def _rows_read(self) -> Mapping[int, Places[int]]:
        """Of each value that follows from a row what it reads of such, and where, itself or through strays."""
        found: dict[int, Places[int]] = {}
        apart: dict[int, tuple[Definition, Places[int]]] = {}
        for number, node in enumerate(self.nodes, len(self.inputs)):
            if self.depends(number):
                found[number] = places(node.definition, node.inputs, apart, self.depends)
                if self._strays(number, found[number]):
                    apart[number] = node.definition, found[number]
        return found

    def _strays(self, number: int, read: Places[int]) -> bool:
        node = self.nodes[number - len(self.inputs)]
        if number in self.outputs or node.definition.has_reduction:
            return False
        is_own = all(self._is_own_row(number, source, indices) for source, indices in read)
        return not is_own or node.definition.shape[: self.rows] != self.row_shape

    def _is_own_row(self, number: int, source: int, indices: Sequence[Expr]) -> bool:
        return is_at_own_row(indices, self.value(source).shape, self.value(number).shape, self.rows or 0)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The extents of the rows of a row kernel."""
        return self.value(self.outputs[0]).shape[: self.rows]

    def depends(self, number: int) -> bool:
        """Whether a value of a row kernel follows from one that reduces or is stored: it belongs to a row."""
        return number in self._dependent

    @cached_property
    def _dependent(self) -> frozenset[int]:
        found: set[int] = set()
        for number, node in enumerate(self.nodes, len(self.inputs)):
            if number in self.outputs or node.definition.has_reduction or not found.isdisjoint(node.inputs):
                found.add(number)
        return frozenset(found)

    def sources(self, number: int) -> frozenset[int]:
        """The inputs that a value follows from."""
        return self._sources[number]

    @cached_property
    def _sources(self) -> tuple[frozenset[int], ...]:
        found = [frozenset((n,)) for n in range(len(self.inputs))]
        for node in self.nodes:
            found.append(frozenset[int]().union(*(found[i] for i in node.inputs)))
        return tuple(found)

    def tensors(self) -> tuple[tuple[Placeholder, ...], tuple[Tensor, ...]]:
        """The subgraph as placeholders and the computes it outputs over them: what it means, for `evaluate`."""
        inputs = tuple(Placeholder(v.shape, v.dtype, f"in{n}", None) for n, v in enumerate(self.inputs))
        values: list[Tensor] = list(inputs)
        for n, node in enumerate(self.nodes):
            values.append(Compute(node.definition, tuple(values[i] for i in node.inputs), f"v{len(inputs) + n}"))
        return inputs, tuple(_lying(values[o], self.order(o)) for o in self.outputs)

    def to_text(self) -> str:
        """The subgraph as `from_text` reads it back."""
        return write_subgraph(self._shaped, self._numbered, self.outputs, self.rows, self.orders)

    @classmethod
    @public
    def from_text(cls, text: str) -> Subgraph:
        """The subgraph that `to_text` wrote, checked. Raises `TextError`."""
        scanner, inputs, nodes, outputs, rows, orders = read_subgraph(text)
        values = tuple(Value(shape, dtype) for shape, dtype in inputs)
        found = cls(values, tuple(Node(d, reads) for d, reads in nodes), outputs, rows, orders)
        try:
            found.check()
        except PartitionError as e:
            scanner.refuse(str(e))
        return found

    @cached_property
    def family(self) -> Family:
        """The structure with extents erased: equal for the same operator at other sizes, see `partition.family`."""
        return family_of(self._shaped, self._numbered, self.outputs, self.rows, self.orders)

    @property
    def _shaped(self) -> list[tuple[tuple[int, ...], str]]:
        return [(v.shape, v.dtype) for v in self.inputs]

    @property
    def _numbered(self) -> list[tuple[Definition, tuple[int, ...]]]:
        return [(s.definition, s.inputs) for s in self.nodes]

    def __str__(self) -> str:
        lines = [f"in{n}: {v.dtype}{list(v.shape)}" for n, v in enumerate(self.inputs)]
        called = self.names
        for n, node in enumerate(self.nodes):
            number = len(self.inputs) + n
            names = default_names(node.definition)
            sources = tuple(called[i] for i in node.inputs)
            mark = "  -> out" if number in self.outputs else ""
            left = f"{called[number]}[{', '.join(names[: len(node.definition.shape)])}]"
            order = self.order(number) if number in self.outputs else ()
            mark += f" as [{', '.join(names[d] for d in order)}]" if order != tuple(sorted(order)) else ""
            lines.append(f"{left} = {print_expr(node.definition.body, names, sources)}{mark}")
        return "\n".join(lines)


def _lying(t: Tensor, order: Sequence[int]) -> Tensor:
    """A tensor with its dimensions in the order in which they lie in memory."""
    if list(order) == sorted(order):
        return t
    axes = own_indices(tuple(t.shape[d] for d in order))
    at = tuple(axes[order.index(d)] for d in range(len(order)))
    return build(tuple(t.shape[d] for d in order), Read(Slot(0, t.shape, t.dtype), at), (t,), t.name)

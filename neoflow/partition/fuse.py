"""Divides a graph into kernels: which computes are stored, which are inlined where they are read, which ride along.

A compute whose elements are a contiguous run of another's, which is stored, is a *view* of it and costs nothing.
A compute is *inlined* when every reader may recompute it. Otherwise it is stored, and is either the head of a kernel of
its own or joins the kernel of something it reads at its own point (an *epilogue*). Kernels going through the same rows
become one *row kernel*. Every decision has its reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Scatter
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph, is_contraction, points, reads_at_own_point
from neoflow.partition.calls import KernelCall, Partition, View, in_order
from neoflow.partition.facts import (
    compared,
    contiguous_offset,
    flops,
    is_exact,
    is_move,
    is_view,
    looks_up,
    looks_up_by_element,
    reads_columns,
    reduces,
)
from neoflow.partition.subgraph import Stage, Subgraph, Value, reads_at_own_row
from neoflow.verdict import Verdict

_MAX_STAGES = 24
_MAX_OUTPUTS = 4
_MIN_ROW, _MAX_ROW_BYTES = 32, 1 << 16
"""A row kernel pays for rows of at least so many elements, and while what lies between its stages fits the cache."""


@dataclass(eq=False)
class _Group:
    """A kernel under construction: the computes it stores, in order; `rows` when it goes row by row."""

    members: list[Compute] = field(default_factory=list)
    rows: int | None = None


class _Partitioner:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes = graph.nodes
        self.roots = set(graph.roots)
        self.readers: dict[Tensor, list[Compute]] = {}
        for t in self.nodes:
            for i in dict.fromkeys(t.inputs):
                self.readers.setdefault(i, []).append(t)
        self.verdicts: list[tuple[str, Verdict]] = []
        self.inlined: set[Tensor] = set()
        self.views: dict[Tensor, View] = {}
        self.group_of: dict[Tensor, _Group] = {}
        self.groups: list[_Group] = []
        self.closures: dict[Tensor, list[Compute]] | None = None
        """remembered once it is settled what is inlined"""

    def run(self) -> Partition:
        for t in reversed(self.nodes):
            verdict = self.may_inline(t)
            self.verdicts.append((f"inline {t.name}{list(t.shape)}", verdict))
            if verdict.ok:
                self.inlined.add(t)
        for t in self.nodes:
            if t in self.inlined:
                self.make_view(t)
        self.closures = {}
        for t in self.nodes:
            if t not in self.inlined and t not in self.views:
                self.place(t)
        self.merge_rows()
        calls = [self.call(g) for g in self.groups]
        return Partition(tuple(in_order(calls, self.views)), self.views, tuple(self.verdicts))

    def make_view(self, t: Compute) -> None:
        """Turn an inlined compute into a view where it is a contiguous run of something stored."""
        offset = contiguous_offset(t.definition)
        if offset is None or t.inputs[0] in self.inlined:
            return
        source = t.inputs[0]
        under = self.views.get(source, View(source, 0))
        self.views[t] = View(under.base, under.offset + offset)
        self.inlined.discard(t)

    def base(self, t: Tensor) -> Tensor:
        return self.views[t].base if t in self.views else t

    def may_inline(self, t: Compute) -> Verdict:
        """Whether every reader of t may recompute it where it reads it."""
        if t in self.roots:
            return Verdict(False, "it is an output of the program")
        if reduces(t):
            return Verdict(False, "it is a reduction: recomputing it for each reader repeats the whole sum")
        readers = self.readers.get(t, [])
        cost, view = flops(t.definition.body), is_view(t.definition)
        if not is_exact(t.definition) and (reader := self.compared_by(t)) is not None:
            return Verdict(False, f"{reader.name} compares it for equality, so its bits must be stored once")
        for reader, ratio in self.uses(t):
            if is_contraction(reader.definition) and not view:
                return Verdict(False, f"{reader.name} is a contraction that reads each element many times")
            if not view and ratio > (1.5 if cost >= 10 else 8):
                return Verdict(
                    False, f"{reader.name} reads each element {ratio:.1f} times, at {cost} operations a time"
                )
        if len(readers) > 1 and not view:
            traffic = sum(i.nbytes for i in t.inputs)
            if cost >= 10:
                return Verdict(False, f"{len(readers)} readers would each recompute its {cost} operations")
            if traffic > 1.5 * t.nbytes:
                return Verdict(False, f"{len(readers)} readers would each read {traffic} bytes instead of {t.nbytes}")
        if (source := self.ends(t)) is not None:
            return Verdict(False, f"it takes the place of {source.name}, which it alone reads")
        if not is_move(t.definition) and self.stages_behind(t) > _MAX_STAGES:
            return Verdict(False, f"the kernel would have more than {_MAX_STAGES} stages")
        return Verdict(True, "each reader recomputes it" if len(readers) > 1 else "its reader computes it in place")

    def ends(self, t: Compute) -> Tensor | None:
        """A contraction that t alone reads, at its own point, to combine it with something as large.

        Stored in its place, t frees what else it reads: a sum of contractions needs one buffer, not one for each.
        """
        for source in t.inputs:
            own = isinstance(source, Compute) and source.shape == t.shape and is_contraction(source.definition)
            if not own or source in self.roots or len(self.readers[source]) > 1:
                continue
            reads = [r for r in t.definition.reads if t.inputs[r.slot] is source]
            others = any(i is not source and i.nbytes >= t.nbytes for i in t.inputs)
            if others and all(reads_at_own_point(r, t.shape) for r in reads):
                return source
        return None

    def uses(self, t: Tensor) -> list[tuple[Compute, float]]:
        """The stored computes that read t, and how often each reads an element, through what is inlined into them."""
        found = []
        for reader in self.readers.get(t, []):
            ratio = points(reader.definition) / t.size
            if reader in self.inlined or reader in self.views:
                found += [(r, ratio * more) for r, more in self.uses(reader)]
            else:
                found.append((reader, ratio))
        return found

    def compared_by(self, t: Tensor) -> Compute | None:
        """A compute that compares t for equality, directly or through what is inlined into it."""
        for reader in self.readers.get(t, []):
            if any(i is t and n in compared(reader.definition) for n, i in enumerate(reader.inputs)):
                return reader
            if reader in self.inlined and (found := self.compared_by(reader)) is not None:
                return found
        return None

    def stages_behind(self, t: Compute) -> int:
        """Stages that the readers of t already take in; what only moves elements does not count."""
        taken = (sum(not is_move(u.definition) for u in self.closure(r)) for r in self.readers.get(t, []))
        return max(taken, default=0)

    def closure(self, t: Compute) -> list[Compute]:
        """t and the computes inlined into it or between it and what is stored, in order."""
        if self.closures is not None and t in self.closures:
            return self.closures[t]
        seen: dict[Tensor, None] = {}
        stack: list[Tensor] = [t]
        while stack:
            u = stack.pop()
            if u in seen or not isinstance(u, Compute) or (u is not t and u not in self.inlined):
                continue
            seen[u] = None
            stack.extend(u.inputs)
        found = [u for u in seen if isinstance(u, Compute)]
        if self.closures is not None:
            self.closures[t] = found
        return found

    def stored_inputs(self, t: Compute) -> list[Tensor]:
        """What t reads from memory, through what is inlined into it."""
        found: dict[Tensor, None] = {}
        for u in self.closure(t):
            for i in u.inputs:
                if i not in self.inlined:
                    found[i] = None
        return list(found)

    def place(self, t: Compute) -> None:
        """Put a stored compute into the kernel of something it reads, or into a new one."""
        for source in sorted(self.stored_inputs(t), key=lambda s: not reduces(s)):
            group = self.group_of.get(self.base(source))
            if group is None:
                continue
            verdict = self.may_join(t, group)
            self.verdicts.append((f"join {t.name}{list(t.shape)} to the kernel of {group.members[0].name}", verdict))
            if verdict.ok:
                group.members.append(t)
                self.group_of[t] = group
                self.absorb(t, group)
                return
        group = _Group([t])
        self.groups.append(group)
        self.group_of[t] = group

    def may_join(self, t: Compute, group: _Group) -> Verdict:
        head = group.members[0]
        if reduces(t):
            return Verdict(False, "it reduces, and a kernel has one reduction")
        if isinstance(head.definition.body, Scatter):
            return Verdict(False, "what is scattered is complete only when the kernel ends")
        if t.shape != head.shape:
            return Verdict(False, f"its shape {list(t.shape)} is not the kernel's {list(head.shape)}")
        if sum(map(self.is_stored, (*group.members, t))) > _MAX_OUTPUTS:
            return Verdict(False, f"the kernel would store more than {_MAX_OUTPUTS} tensors")
        if len(group.members) >= _MAX_STAGES:
            return Verdict(False, f"the kernel has {_MAX_STAGES} results already")
        for u in self.closure(t) if is_contraction(head.definition) else ():
            if (looks_up_by_element if u.shape == t.shape else looks_up)(u.definition):
                return Verdict(False, f"{u.name} looks up each element, and a contraction writes whole vectors")
        members = set(group.members)
        elsewhere = self.read_elsewhere(t, members)
        if elsewhere is not None:
            return Verdict(False, elsewhere)
        for source in self.stored_inputs(t):
            if source not in members and self.depends_on(self.base(source), group):
                return Verdict(False, f"it also reads {source.name}, which needs this kernel to have finished")
        return Verdict(True, "it reads the kernel's result at its own point")

    def is_stored(self, t: Compute) -> bool:
        """Whether t is stored whatever joins its kernel: something reads it that cannot."""
        return t in self.roots or any(reduces(r) or r.shape != t.shape for r, _ in self.uses(t))

    def read_elsewhere(self, t: Compute, members: set[Compute]) -> str | None:
        """Where t, with what is inlined into it, reads one of the members away from the point being written."""
        for u in self.closure(t):
            for read in u.definition.reads:
                source = u.inputs[read.slot]
                if source in self.views and self.base(source) in members:
                    return f"{u.name} reads {source.name}, which is memory of {self.base(source).name}"
                own = source in members or (source in self.inlined and self.reaches(source, members))
                if own and not (u.shape == t.shape and reads_at_own_point(read, t.shape)):
                    return f"{u.name} reads {source.name} away from its own point"
        return None

    def absorb(self, t: Compute, group: _Group) -> None:
        """Take kernels that t reads, besides the one it joined, into that one: what they store is then read once."""
        for source in self.stored_inputs(t):
            other = self.group_of.get(self.base(source))
            if other is None or other is group:
                continue
            verdict = self.may_absorb(other, group)
            what = f"merge the kernels of {other.members[0].name} and {group.members[0].name}{list(t.shape)}"
            self.verdicts.append((what, verdict))
            if verdict.ok:
                group.members = other.members + group.members
                self.group_of.update(dict.fromkeys(other.members, group))
                self.groups.remove(other)

    def may_absorb(self, first: _Group, second: _Group) -> Verdict:
        members = set(first.members)
        if any(reduces(m) for m in (*first.members, *second.members)):
            return Verdict(False, "one reduces")
        if first.members[0].shape != second.members[0].shape:
            return Verdict(False, "their shapes differ")
        if sum(map(self.is_stored, (*first.members, *second.members))) > _MAX_OUTPUTS:
            return Verdict(False, f"the kernel would store more than {_MAX_OUTPUTS} tensors")
        for m in second.members:
            elsewhere = self.read_elsewhere(m, members)
            if elsewhere is not None:
                return Verdict(False, elsewhere)
            for source in self.stored_inputs(m):
                base = self.base(source)
                if base not in members and self.group_of.get(base) is not second and self.depends_on(base, first):
                    return Verdict(False, f"{m.name} also reads {source.name}, which needs the first to have finished")
        return Verdict(True, "one reads the other at its own point")

    def merge_rows(self) -> None:
        """Merge kernels that go through the same rows: softmax, normalisation, squash, and what is done around them."""
        n = 0
        while n < len(self.groups):
            group = self.groups[n]
            sources = dict.fromkeys(self.base(s) for m in group.members for s in self.stored_inputs(m))
            producers = {id(g): g for s in sources if (g := self.group_of.get(s)) is not None and g is not group}
            for producer in reversed(producers.values()):
                verdict, rows = self.may_merge(producer, group)
                what = (
                    f"{group.members[0].name}{list(group.members[0].shape)} row by row with {producer.members[0].name}"
                )
                self.verdicts.append((what, verdict))
                if verdict.ok:
                    producer.members += group.members
                    producer.rows = rows
                    self.group_of.update(dict.fromkeys(group.members, producer))
                    self.groups.remove(group)
                    n = self.groups.index(producer) - 1  # it may now merge with what it reads
                    break
            n += 1

    def may_merge(self, first: _Group, second: _Group) -> tuple[Verdict, int]:
        members = [*first.members, *second.members]
        if not any(reduces(m) for m in members):
            return Verdict(False, "neither reduces"), 0
        if any(is_contraction(m.definition) or isinstance(m.definition.body, Scatter) for m in members):
            return Verdict(False, "one contracts or scatters: it needs loops of its own"), 0
        if not members[0].shape or any(m.shape[:1] != members[0].shape[:1] for m in members):
            return Verdict(False, "their rows differ"), 0
        rows = self.common_rows(members)
        if not rows:
            return Verdict(False, "one reads the other away from its own row"), 0
        if any(reads_columns(m.definition, rows) for m in members if reduces(m)):
            return Verdict(False, "a row would be a column in memory: loops across rows are faster"), 0
        inner = [math.prod(m.shape[rows:]) for m in members]
        width = max(points(m.definition) // math.prod(m.shape[:rows]) for m in members)
        if width < _MIN_ROW:
            return Verdict(False, f"a row has {width} elements: loops across rows are faster"), 0
        if sum(n * dt.itemsize(m.dtype) for n, m in zip(inner, members, strict=True)) > _MAX_ROW_BYTES:
            return Verdict(False, f"what lies between the stages exceeds {_MAX_ROW_BYTES} bytes a row"), 0
        for member in second.members:
            for source in self.stored_inputs(member):
                base = self.base(source)
                own = self.group_of.get(base)
                if own is first and base is not source:
                    return Verdict(False, f"{member.name} reads {source.name}, which is memory of {base.name}"), 0
                if own is not first and own is not second and self.depends_on(base, first):
                    return Verdict(False, f"it also reads {source.name}, which needs the first to have finished"), 0
        return Verdict(True, f"they share rows of {width} elements"), rows

    def common_rows(self, members: list[Compute]) -> int:
        """How many leading dimensions all members share and read each other at."""
        stored = set(members)
        rows = min(len(m.shape) for m in members)
        while rows and len({m.shape[:rows] for m in members}) > 1:
            rows -= 1
        for m in members:
            for u in self.closure(m):
                for read in u.definition.reads:
                    source = u.inputs[read.slot]
                    if source in stored or (source in self.inlined and self.reaches(source, stored)):
                        while rows and not reads_at_own_row(read, u.shape, rows):
                            rows -= 1
        return rows

    def reaches(self, t: Tensor, members: set[Compute]) -> bool:
        return isinstance(t, Compute) and any(i in members for u in self.closure(t) for i in u.inputs)

    def depends_on(self, t: Tensor, group: _Group) -> bool:
        """Whether computing t needs a kernel other than `group` that needs `group`, or `group` itself."""
        seen: set[int] = set()
        stack: list[Tensor] = [t]
        while stack:
            u = stack.pop()
            own = self.group_of.get(u)
            if own is group:
                return True
            if own is None or id(own) in seen:
                continue
            seen.add(id(own))
            for member in own.members:
                stack.extend(self.base(i) for i in self.stored_inputs(member))
        return False

    def call(self, group: _Group) -> KernelCall:
        members = group.members
        stages: dict[Tensor, None] = {}

        def add(t: Tensor) -> None:
            if t in stages or not isinstance(t, Compute):
                return
            if t not in self.inlined and self.group_of.get(t) is not group:
                return
            for i in t.inputs:
                add(i)
            stages[t] = None

        for t in members:
            add(t)
        order = [t for t in stages if isinstance(t, Compute)]
        if group.rows is None and reduces(members[0]):  # what does not need the anchor goes before it
            anchor = members[0]
            after = {anchor}
            for t in order:
                if any(i in after for i in t.inputs):
                    after.add(t)
            order = [t for t in order if t not in after] + [t for t in order if t in after]
        inputs = tuple(dict.fromkeys(i for t in order for i in t.inputs if i not in stages))
        number = {t: n for n, t in enumerate((*inputs, *order))}
        outputs = tuple(
            t for t in members if t in self.roots or any(self.group_of[r] is not group for r, _ in self.uses(t))
        )
        subgraph = Subgraph(
            tuple(Value(t.shape, t.dtype) for t in inputs),
            tuple(Stage(t.definition, tuple(number[i] for i in t.inputs)) for t in order),
            tuple(number[t] for t in outputs),
            group.rows,
        )
        subgraph.check()
        return KernelCall(subgraph, inputs, outputs, "_".join(dict.fromkeys(t.name for t in members)))


def partition(graph: Graph) -> Partition:
    """Divide the graph into kernels (subgraphs). Source: NeoFlow, section 5 (training-aware fusion), greedy form."""
    return _Partitioner(graph).run()

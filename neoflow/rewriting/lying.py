"""How the tensors of a program lie: four stages one after the other, and what their choices come to together.

    swapping -> blocked activations -> packed parameters -> layouts -> kernels

Each stage chooses for all of its tensors together, by what it knows of those behind it: what stays is packed once, and
an operand of several kernels for all of them. It may name *rivals*, other choices of which only the kernels in the end
say whether they are better: because others were measured than those it would make, or what a later stage packs was
most of its gain. These are tried in turns, the stages behind each chosen anew (coordinate descent): a rival is taken
where all kernels of the program take less so, by what was measured, and by scaled estimates (`judging`). Each step
lowers the same sum, so it never ends above where the stages had left it, and it ends: a choice is tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from neoflow.graph import Graph
from neoflow.partition import KernelCall, Partition, Subgraph
from neoflow.rewriting.flowing import BLOCKED, SWAPPED, Known, flow, nobody
from neoflow.rewriting.judging import Judge, Kernels, Rival, kernels_of_calls
from neoflow.rewriting.layouts import Layouts, lay_out
from neoflow.rewriting.living import Living, live_packed
from neoflow.rewriting.measured import packed_kernel
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.verdict import Verdict

LIVING, LAYOUTS, JOINT = "packed parameters", "layouts", "joint layouts"
"""Names of the later stages, and of what they choose together."""
MOST = 8
"""Rivals that are tried at most: each is a division into kernels."""
ROUNDS = 2
"""Times that each stage is gone back to."""

Found = Living | Layouts
"""Of a stage: a graph, and perhaps rivals."""
Stage = tuple[str, Callable[[Graph], Found]]


@dataclass(frozen=True)
class How:
    """What the stages need to know. divide: cuts a graph into kernels. known: what kernels took that were measured.
    may_live, may_last: see `living` and `layouts`; None: none lives packed, none is packed once. in_place: definitions
    that read nothing packed beside. flows: which kinds of activations may lie otherwise. lives, packs, joins: whether
    parameters live packed, operands are packed beside, and rivals are tried."""

    target: Target
    divide: Callable[[Graph], Partition]
    known: Known
    may_live: Callable[[Subgraph], bool] | None = None
    may_last: Callable[[Subgraph], bool] | None = None
    in_place: Collection[str] = ()
    flows: tuple[str, ...] = (SWAPPED, BLOCKED)
    lives: bool = True
    packs: bool = True
    joins: bool = True
    _cuts: dict[Graph, Partition] = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_times(self) -> bool:
        return self.known is not nobody

    def cut(self, graph: Graph) -> Partition:
        """The kernels of a graph, divided once: stages that leave it as it is ask for the same."""
        if graph not in self._cuts:
            self._cuts[graph] = self.divide(graph)
        return self._cuts[graph]

    def stages(self) -> list[Stage]:
        """Those that there are, in order."""
        found: list[Stage] = [(kind, partial(self._flowing, kind)) for kind in self.flows]
        if self.lives and self.may_live is not None:
            found.append((LIVING, self._living))
        return [*found, (LAYOUTS, self._packing)] if self.packs else found

    def _flowing(self, kind: str, graph: Graph) -> Living:
        lasts = self.packs and self.may_last is not None
        return flow(graph, kind, self.target, self.cut, self.known, lasts, self.joins)

    def _living(self, graph: Graph) -> Living:
        assert self.may_live is not None
        known = self.known if self.joins and self.has_times else None
        return live_packed(graph, self.target, self.cut, self.may_live, known)

    def _packing(self, graph: Graph) -> Layouts:
        return lay_out(graph, self.target, self.cut, self.may_last, self.in_place)

    def rivals(self, graph: Graph, found: Found) -> tuple[tuple[str, Callable[[], Found]], ...]:
        """What else a stage may choose for a graph of which it has found this, by name."""
        if not self.joins:
            return ()
        if isinstance(found, Living):
            return tuple((r.name, partial(_chosen, r)) for r in found.rivals)
        if not self.has_times or found.cut is None:
            return ()
        others: list[tuple[str, Callable[[], Found]]] = []
        first = [c for c in self.cut(graph).calls if isinstance(c, KernelCall)]
        if self.may_last is not None and any(map(self._was_measured_packed, first)):
            others.append(("all that stays is packed once", partial(self._packed_always, graph)))
        last = {c.subgraph.digest for c in found.cut.calls}
        if any(c.subgraph.digest not in last and self.known(c.subgraph) is not None for c in first):
            others.append(("nothing is packed beside", partial(Layouts, graph)))
        return tuple(others)

    def _was_measured_packed(self, call: KernelCall) -> bool:
        """Whether that a kernel was measured keeps it from another one that was measured too."""
        if self.known(call.subgraph) is None:
            return False
        packed = packed_kernel(call, self.target)
        return packed is not None and self.known(packed) is not None

    def _packed_always(self, graph: Graph) -> Layouts:
        return lay_out(graph, self.target, self.cut, lambda _: True, self.in_place)


def _chosen(rival: Rival) -> Living:
    return Living(rival.graph)


@dataclass(frozen=True, eq=False)
class Way:
    """What the stages have chosen, one after the other, and the graph that each was given."""

    given: tuple[Graph, ...]
    found: tuple[Found, ...]

    @property
    def graph(self) -> Graph:
        return self.found[-1].graph

    @property
    def cut(self) -> Partition | None:
        """Its kernels, where they are known."""
        last = self.found[-1]
        return last.cut if isinstance(last, Layouts) else None


@dataclass(frozen=True)
class Joint:
    """What the stages choose together. said: of each rival, by stage and name, whether its kernels take less.
    before, after: seconds of the kernels of a call as the stages chose one after the other, and together."""

    graph: Graph
    cut: Partition
    before: float
    after: float
    said: tuple[tuple[str, Verdict], ...] = ()
    taken: tuple[str, ...] = field(default=())

    @property
    def summary(self) -> str:
        told = f"{len(self.said)} other choices tried"
        if not self.taken:
            return f"{told}, none is better"
        return f"{told}: {self.before * 1e6:.0f} to {self.after * 1e6:.0f} us by {'; '.join(self.taken)}"

    def __str__(self) -> str:
        return "\n".join([*(f"{name}: {verdict}" for name, verdict in self.said), "", str(self.graph)])


def lay_all(graph: Graph, trace: Trace, how: How) -> tuple[Graph, Partition | None]:
    """The graph with its tensors as the stages choose, each recorded, and its kernels, where they are known."""
    given, found = list[Graph](), list[Found]()
    for name, stage in how.stages():
        of = f"{len(graph.nodes)} computes"
        given.append(graph)
        found.append(trace.run(name, partial(stage, graph), lambda f: f.summary, str, of))
        graph = found[-1].graph
    if not found:
        return graph, None
    way = Way(tuple(given), tuple(found))
    if not any(how.rivals(g, f) for g, f in zip(given, found, strict=True)):
        return way.graph, way.cut
    joint = trace.run(JOINT, partial(settled, way, how), lambda j: j.summary, str, f"{len(graph.nodes)} computes")
    return joint.graph, joint.cut


def settled(begin: Way, how: How) -> Joint:
    """The best way that is found from one by taking one rival after the other."""
    descent = _Descent(how, begin)
    for _ in range(ROUNDS):
        before = descent.now
        for number in range(len(begin.found)):
            descent.turn(number)
        if descent.now is before:
            break
    now = descent.now
    sums = descent.seconds(begin), descent.seconds(now)
    return Joint(now.graph, descent.cut(now), *sums, tuple(descent.said), tuple(descent.taken))


class _Descent:
    """From a way to better ones. All first rivals are looked at before any is judged, so that the times stay the same
    that all of them are judged by."""

    def __init__(self, how: How, begin: Way):
        self.how, self.now = how, begin
        self.said, self.taken = list[tuple[str, Verdict]](), list[str]()
        self._stages = how.stages()
        self._tried: set[str] = {begin.graph.digest}
        self._judge = Judge(how.target, how.known)
        self._first: dict[tuple[int, str], Way] = {}
        if how.has_times:
            for number in range(len(begin.found)):
                for name, make in self._rivals(number):
                    if len(self._first) < MOST:
                        self._first[number, name] = self._behind(begin, number, make())
            ways = [begin, *self._first.values()]
            kernels = {d: k for w in ways for d, k in self._kernels(w).by_digest.items()}
            self._judge.learn(kernels.values())

    def turn(self, number: int) -> None:
        """Take a rival of a stage where it is better than what is."""
        is_first = not self.taken
        for name, make in self._rivals(number):
            if len(self._tried) > MOST:
                return
            known = self._first.get((number, name)) if is_first else None
            other = known or self._behind(self.now, number, make())
            if other.graph.digest in self._tried:
                continue
            self._tried.add(other.graph.digest)
            verdict = self._judge.prefers(self._kernels(other), self._kernels(self.now))
            told = f"{self._stages[number][0]}, {name}"
            self.said.append((told, verdict))
            if verdict.ok:
                self.now = other
                self.taken.append(told)
                return

    def _rivals(self, number: int) -> tuple[tuple[str, Callable[[], Found]], ...]:
        return self.how.rivals(self.now.given[number], self.now.found[number])

    def _behind(self, way: Way, number: int, chosen: Found) -> Way:
        """A way with another choice of a stage, and what those behind it make of that."""
        given, found = list(way.given[: number + 1]), [*way.found[:number], chosen]
        for _, stage in self._stages[number + 1 :]:
            given.append(found[-1].graph)
            found.append(stage(given[-1]))
        return Way(tuple(given), tuple(found))

    def cut(self, way: Way) -> Partition:
        """Its kernels."""
        return way.cut or self.how.cut(way.graph)

    def seconds(self, way: Way) -> float:
        """What its kernels take in a call."""
        kernels = self._kernels(way)
        return sum(n * self._judge(kernels.by_digest[digest]) for digest, n in kernels.counts.items())

    def _kernels(self, way: Way) -> Kernels:
        return kernels_of_calls(self.cut(way), {p for p, _ in way.graph.updates})

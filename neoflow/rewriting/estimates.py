"""What graphs are thought to take as kernels: a *part* of a graph at a time, each known again wherever it comes back.

    what a contraction reads is stored, so a part ends there:

    u = relu(..); v = sum(pad(u) * w); y = relu(v + b)        parts: {.., u}, {pad, v, v + b, y}

Each form of a part (see `forms`) is divided, and the one counts that takes least. What follows from a few parameters
alone that no call writes is a part of none: it is prepared, and takes no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor
from neoflow.graph import Graph, is_contraction, is_move, optimize
from neoflow.graph.cost import is_worth
from neoflow.partition import MOST_PREPARED, Partition, Subgraph
from neoflow.rewriting.forms import Forms
from neoflow.superopt import Cost
from neoflow.trace import tick

Seconds = Callable[[Subgraph], float]
"""What a kernel takes."""
KNOWN = 20_000
"""Parts whose kernels are remembered."""
NEAR = 1.5
"""So many times what the best form of a part is thought to take may one take that is to be measured."""


@dataclass(frozen=True)
class Part:
    """Computes of a graph whose kernels are found without the others: their numbers in `Graph.nodes`. read, given:
    what they read of others, and what others, or nobody else, read of them. key: equal for equal parts. lasting: of
    what they read, by uid, what stays from call to call."""

    at: tuple[int, ...]
    read: tuple[Tensor, ...]
    given: tuple[Compute, ...]
    key: tuple[object, ...]
    lasting: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Kernels:
    """What a part becomes in a form: kernels, and bytes of what they write for each other."""

    subgraphs: tuple[Subgraph, ...]
    inner: int
    chosen: tuple[tuple[str, str], ...] = ()


class Estimate:
    """Costs graphs of one program, each part in its best form; its kernels' times are what `seconds` says now.

    divide: a graph into kernels. without: passes that are left out. changed: parameters that a call writes. prepares:
    whether anything is prepared. forms: that parts may have; None: as their kernels are cut. parts: how many were
    divided so far.
    """

    def __init__(
        self,
        divide: Callable[[Graph], Partition],
        seconds: Seconds,
        without: Collection[str] = (),
        changed: Collection[Parameter] = (),
        prepares: bool = True,
        forms: Forms | None = None,
    ):
        self.forms = forms
        self._divide, self._seconds, self._without, self._prepares = divide, seconds, without, prepares
        self._changed = frozenset(p.uid for p in changed)
        self._known: dict[tuple[object, ...], tuple[Kernels, ...]] = {}
        self._subgraphs: dict[str, Subgraph] = {}
        """by digest, so that the default schedule of one is found once for all parts and forms"""
        self.parts = 0

    def __call__(self, graph: Graph) -> Cost:
        """Part by part, each in the form that takes least."""
        found = parts_of(graph, self.is_free(graph))
        return self._sum(graph, found, [self._best(self._kernels(graph, part)) for part in found])

    def usual(self, graph: Graph) -> Cost:
        """Of all parts in the form that they have where nothing is chosen."""
        found = parts_of(graph, self.is_free(graph))
        return self._sum(graph, found, [self._kernels(graph, part)[0] for part in found])

    def _sum(self, graph: Graph, found: list[Part], kernels: list[Kernels]) -> Cost:
        seconds = sum(map(self._of, kernels))
        count = sum(len(k.subgraphs) for k in kernels)
        return Cost(seconds, count, most_bytes(graph, found, [k.inner for k in kernels]))

    def _of(self, kernels: Kernels) -> float:
        return sum(map(self._seconds, kernels.subgraphs))

    def _best(self, forms: Iterable[Kernels]) -> Kernels:
        """The usual form, unless another takes clearly less."""
        usual, *others = forms
        best = min(others, key=self._of, default=usual)
        before, after = Counter(usual.subgraphs), Counter(best.subgraphs)
        return best if is_worth(self.take(before - after), self.take(after - before)) else usual

    def chosen(self, graph: Graph) -> dict[str, str]:
        """The forms of its parts, those that take longer counting where two have the same definition."""
        parts = (self._kernels(graph, part) for part in parts_of(graph, self.is_free(graph)))
        best = sorted((self._best(forms) for forms in parts), key=self._of)
        return {digest: name for kernels in best for digest, name in kernels.chosen}

    def near(self, graph: Graph) -> Iterator[Subgraph]:
        """The kernels of other forms that may be the best, of parts that take long first."""
        parts = {part.key: self._kernels(graph, part) for part in parts_of(graph, self.is_free(graph))}
        for forms in sorted(parts.values(), key=lambda forms: -self._of(forms[0])):
            least = self._of(self._best(forms))
            for kernels in sorted(forms, key=self._of):
                if self._of(kernels) <= NEAR * least:
                    yield from kernels.subgraphs

    def whole(self, graph: Graph, chosen: Mapping[str, str] = MappingProxyType({})) -> Counter[Subgraph]:
        """The kernels of a graph that is divided at once, in a form, but for those that are prepared."""
        done, cut = self._cut(optimize(graph, self._without), chosen)
        free = self.is_free(done)
        return Counter(c.subgraph for c in cut.calls if not all(t.uid in free for t in c.outputs))

    def _cut(self, graph: Graph, chosen: Mapping[str, str]) -> tuple[Graph, Partition]:
        if self.forms is None:
            return graph, self._divide(graph)
        if len(self._subgraphs) >= KNOWN:
            self._subgraphs.clear()
        return self.forms.take(graph, self._divide, chosen, self._subgraphs)

    def take(self, kernels: Mapping[Subgraph, int]) -> float:
        """Seconds of so many calls of kernels."""
        return sum(n * self._seconds(s) for s, n in kernels.items())

    def is_free(self, graph: Graph) -> set[int]:
        """The computes, by uid, that are prepared: what they need stays from call to call, and they are no larger than
        a call may make of it."""
        lasting: set[int] = set()
        for t in graph.order:
            follows = isinstance(t, Compute) and all(i.uid in lasting for i in t.inputs) and _is_small(t)
            if follows or isinstance(t, Constant) or self._stays(t):
                lasting.add(t.uid)
        return lasting

    def _stays(self, t: Tensor) -> bool:
        return self._prepares and isinstance(t, Parameter) and t.uid not in self._changed

    def _kernels(self, graph: Graph, part: Part) -> tuple[Kernels, ...]:
        """Of each form of a part, the usual one first."""
        if part.key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self.parts += 1
            done = optimize(cut_part(graph, part), self._without)
            forms = [{}] if self.forms is None else self.forms.each(done, bool(self._changed))
            found: dict[tuple[Subgraph, ...], Kernels] = {}
            for chosen in forms:
                kernels = self._formed(done, chosen)
                found.setdefault(kernels.subgraphs, kernels)
            self._known[part.key] = tuple(found.values())
        return self._known[part.key]

    def _formed(self, part: Graph, chosen: Mapping[str, str]) -> Kernels:
        tick()
        done, cut = self._cut(part, chosen)
        free, roots = self.is_free(done), set(done.roots)
        calls = [c for c in cut.calls if not all(t.uid in free and t not in roots for t in c.outputs)]
        inner = sum(t.nbytes for c in calls for t in c.outputs if t not in roots)
        return Kernels(tuple(c.subgraph for c in calls), inner, tuple(chosen.items()))


def _is_small(t: Compute) -> bool:
    return not t.inputs or t.nbytes <= MOST_PREPARED * sum(i.nbytes for i in t.inputs)


def parts_of(graph: Graph, free: Collection[int]) -> list[Part]:
    """The parts of a graph without what is `free`, by uid; those that begin earlier first."""
    nodes = graph.nodes
    number = {t.uid: n for n, t in enumerate(nodes)}
    late = [[number[i.uid] for i in t.inputs if i.uid in number and i.uid not in free] for t in nodes]
    joined = list(range(len(nodes)))

    def home(n: int) -> int:
        while joined[n] != n:
            joined[n] = n = joined[joined[n]]
        return n

    stored: set[int] = set()
    readers: dict[int, int] = {}
    for n, t in enumerate(nodes):
        for s in _behind_moves(nodes, late, late[n]) if is_contraction(t.definition) and t.uid not in free else ():
            stored.add(s)
            joined[home(n)] = home(readers.setdefault(s, n))
    for n, t in enumerate(nodes):
        for i in late[n] if t.uid not in free else ():
            if i not in stored:
                joined[home(n)] = home(i)
    groups: dict[int, list[int]] = {}
    for n, t in enumerate(nodes):
        if t.uid not in free:
            groups.setdefault(home(n), []).append(n)
    needed = {t.uid for t in graph.roots}
    needed.update(nodes[i].uid for n, t in enumerate(nodes) if t.uid not in free for i in late[n] if home(i) != home(n))
    return [_part(nodes, at, needed, free) for at in groups.values()]


def _behind_moves(nodes: tuple[Compute, ...], late: list[list[int]], some: Iterable[int]) -> Iterator[int]:
    """What is computed and only moved before it is read."""
    for n in some:
        moved = n
        while is_move(nodes[moved].definition) and len(nodes[moved].inputs) == len(late[moved]) == 1:
            moved = late[moved][0]
        if late[moved] or not is_move(nodes[moved].definition):
            yield moved


def _part(nodes: tuple[Compute, ...], at: list[int], needed: Collection[int], free: Collection[int]) -> Part:
    own = [nodes[n] for n in at]
    inside = {t.uid for t in own}
    read: dict[int, Tensor] = {i.uid: i for t in own for i in t.inputs if i.uid not in inside}
    place = {uid: n for n, uid in enumerate((*read, *(t.uid for t in own)))}
    given = tuple(t for t in own if t.uid in needed)
    key = (
        tuple((i.structure if isinstance(i, Constant) else (i.shape, i.dtype, i.uid in free)) for i in read.values()),
        tuple((t.definition, *(place[i.uid] for i in t.inputs)) for t in own),
        tuple(place[t.uid] for t in given),
    )
    lasting = frozenset(uid for uid in read if uid in free)
    return Part(tuple(at), tuple(read.values()), given, key, lasting)


def cut_part(graph: Graph, part: Part) -> Graph:
    """A part as a graph of its own; what it reads are placeholders, and parameters where that stays."""
    nodes, made = graph.nodes, dict[int, Tensor]()
    fed: list[Placeholder] = []
    for i in part.read:
        made[i.uid] = i
        if i.uid in part.lasting and not isinstance(i, Constant):
            made[i.uid] = Parameter(i.shape, i.dtype, i.name, None, init=None)
        elif not isinstance(i, Constant):
            made[i.uid] = stand_in = Placeholder(i.shape, i.dtype, i.name, None)
            fed.append(stand_in)
    for n in part.at:
        made[nodes[n].uid] = nodes[n].over(tuple(made[i.uid] for i in nodes[n].inputs))
    return Graph(tuple(fed), tuple(made[t.uid] for t in part.given), ())


def most_bytes(graph: Graph, parts: Iterable[Part], inner: Iterable[int]) -> int:
    """The most bytes of what parts write and others still read, in the order of the graph, with what the part at hand
    writes for itself."""
    position = {t.uid: n for n, t in enumerate(graph.nodes)}
    roots = {t.uid for t in graph.roots}
    last: dict[int, int] = {}
    change: Counter[int] = Counter()
    within: Counter[int] = Counter()
    parts, inner = list(parts), list(inner)
    for part in parts:
        for i in part.read:
            last[i.uid] = max(last.get(i.uid, -1), part.at[-1])
    for part, nbytes in zip(parts, inner, strict=True):
        within[part.at[-1]] += nbytes
        for t in part.given:
            change[position[t.uid]] += t.nbytes
            if t.uid not in roots and t.uid in last:
                change[last[t.uid] + 1] -= t.nbytes
    now = most = 0
    for n in range(len(graph.nodes)):
        now += change[n]
        most = max(most, now + within[n])
    return most

"""Which algorithm a contraction is computed by: the small graph of each that fits, measured as a whole.

What a small graph takes is the sum of what its kernels take, so nothing is kept but trials of kernels: a choice follows
from the records, is as old as the templates of its kernels, and is made again where these change. Kernels that multiply
are measured first, then the transforms beside those that may win. Where there was no time for that, or it failed, a
transform is taken at twice what it is thought to take on a CPU. On a GPU only what was measured counts: nobody has
measured how far its estimates are off. What comes of it is timed as a whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor
from neoflow.graph import Graph, is_move, make_graph
from neoflow.graph.algorithms import BY_NAME, DIRECT, Algorithm, alternatives, use, whole
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.partition import (
    KernelCall,
    Subgraph,
    cost_of,
    multiplies,
    object_for_gpu,
    object_to,
    partition,
    prepared_first,
)
from neoflow.roofs import Roofs
from neoflow.target import Target
from neoflow.tune.limits import ROUNDING
from neoflow.tune.records import Records
from neoflow.tune.trial import Measure

Cost = Callable[[Subgraph], float | None]
"""Seconds of a call of a kernel; None: not known."""

GAIN = 1.05
"""How many times as fast as the direct sum an algorithm has to be: below, it is noise."""


LONGER = 2.0
"""How many times as long as thought what multiplies nothing takes on a CPU, where it was not measured: transforms of
3x3 convolutions of 64 to 512 channels took 1.2 to 1.9 times as long, those of a single sample 3, of which little is
left beside the products."""


@dataclass(frozen=True)
class Choice:
    """name: of the contraction; digest: of its definition as a whole. algorithm: what is fastest. seconds: of each that
    is known, the direct one first; none, where that is not known. rounding: how many times larger than the direct sum's
    its roundings may be. calls: contractions of this definition. left: the algorithm that is faster by itself, where
    the whole program is not with it."""

    name: str
    digest: str
    algorithm: str
    seconds: Mapping[str, float]
    rounding: float = 1.0
    calls: int = 1
    left: str = ""

    @property
    def gain(self) -> float:
        """Seconds that all its calls are expected to take less."""
        return self.calls * (self.seconds[DIRECT] - self.seconds[self.algorithm]) if self.seconds else 0.0

    @property
    def directly(self) -> Choice:
        """The direct sum in its place, since the whole program is faster so."""
        return replace(self, algorithm=DIRECT, rounding=1.0, left=self.algorithm)

    def __str__(self) -> str:
        times = ", ".join(f"{name} {s * 1e6:.1f} us" for name, s in self.seconds.items())
        rounds = "" if self.rounding == 1.0 else f", at most {self.rounding:.3g} times the direct sum's roundings"
        left = f", {self.left} is faster by itself and not in the whole program" if self.left else ""
        return f"{self.name}: {self.algorithm}{rounds}{left}" + (f" ({times})" if times else "")


@dataclass(frozen=True)
class Candidate:
    """An algorithm for the contractions of a definition, and the small graph that it makes of one of them; target: that
    it is for, None: a CPU."""

    name: str
    graph: Graph
    target: Target | None = None

    @property
    def kernels(self) -> tuple[Subgraph, ...]:
        """One for each call, but for what follows from parameters that stay: on a CPU that is computed once for all
        calls."""
        cut = partition(self.graph, choose=object_for_gpu if _is_gpu(self.target) else object_to)
        calls, prepared = (cut.calls, 0) if _is_gpu(self.target) else prepared_first(self.graph, cut.calls, cut.views)
        return tuple(c.subgraph for c in calls[prepared:] if isinstance(c, KernelCall))

    def seconds(self, cost: Cost) -> float | None:
        """Of all its kernels; None where one is not known."""
        known = [cost(kernel) for kernel in self.kernels]
        return None if any(s is None for s in known) else sum(s for s in known if s is not None)

    def thought(self, roofs: Roofs) -> float:
        """What all its kernels are thought to take."""
        return sum(_thought(kernel, self.target, roofs) for kernel in self.kernels)


def _is_gpu(target: Target | None) -> bool:
    return target is not None and target.device != "cpu"


def _thought(kernel: Subgraph, target: Target | None, roofs: Roofs) -> float:
    """Seconds of a call."""
    if target is None or not _is_gpu(target):
        return cost_of(kernel).seconds(roofs)
    return estimate(problem_of(kernel), default_schedule(kernel, target), target).seconds


def to_measure(
    graph: Graph, rounding: float, roofs: Roofs, target: Target | None = None
) -> tuple[tuple[Subgraph, ...], ...]:
    """Of each contraction that another algorithm is thought to be faster for, those of which a step would gain most
    first, the kernels that multiply: directly and by those algorithms."""
    calls = _calls(graph)
    found: list[tuple[float, list[Candidate]]] = []
    for t, (direct, *others) in candidates(graph, rounding, target).items():
        now, thought = direct.thought(roofs), {c: c.thought(roofs) for c in others}
        faster = sorted((c for c in others if thought[c] < now), key=lambda c: thought[c])
        if faster:
            found.append((calls[whole(t).definition.digest] * (now - thought[faster[0]]), [direct, *faster]))
    found.sort(key=lambda each: -each[0])
    return tuple(tuple(dict.fromkeys(k for c in those for k in c.kernels if multiplies(k))) for _, those in found)


def moves_to_measure(
    graph: Graph, rounding: float, known: Cost, roofs: Roofs, target: Target | None = None
) -> tuple[tuple[Subgraph, ...], ...]:
    """Of each contraction that is faster by another algorithm if what multiplies nothing takes what it is thought to,
    those of which a step would gain most first, what multiplies nothing: directly and by those algorithms.

    known: of what multiplies.
    """

    def hoped(kernel: Subgraph) -> float | None:
        seconds = known(kernel)
        return _thought(kernel, target, roofs) if seconds is None and not multiplies(kernel) else seconds

    calls = _calls(graph)
    found: list[tuple[float, list[Candidate]]] = []
    for t, (direct, *others) in candidates(graph, rounding, target).items():
        now = direct.seconds(hoped)
        took = {c: s for c in others if (s := c.seconds(hoped)) is not None and now is not None and s * GAIN < now}
        if took and now is not None:
            faster = sorted(took, key=lambda c: took[c])
            found.append((calls[whole(t).definition.digest] * (now - took[faster[0]]), [direct, *faster]))
    found.sort(key=lambda each: -each[0])
    return tuple(tuple(dict.fromkeys(k for c in those for k in c.kernels if not multiplies(k))) for _, those in found)


def _calls(graph: Graph) -> Counter[str]:
    """Contractions of each definition."""
    return Counter(whole(t).definition.digest for t in graph.nodes)


def candidates(
    graph: Graph, rounding: float = ROUNDING, target: Target | None = None
) -> dict[Compute, tuple[Candidate, ...]]:
    """For one contraction of each definition that algorithms fit, within `rounding`: the direct sum and these. target:
    that they are for, None: a CPU.

    Those that a step spends most on come first. The graph is behind `PASSES`.
    """
    fitting = alternatives(graph)
    work, first = Counter[str](), dict[str, Compute]()
    for node in graph.nodes:
        found = whole(node)
        digest = found.definition.digest
        if digest in fitting:
            first.setdefault(digest, node)
            work[digest] += sum(
                part.size * math.prod(a.extent for a in part.definition.reduction_axes) for part in found.parts
            )
    lasting = lasting_of(graph)
    made: dict[Compute, tuple[Candidate, ...]] = {}
    for digest, algorithms in sorted(fitting.items(), key=lambda item: -work[item[0]]):
        t = first[digest]
        allowed = [a for a in algorithms if a.rounding(whole(t).definition) <= rounding]
        if allowed:
            small = small_graph(t, lasting)
            others = (_candidate(small, digest, a, target) for a in allowed)
            made[t] = (Candidate(DIRECT, small, target), *others)
    return made


def _candidate(small: Graph, digest: str, algorithm: Algorithm[Any], target: Target | None) -> Candidate:
    return Candidate(algorithm.name, use(small, {digest: algorithm.name})[0], target)


def lasting_of(graph: Graph) -> frozenset[Tensor]:
    """Parameters that no call writes, and what follows from these alone."""
    changed = {p for p, _ in graph.updates}
    found: set[Tensor] = set()
    for t in graph.order:
        if isinstance(t, Compute):
            stays = bool(t.inputs) and all(i in found for i in t.inputs)
        else:
            stays = isinstance(t, Parameter) and t not in changed
        if stays:
            found.add(t)
    return frozenset(found)


def small_graph(t: Compute, lasting: Collection[Tensor] = ()) -> Graph:
    """A contraction over placeholders, with what it is put together of and what pads its operands: an algorithm looks
    through that. lasting: what stays from call to call, a parameter there."""
    stands: dict[Tensor, Tensor] = {}

    def stand_in(tensor: Tensor) -> Tensor | None:
        if tensor in kept or isinstance(tensor, Constant) or tensor in stands.values():
            return None
        if tensor not in stands:
            if tensor in lasting:
                stands[tensor] = Parameter(tensor.shape, tensor.dtype, tensor.name, None, init=None)
            else:
                stands[tensor] = Placeholder(tensor.shape, tensor.dtype, tensor.name, None)
        return stands[tensor]

    parts = whole(t).parts
    kept = {*parts, *(i for p in parts for i in p.inputs if isinstance(i, Compute) and is_move(i.definition))}
    (root,) = replaced([t], stand_in)
    return make_graph([root], [s for s in stands.values() if not isinstance(s, Parameter)])


def choose(graph: Graph, cost: Cost, rounding: float = ROUNDING, target: Target | None = None) -> tuple[Choice, ...]:
    """The fastest algorithm of each definition that any fits, within `rounding`; what is not known stays direct."""
    calls = _calls(graph)
    found = [_choice(t, those, cost) for t, those in candidates(graph, rounding, target).items()]
    return tuple(replace(c, calls=calls[c.digest]) for c in found)


def _choice(t: Compute, those: tuple[Candidate, ...], cost: Cost) -> Choice:
    definition = whole(t).definition
    direct, *others = ((c.name, c.seconds(cost)) for c in those)
    usual = direct[1]
    if usual is None:
        return Choice(t.name, definition.digest, DIRECT, {})
    seconds = {DIRECT: usual, **{name: s for name, s in others if s is not None}}
    best = min(seconds, key=lambda name: seconds[name])
    if seconds[best] * GAIN >= usual or best == DIRECT:
        return Choice(t.name, definition.digest, DIRECT, seconds)
    return Choice(t.name, definition.digest, best, seconds, BY_NAME[best].rounding(definition))


def applied(graph: Graph, choices: tuple[Choice, ...]) -> Graph:
    """The graph with its contractions computed as was chosen."""
    return use(graph, {c.digest: c.algorithm for c in choices if c.algorithm != DIRECT})[0]


def with_moves(cost: Cost, roofs: Roofs) -> Cost:
    """The same, and a guess of what multiplies nothing where that was not measured: there was no time, or it failed."""

    def either(kernel: Subgraph) -> float | None:
        seconds = cost(kernel)
        if seconds is None and not multiplies(kernel):
            return LONGER * cost_of(kernel).seconds(roofs)
        return seconds

    return either


def recorded(records: Records, target: Target) -> Cost:
    """What the best schedule took that was measured with the present templates."""

    def cost(kernel: Subgraph) -> float | None:
        best = records.best(kernel, target)
        return None if best is None else best.seconds

    return cost


def measured(measure: Measure, records: Records, target: Target, deadline: float | None = None) -> Cost:
    """The same; a kernel of which nothing is known is measured with its default schedule, and kept."""
    known = recorded(records, target)

    def cost(kernel: Subgraph) -> float | None:
        seconds = known(kernel)
        if seconds is None and not records.trials(kernel, target):
            trials = measure(kernel, target, [default_schedule(kernel, target)], deadline)
            records.add(kernel, target, trials)
            seconds = trials[0].seconds
        return seconds

    return cost

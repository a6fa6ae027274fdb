"""What kernels take, for whoever chooses how tensors lie: what was measured, and elsewhere an estimate that knows in
which order things lie, as many times as long as the measured kernels of the same template took longer than theirs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.graph import Graph, points
from neoflow.loops import costs, default_schedule, problem_of
from neoflow.loops.nest import input_reads, is_data_dependent, stride
from neoflow.loops.problem import NestProblem
from neoflow.partition import Partition, Subgraph, cost_of
from neoflow.partition.calls import Call
from neoflow.rewriting.layouts import contracting
from neoflow.rewriting.times import Lookup, Times
from neoflow.roofs import STATED
from neoflow.target import Target
from neoflow.verdict import Verdict

CLOCK = 2.5e9
"""Cycles a second, of what is stated of a machine."""
RIVALS = 2
"""Other choices of a stage at most that are judged by their kernels."""
CLEARLY = 0.97
"""Of the estimate of all kernels that would be others, what these take at most where nobody measured any of either."""
GUESSED = 0.8
"""The same where some of them were measured: what is known gives way to a guess only where that is much less. Scaled
estimates of contractions lie within 0.8 and 1.3 of what these take, see `flowing.CLEARLY`."""

OPERATION, ALIGNED, LOADED, SHUFFLED, APART = 1.0, 0.5, 2.0, 4.0, 1.2
"""Cycles of a vector for what is done with it, and for each read of whole lines, of what lies side by side across them,
and in steps of 2 to 4; of each element that lies further apart. Fitted to depthwise convolutions, pooling and padding
of one sample that read and write either order, on a Xeon with AVX-512: of two orders of a kernel that convert nothing
the ratio was within 0.85 and 1.15 of what was measured but for one of 1.4 that was 2.7, conversions within 0.8 and 2.7
of it."""
NEAR, FAR = 6.0, 4.0
"""Bytes a cycle that a core moves meanwhile, of what its own cache holds and of more."""


@remembered
def estimated(kernel: Subgraph, target: Target) -> float:
    """Seconds of a kernel by its default schedule, no less than what it moves and does takes by what is stated."""
    least, found = cost_of(kernel).seconds(STATED), contracting(kernel, target)
    if found is None and kernel.rows is not None:
        return least
    cycles = swept(kernel, target) if found is None else found.cycles
    return max(least, cycles / CLOCK / target.threads)


@remembered
def _template(kernel: Subgraph, target: Target) -> str:
    return default_schedule(kernel, target).template


class Judge(Times):
    """`Times` for one target; kernels of one kind are those of one template."""

    def __init__(self, target: Target, known: Lookup):
        """known: what was measured before."""
        super().__init__(STATED, known)
        self._target = target

    def thought(self, kernel: Subgraph) -> float:
        return estimated(kernel, self._target)

    def kind(self, kernel: Subgraph) -> Hashable:
        return _template(kernel, self._target)

    def cycles(self, kernel: Subgraph) -> float:
        """Of one core, where all cores of the target share a kernel."""
        return self(kernel) * CLOCK * self._target.threads

    def prefers(self, other: Kernels, usual: Kernels) -> Verdict:
        """Whether a program takes less in other kernels than in the usual ones: only those that differ are looked at.

        Where all of them were measured, less is less; where none was, it has to be clearly less, and no kernel may go
        by rows, of which no estimate knows how it would in another order; else it has to be much less, also
        where estimates are scaled by those kernels alone. So what is preferred is less by these times, and no chain of
        preferences leads back to where it began.
        """
        was, will = usual.counts - other.counts, other.counts - usual.counts
        by_digest = {**usual.by_digest, **other.by_digest}
        if not was and not will:
            return Verdict(False, "its kernels are the same")
        known = [self.measured(by_digest[d]) is not None for d in (*was, *will)]
        now, then = (sum(n * self(by_digest[d]) for d, n in found.items()) for found in (was, will))
        how = "measured" if all(known) else "by measured times and scaled estimates" if any(known) else "estimated"
        if not any(known) and (rows := sum(n for d, n in was.items() if by_digest[d].rows is not None)):
            return Verdict(False, f"{rows} of its kernels go by rows, as these lie")
        told = f"the {will.total()} kernels that differ take {then * 1e6:.0f} us, not {now * 1e6:.0f}, {how}"
        if all(known) or then >= now:
            return Verdict(then < now, told)
        most = GUESSED if any(known) else CLEARLY
        if then > most * now:
            return Verdict(False, f"{told}, and that is not {1 - most:.0%} less")
        near, far = self._among(was, will, by_digest)
        if any(known) and near > most * far:
            return Verdict(
                False, f"{told}, but {near * 1e6:.0f} and {far * 1e6:.0f} as these alone scale their estimates"
            )
        return Verdict(True, told)

    def _among(self, was: Counter[str], will: Counter[str], by_digest: Mapping[str, Subgraph]) -> tuple[float, float]:
        """Seconds of other kernels and of the usual ones, of unknown ones by what the known ones among them took longer
        than estimated: where an estimate is wrong about a kernel, it is so in another order too."""
        sums: dict[Hashable, list[float]] = {}
        for d, n in (was + will).items():
            if (seconds := self.measured(by_digest[d])) is not None:
                each = sums.setdefault(self.kind(by_digest[d]), [0.0, 0.0])
                each[0] += n * seconds
                each[1] += n * self.thought(by_digest[d])

        def take(d: str) -> float:
            kernel, ratio = by_digest[d], sums.get(self.kind(by_digest[d]))
            is_guess = self.measured(kernel) is None and ratio is not None
            return self.thought(kernel) * ratio[0] / ratio[1] if is_guess and ratio is not None else self(kernel)

        near, far = (sum(n * take(d) for d, n in found.items()) for found in (will, was))
        return near, far


@dataclass(frozen=True)
class Rival:
    """Another choice of a stage, that its kernels may speak for, and its name."""

    name: str
    graph: Graph


@dataclass(frozen=True)
class Kernels:
    """The kernels that every call of a program runs, by digest, and how often."""

    counts: Counter[str]
    by_digest: dict[str, Subgraph]


def kernels_of_calls(cut: Partition, changed: Collection[Tensor]) -> Kernels:
    """The kernels of a program that changes these parameters, but for those that are run once."""
    calls = [c for c in cut.calls if not is_prepared(c, changed)]
    return Kernels(Counter(c.subgraph.digest for c in calls), {c.subgraph.digest: c.subgraph for c in calls})


def is_prepared(call: Call, changed: Collection[Tensor]) -> bool:
    """Whether a kernel reads nothing but parameters that stay: it is run once."""
    return bool(call.inputs) and all(isinstance(i, Parameter) and i not in changed for i in call.inputs)


@remembered
def swept(kernel: Subgraph, target: Target) -> float:
    """Estimated cycles of one core for a map, or for a sum that is no contraction: of the vectors of its default
    schedule for what they read and do, and of what goes through memory once."""
    definition = kernel.nodes[kernel.anchor or 0].definition
    schedule, problem = default_schedule(kernel, target), problem_of(kernel)
    moved = cost_of(kernel).nbytes
    memory = moved / (NEAR if moved <= target.l2_bytes else FAR)
    if not isinstance(problem, NestProblem) or schedule.template not in ("map", "reduction"):
        return points(definition) + memory
    knobs = dict(schedule.knobs)
    nest, lanes = problem.fused(knobs), int(knobs["lanes"])
    along = nest.reduction.axes if nest.reduction is not None and knobs.get("lane") == "reduced" else nest.axes
    extent = along[-1].extent if along else 1
    each, apart = OPERATION, 0.0
    for e in (nest.reduction.body,) if nest.reduction is not None else tuple(v for _, _, v in nest.outputs):
        for read in dict.fromkeys(input_reads(e)):
            step = None if is_data_dependent(read) or not along else stride(read.indices[0], along[-1])
            if step is None or abs(step) > 4:
                apart += lanes * (costs.PACK_TURNED if knobs.get("turn") else APART)
            elif step != 0:
                terms, first = affine.linear(read.indices[0])
                whole = all(n % lanes == 0 for a, n in terms.items() if a is not along[-1]) and first % lanes == 0
                each += SHUFFLED if abs(step) > 1 else ALIGNED if whole else LOADED
    vectors = points(definition) / extent * math.ceil(extent / lanes)
    return max(vectors * each, memory) + vectors * apart

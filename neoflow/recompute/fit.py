"""A plan that fits into memory: the cheapest of those that do, by exact planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neoflow.code import Code
from neoflow.errors import ConfigError
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.graph import Graph
from neoflow.partition import Grouped, KernelCall, Loop, View, cost_of, grouped
from neoflow.recompute.repeat import repeated
from neoflow.recompute.search import Candidate, candidates
from neoflow.recompute.steps import Steps, steps_of
from neoflow.recompute.unroll import Run
from neoflow.roofs import Roofs
from neoflow.runtime.memory import amount
from neoflow.runtime.plan import Plan
from neoflow.runtime.planner import make_plan


class DoesNotFit(ConfigError):
    """A program needs more memory than there is. least: the bytes it can do with; seconds: of all its kernels with
    everything kept, by the estimate."""

    def __init__(self, message: str, least: int, seconds: float):
        super().__init__(message)
        self.least, self.seconds = least, seconds


@dataclass(frozen=True, eq=False)
class Program:
    """Kernel calls in order, and what else `make_plan` takes."""

    graph: Graph
    calls: tuple[KernelCall, ...]
    in_place: frozenset[Parameter]
    views: Mapping[Tensor, View]
    kernels: Mapping[str, Code]
    threads: int
    prepared: int = 0
    loops: tuple[Loop, ...] = ()
    together: tuple[tuple[int, int], ...] = ()

    def plan(self) -> Plan:
        return make_plan(
            self.graph,
            self.calls,
            self.in_place,
            self.views,
            self.kernels,
            self.threads,
            self.prepared,
            self.loops,
            self.together,
        )

    def grouped(self, roofs: Roofs, is_shared: bool) -> Grouped:
        """Its calls with short ones together, by what a machine reaches. is_shared: whether several can do the tasks of
        a kernel, a GPU or threads."""
        if not is_shared:
            return Grouped(self.calls, (), "there is one thread, which waits for nobody")
        return grouped(
            self.graph,
            self.calls,
            self.in_place,
            self.views,
            self.prepared,
            self.loops,
            lambda c: cost_of(c.subgraph).seconds(roofs),
            lambda c: bool(self.kernels[c.subgraph.digest].faults),
        )

    def steps(self, roofs: Roofs) -> Steps:
        """It in numbers, its kernels priced by what a machine reaches."""
        return steps_of(
            self.graph,
            self.calls,
            self.in_place,
            self.views,
            self.kernels,
            self.threads,
            lambda s: cost_of(s).seconds(roofs),
        )

    def seconds(self, roofs: Roofs) -> float:
        """Of all kernels, those of loops as often as these turn."""
        turns = [1] * len(self.calls)
        for loop in self.loops:
            for n in range(loop.first, loop.first + loop.count):
                turns[n] *= loop.turns
        return sum(n * cost_of(c.subgraph).seconds(roofs) for n, c in zip(turns, self.calls, strict=True))

    def using(self, kernels: Mapping[str, Code]) -> Program:
        """The same calls, of these kernels."""
        return replace(self, kernels=kernels)

    def running(self, steps: Steps, runs: Sequence[Run]) -> Program:
        """The program that computes some of its temporaries again."""
        calls, views = repeated(self.calls, self.views, steps, runs)
        return replace(self, calls=calls, views=views)


@dataclass(frozen=True, eq=False)
class Fitted:
    """program: what runs, of `steps` some again. whole: bytes with everything kept; limit: those there are. before,
    after: seconds of all kernels with everything kept and with what runs again, by the estimate."""

    program: Program
    steps: Steps
    runs: tuple[Run, ...]
    plan: Plan
    whole: int
    limit: int
    before: float
    after: float

    @property
    def again(self) -> tuple[Run, ...]:
        """What is computed again."""
        return tuple(r for r in self.runs if r.wanted)

    def __str__(self) -> str:
        if not self.again:
            return f"{amount(self.whole)} of {amount(self.limit)}: nothing need be computed again"
        price = f"{1e3 * self.before:.4g} ms to {1e3 * self.after:.4g} ms (+{self.after / self.before - 1:.1%})"
        return (
            f"{amount(self.whole)} brought to {amount(self.plan.nbytes)} of {amount(self.limit)}: {len(self.again)} "
            f"kernels run again beside {len(self.steps.steps)}, by the estimate from {price}"
        )

    def to_text(self) -> str:
        """A line a kernel that runs again: what it frees, and its price."""
        lines = [str(self), self.plan.memory]
        for run in self.again:
            names = ", ".join(self.steps.temporaries[m].name for m in run.wanted)
            size, seconds = sum(self.steps.sizes[m] for m in run.wanted), self.steps.steps[run.step].seconds
            lines.append(f"{names} not kept, {amount(size)}: {1e3 * seconds:.3g} ms again")
        return "\n".join(lines)


def fit(program: Program, limit: int, roofs: Roofs) -> Fitted:
    """The fastest program by the estimate that needs no more than `limit` bytes of everything.

    Raises `DoesNotFit` that says the least that works.
    """
    steps, plan = program.steps(roofs), program.plan()
    if program.loops and plan.nbytes > limit:
        raise DoesNotFit(
            f"the program does not fit into {amount(limit)}: it takes {amount(plan.nbytes)}, {plan.nbytes} bytes "
            f"({plan.memory}); of what recurrences (nf.scan) keep of their steps only what a gradient reads is "
            "computed again",
            plan.nbytes,
            program.seconds(roofs),
        )
    if plan.nbytes <= limit:
        everything = tuple(Run(n) for n in range(len(steps.steps)))
        seconds = program.seconds(roofs)
        return Fitted(program, steps, everything, plan, plan.nbytes, limit, seconds, seconds)
    found = list(candidates(steps))
    fitted = _fastest(program, steps, found, plan, limit) or _least(program, steps, found, plan, limit)
    if fitted.plan.nbytes <= limit:
        return fitted
    least = _fastest(program, steps, found, plan, fitted.plan.nbytes) or fitted
    raise DoesNotFit(
        f"the program does not fit into {amount(limit)}: the least that works is {amount(least.plan.nbytes)}, "
        f"{least.plan.nbytes} bytes ({least.plan.memory}), by the estimate at {least.after / least.before:.2f} times "
        f"the time; with everything kept it takes {amount(least.whole)}",
        least.plan.nbytes,
        least.before,
    )


def _fastest(program: Program, steps: Steps, found: Sequence[Candidate], whole: Plan, limit: int) -> Fitted | None:
    """The candidate of the least time whose live set and plan fit; None where none does. whole: everything is kept."""
    lasting = whole.nbytes - whole.arena_bytes
    for c in sorted(found, key=lambda c: (c.seconds, c.peak)):
        if lasting + c.peak <= limit:
            again = program.running(steps, c.runs)
            if (plan := again.plan()).nbytes <= limit:
                return Fitted(again, steps, c.runs, plan, whole.nbytes, limit, steps.seconds, c.seconds)
    return None


def _least(program: Program, steps: Steps, found: Sequence[Candidate], whole: Plan, limit: int) -> Fitted:
    """The candidate whose plan takes the fewest bytes."""
    best: Fitted | None = None
    for c in sorted(found, key=lambda c: (c.peak, c.seconds)):
        if best is not None and best.plan.nbytes <= whole.nbytes - whole.arena_bytes + c.peak:
            break
        again = program.running(steps, c.runs)
        plan = again.plan()
        if best is None or plan.nbytes < best.plan.nbytes:
            best = Fitted(again, steps, c.runs, plan, whole.nbytes, limit, steps.seconds, c.seconds)
    assert best is not None
    return best

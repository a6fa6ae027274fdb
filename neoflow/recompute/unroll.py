"""What runs when some temporaries are not kept, and the memory that takes.

A *gap* is a temporary and a step that touches it: after that step it is lost, and computed again where it is next
read. What it is computed from is kept until then, or lost as well and computed again before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from neoflow.recompute.steps import Steps

Gap = tuple[int, int]


@dataclass(frozen=True)
class Run:
    """A step of the program; `wanted`: of a repetition, the temporaries that are written again, none of the first."""

    step: int
    wanted: tuple[int, ...] = ()


def unroll(steps: Steps, lost: Iterable[Gap], brief: Collection[Gap] = ()) -> list[Run] | None:
    """The steps in order, and before what reads something that is lost, all that computes it again; None where that
    would read what is overwritten by then. brief: of what is lost that which is lost again as often as it is computed
    for something else; the rest is there from then on."""
    after: dict[int, list[int]] = {}
    for m, n in lost:
        after.setdefault(n, []).append(m)
    ends = {*brief, *(g for g in lost if g[1] == steps.touches[g[0]][-1])}
    gone, runs = set[int](), list[Run]()
    for n, step in enumerate(steps.steps):
        again: list[int] = []
        for m in step.reads:
            if m in gone and not _repeat(steps, m, n, gone, runs, again):
                return None
        runs.append(Run(n))
        if n in after:
            gone.update(after[n])
        gone.update(m for m in again if n not in steps.touches[m] and (m, steps.touched(m, n)) in ends)
    return runs


def _repeat(steps: Steps, wanted: int, at: int, gone: set[int], runs: list[Run], again: list[int]) -> bool:
    """Compute a temporary again before step `at`; False where what that reads is overwritten by then, or lost with it:
    the parts of a whole may follow from each other through what else is lost."""
    stack, begun = [wanted], set[int]()
    while stack:
        m = stack[-1]
        missing = [i for n in steps.makers[m] for i in steps.steps[n].reads if i in gone and i != m]
        if m in gone and missing:
            if m in begun:
                return False
            begun.add(m)
            stack += missing
            continue
        stack.pop()
        if m in gone:
            if not all(steps.steps[n].can_write(m, at) for n in steps.makers[m]):
                return False
            written = _together(steps, m, at, gone)
            runs += [Run(n, written) for n in steps.makers[m]]
            gone.difference_update(written)
            again += written
    return True


def _together(steps: Steps, m: int, at: int, gone: set[int]) -> tuple[int, ...]:
    """What is written again with a temporary: all that its step writes and still can, is lost, and is read from step
    `at` on."""
    makers = steps.makers[m]
    maker = steps.steps[makers[0]]
    others = maker.writes if len(makers) == 1 else ()
    lost = (o for o in others if o != m and o in gone and steps.makers[o] == makers)
    return m, *(o for o in lost if steps.touches[o][-1] >= at and maker.can_write(o, at))


@dataclass(frozen=True)
class Profile:
    """live: bytes of temporaries and workspaces while each step runs, with what is repeated before it."""

    live: list[int]
    steps: Steps
    runs: list[Run]

    @property
    def peak(self) -> int:
        return max(self.live, default=0)

    @cached_property
    def touched(self) -> list[list[int]]:
        """For each temporary, the steps at which it is written or read, ascending."""
        found: list[list[int]] = [[] for _ in self.steps.sizes]
        at = 0
        for run in self.runs:
            step = self.steps.steps[run.step]
            for m in (*step.reads, *(run.wanted or step.writes)):
                found[m].append(at)
            at += not run.wanted
        return found

    def around(self, m: int, at: int) -> tuple[int, int] | None:
        """The steps before and after `at` that touch a temporary; None where `at` does, or there are none."""
        touched = self.touched[m]
        k = bisect_right(touched, at)
        return (touched[k - 1], touched[k]) if 0 < k < len(touched) and touched[k - 1] != at else None


def profile(steps: Steps, runs: list[Run]) -> Profile:
    """The memory of runs in order: what the planner's live set is at each."""
    count = len(runs)
    grown, live = [0] * (count + 1), [0] * count
    born: dict[int, int] = {}
    last = [0] * len(steps.sizes)
    dies: set[tuple[int, int]] = set()

    def end(m: int, k: int) -> None:
        grown[born[m]] += steps.sizes[m]
        grown[k + 1] -= steps.sizes[m]
        dies.add((m, k))

    for k, run in enumerate(runs):
        step = steps.steps[run.step]
        live[k] += step.space
        for m in step.reads:
            last[m] = k
        if not run.wanted:
            for m in step.writes:
                born.setdefault(m, k)
                last[m] = k
            continue
        live[k] += step.lasting
        for m in step.writes:
            if m not in run.wanted:  # written, and nobody reads it
                live[k] += steps.sizes[m]
                continue
            if run.step == steps.makers[m][0]:
                end(m, last[m])
                born[m] = k
            last[m] = k
    for m in born:
        end(m, count - 1 if m in steps.held else last[m])
    for k, run in enumerate(runs):
        if steps.steps[run.step].donors:
            live[k] -= _donated(steps, run, k, dies)
    most, at = [0] * len(steps.steps), 0
    for run, bytes_, more in zip(runs, accumulate(grown), live, strict=False):
        most[at] = max(most[at], bytes_ + more)
        at += not run.wanted
    return Profile(most, steps, runs)


def _donated(steps: Steps, run: Run, k: int, dies: set[tuple[int, int]]) -> int:
    """Bytes of outputs that lie where an input was, which dies there."""
    taken, total = set[int](), 0
    for source, target in steps.steps[run.step].donors:
        if (not run.wanted or target in run.wanted) and not {source, target} & taken and (source, k) in dies:
            taken |= {source, target}
            total += steps.sizes[source]
    return total

"""A loop of a plan as one launch: what the function that runs loops is given (`team_loop` in `codegen/cpu/team.ll`).

Its size does not depend on the turns. One thread goes through a turn; where turns need nothing of each other, several
threads go through turns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from neoflow.runtime.plan import Plan, Repeated
from neoflow.runtime.turns import outermost

MOST_POINTERS = 1 << 15
"""Of all calls of a loop: a thread has its own copy of them on its stack."""


class Words(NamedTuple):
    """words: in the form that is read there, but for addresses of buffers. functions: which are addresses of functions;
    places: buffers, and the words that are their addresses."""

    words: list[int]
    functions: list[int]
    places: list[tuple[int, int]]


def is_native(plan: Plan, loop: Repeated, threads: int) -> bool:
    """Whether it may run so: nothing in it fails, its pointers are not too many, and either its turns go side by side
    or no kernel has tasks for several of the threads, which would wait."""
    calls = plan.calls[loop.first : loop.first + loop.count]
    codes = [plan.kernels[c.kernel] for c in calls]
    if any(k.faults for k in codes) or sum(len(c.arguments) + len(c.workspaces) for c in calls) > MOST_POINTERS:
        return False
    return threads == 1 or loop.is_apart or not any(e.is_parallel and e.tasks > 1 for k in codes for e in k.entries)


def words_of(plan: Plan, loop: Repeated, addresses: Sequence[Sequence[int]], loop_function: int) -> Words:
    """What is given for a loop, and within it for those inside. addresses: of each kernel's entries."""
    inside = tuple(a for a in plan.loops[: plan.loops.index(loop)] if loop.holds(a))
    outer = {a.first: a for a in outermost(inside)}
    phases: list[tuple[int, int, int]] = []
    words: list[int] = []
    functions: list[int] = []
    places: list[tuple[int, int]] = []
    n = loop.first
    while n < loop.first + loop.count:
        first = len(words)
        if n in outer:
            inner = words_of(plan, outer[n], addresses, loop_function)
            phases.append((loop_function, first, outer[n].turns))
            words += inner.words
            functions += [first + f for f in inner.functions]
            places += [(number, first + place) for number, place in inner.places]
            n += outer[n].count
            continue
        call = plan.calls[n]
        for entry, address in zip(plan.kernels[call.kernel].entries, addresses[call.kernel], strict=True):
            phases.append((address, first, entry.tasks))
        given = (*call.arguments, *call.workspaces)
        places += [(number, first + k) for k, number in enumerate(given)]
        words += [0] * len(given)
        n += 1
    moving = {m.buffer: m for m in loop.moving}
    moved = [(place, moving[number]) for number, place in places if number in moving]
    head = [len(phases), len(moved), len(words)]
    rows = [v for phase in phases for v in phase]
    movings = [v for place, m in moved for v in (place, m.step, m.period, m.ahead)]
    before = len(head) + len(rows) + len(movings)
    own = [len(head) + 3 * k for k in range(len(phases))]
    return Words(
        [*head, *rows, *movings, *words],
        [*own, *(before + f for f in functions)],
        [(number, before + place) for number, place in places],
    )

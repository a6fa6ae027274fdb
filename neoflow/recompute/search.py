"""Which temporaries are computed again: one after the other, what frees the most memory around the peak for its time.

Every plan on the way is a candidate, whatever the limit: with more memory there are more to choose from. What is
computed again from afar brings along all in between, which may then be the peak. So where nothing else frees memory,
that is lost once more until it is read for itself; then what was lost too early is kept again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from neoflow.recompute.steps import Steps
from neoflow.recompute.unroll import Gap, Profile, Run, profile, unroll
from neoflow.trace import tick

TRIED = 4
"""Gaps that are looked at exactly of those that promise most."""
DEEPEST = 32
"""What is computed again to compute one of them, at most."""
AROUND = 0.5
"""The share of the first peak from which memory is scarce."""


@dataclass(frozen=True)
class Candidate:
    """lost: the gaps; brief: see `unroll`. peak: bytes of the largest live set. seconds: of all that runs."""

    lost: frozenset[Gap]
    brief: frozenset[Gap]
    runs: tuple[Run, ...]
    peak: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _State:
    lost: frozenset[Gap]
    brief: frozenset[Gap]
    runs: list[Run]
    profile: Profile
    seconds: float

    @staticmethod
    def of(steps: Steps, lost: frozenset[Gap], brief: frozenset[Gap] = frozenset()) -> _State | None:
        runs = unroll(steps, lost, brief)
        if runs is None:
            return None
        return _State(lost, brief, runs, profile(steps, runs), sum(steps.steps[r.step].seconds for r in runs))

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.lost, self.brief, tuple(self.runs), self.profile.peak, self.seconds)


def candidates(steps: Steps) -> Iterator[Candidate]:
    """Plans of less and less memory, the first being the program as it is."""
    state = _State.of(steps, frozenset())
    assert state is not None
    scarce = int(AROUND * state.profile.peak)
    while True:
        tick()
        yield state.candidate
        found = _better(steps, state, scarce, False) or _better(steps, state, scarce, True)
        found = found or _with_less_lost(steps, state)
        if found is None:
            return
        state = found


def _better(steps: Steps, state: _State, scarce: int, is_brief: bool) -> _State | None:
    """The state with a gap more, by which the live set at the peak is smaller and none is larger than the peak; with
    one that is brief, where those are asked for, of the gaps that there are."""
    live, peak = state.profile.live, state.profile.peak
    at = live.index(peak)
    excess = list(accumulate((max(0, n - scarce) for n in live), initial=0))
    ranked: list[tuple[float, Gap]] = []
    for m, size in enumerate(steps.sizes):
        gap = _gap(steps, state.profile, m, at)
        if gap is None or gap in state.brief or (gap in state.lost) != is_brief:
            continue
        before, after = state.profile.around(m, at) or (at, at)
        share = (excess[after] - excess[before + 1]) / max(1, excess[-1])
        seconds = sum(steps.steps[n].seconds for n in steps.makers[m])
        ranked.append((seconds / (size * max(share, 1e-9)), gap))
    ranked.sort()
    for first in range(0, len(ranked), TRIED):
        best: tuple[float, _State] | None = None
        for _, gap in ranked[first : first + TRIED]:
            for found in _with(steps, state, gap, at):
                freed = peak - found.profile.live[at]
                if found.profile.peak > peak or freed <= 0:
                    continue
                score = (found.seconds - state.seconds) / freed
                if best is None or score < best[0]:
                    best = score, found
        if best is not None:
            return best[1]
    return None


def _with_less_lost(steps: Steps, state: _State) -> _State | None:
    """The state with a gap less whose largest live set is smaller, for the least time a byte."""
    best: tuple[float, _State] | None = None
    for gap in sorted(state.lost):
        found = _State.of(steps, state.lost - {gap}, state.brief - {gap})
        if found is None or found.profile.peak >= state.profile.peak:
            continue
        score = (found.seconds - state.seconds) / (state.profile.peak - found.profile.peak)
        if best is None or score < best[0]:
            best = score, found
    return None if best is None else best[1]


def _gap(steps: Steps, profile: Profile, m: int, at: int) -> Gap | None:
    """The gap in which a temporary waits at a step, computed again or not."""
    around = profile.around(m, at)
    if m in steps.held or around is None or around[0] < steps.touches[m][0]:
        return None
    return m, steps.touched(m, around[0])


def _with(steps: Steps, state: _State, gap: Gap, at: int) -> Iterator[_State]:
    """The states with a gap more, or a brief one, with those of what it is computed from that is kept for that alone,
    and so on."""
    lost, stack, count = state.lost | {gap}, [gap[0]], 0
    brief = state.brief | (state.lost & {gap})
    while stack and count < DEEPEST:
        found = _State.of(steps, lost, brief)
        if found is None:
            return
        yield found
        count += 1
        sources = {i for m in stack for n in steps.makers[m] for i in steps.steps[n].reads}
        gaps = {g for i in sources if (g := _gap(steps, found.profile, i, at)) is not None}
        gaps = {g for g in gaps if g not in lost and _gap(steps, state.profile, g[0], at) is None}
        lost, stack = lost | gaps, [m for m, _ in gaps]

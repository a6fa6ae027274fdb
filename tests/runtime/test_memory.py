"""Placement of temporaries: nothing that lives together overlaps, and the arena is close to the least possible."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoflow.runtime.memory import ALIGNMENT, Lifetime, aligned, lower_bound, place

lifetimes = st.builds(
    lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
    st.integers(1, 2000),
    st.integers(0, 20),
    st.integers(0, 12),
)


def together(a: Lifetime, b: Lifetime) -> bool:
    return any(b.first <= step <= b.last for step in range(a.first, a.last + 1))


def least_arena(lives: list[Lifetime]) -> int:
    """The best over all orders of placing each at its lowest free offset; some order gives the optimum."""
    best = None
    for order in permutations(lives):
        placed: list[tuple[Lifetime, int]] = []
        for life in order:
            starts = [0, *(o + aligned(p.nbytes) for p, o in placed if together(p, life))]
            fits = [
                s
                for s in starts
                if all(
                    not together(p, life) or s + aligned(life.nbytes) <= o or o + aligned(p.nbytes) <= s
                    for p, o in placed
                )
            ]
            placed.append((life, min(fits)))
        size = max(o + aligned(p.nbytes) for p, o in placed)
        best = size if best is None else min(best, size)
    return best or 0


@given(st.lists(lifetimes, max_size=40))
@settings(deadline=None)
def test_no_overlap_and_never_below_the_live_set(lives):
    offsets, total = place(lives)
    assert all(o % ALIGNMENT == 0 and o + aligned(v.nbytes) <= total for o, v in zip(offsets, lives, strict=True))
    for n, a in enumerate(lives):
        for m, b in enumerate(lives[:n]):
            if together(a, b):
                assert offsets[n] + a.nbytes <= offsets[m] or offsets[m] + b.nbytes <= offsets[n]
    live = max((sum(aligned(v.nbytes) for v in lives if v.first <= t <= v.last) for t in range(40)), default=0)
    assert lower_bound(lives) == live <= total


def test_close_to_the_optimum():
    ratios = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        lives = []
        for _ in range(6):
            first = int(rng.integers(0, 8))
            lives.append(Lifetime(int(rng.integers(1, 20)) * ALIGNMENT, first, first + int(rng.integers(0, 5))))
        best = least_arena(lives)
        assert lower_bound(lives) <= best <= place(lives)[1]
        ratios.append(place(lives)[1] / best)
    assert np.mean(ratios) < 1.03 and max(ratios) < 1.35


def test_a_chain_needs_two_slots():
    """a -> b -> c -> ...: each is read once, by the next."""
    lives = [Lifetime(1024, n, n + 1) for n in range(30)]
    assert place(lives)[1] == lower_bound(lives) == 2048


@pytest.mark.parametrize("nbytes, rounded", [(0, 64), (1, 64), (64, 64), (65, 128)])
def test_alignment(nbytes, rounded):
    assert aligned(nbytes) == rounded

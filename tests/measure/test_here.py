"""What the workers of this machine start with."""

import os
import subprocess
import sys

from neoflow.measure.here import HELD, environment

MEBIBYTE = 1 << 20
TEMPORARIES = """
import resource, psutil
import numpy as np
sizes, page = np.random.default_rng(0).integers(1, 60, 40), resource.getpagesize()
process = psutil.Process()
start = process.memory_info().rss

def compute():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = []
    for size in sizes:
        kept = [*kept[-2:], np.ones(size << 17)]
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * page

first, second = compute(), compute()
print(first, second, process.memory_info().rss - start, int(sizes.sum()) << 20)
"""
"""Arrays of up to 60 MiB, three at a time: bytes of new pages of two rounds, what stays, and what each round had."""


def _measured(**variables: str) -> list[int]:
    found = subprocess.run(
        [sys.executable, "-c", TEMPORARIES],
        env={**os.environ, **environment(), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(number) for number in found.stdout.split()]


def test_memory_that_numpy_frees_stays_with_a_worker_up_to_a_bound():
    _, second, stays, all_of_it = _measured()
    assert second < all_of_it / 100
    assert stays < HELD + 64 * MEBIBYTE
    assert HELD < 512 * MEBIBYTE


def test_what_the_user_says_of_the_heap_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4096")
    assert environment()["MALLOC_TRIM_THRESHOLD_"] == "4096"
    assert environment()["MALLOC_MMAP_THRESHOLD_"] == str(HELD)

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neoflow as nf
from neoflow import codegen
from neoflow.loops import complete, default, problem_of, space
from neoflow.roofs import Level, Roofs
from neoflow.target import cpu_target
from neoflow.tune.floors import floor_of, least_seconds, subgraph_floor
from neoflow.tune.roofs import FASTEST_CLOCK, flops_a_cycle, nominal
from tests.codegen.kernels import loaded
from tests.loops.programs import product
from tests.tune.problems import GPU, TARGET, named, only, pool


def cycles_of(subgraph, target=TARGET, **knobs):
    problem = problem_of(subgraph)
    schedule = complete(
        "contraction", problem, target, {"fuse": problem.all_fused, "split": 0, "side": "right", **knobs}
    )
    return floor_of(problem, schedule, target)


def test_arithmetic_of_a_product():
    """64 x 64 x 128 multiply-adds, 16 lanes, 2 a cycle: by a tile that keeps them busy, and by ones that do not."""
    subgraph = only(product, (64, 128), (128, 64))
    busy = 64 * 64 * 128 / 16 / 2
    wide = {"lanes": 16, "vectors": 2, "tile_rows": 8, "parallel": True}
    assert cycles_of(subgraph, **wide).cycles == busy
    assert cycles_of(subgraph, **{**wide, "lanes": 8, "vectors": 1}).cycles == 2 * busy
    narrow = cycles_of(subgraph, **{**wide, "vectors": 1, "tile_rows": 1}).cycles
    assert busy * 4 / (1 + 512 / 128) * 2 == narrow > busy  # each waits for the one before, four products side by side
    spilled = cycles_of(subgraph, **{**wide, "vectors": 16, "tile_rows": 4})
    assert spilled.held == 2.0 and spilled.cycles >= busy


def test_what_the_compiler_may_make_of_narrow_vectors():
    """One by one they may be joined, also over rows; and a core that halves wide vectors has two units for narrow
    ones."""
    subgraph, half = only(product, (64, 128), (128, 64)), replace(TARGET, fma_units=1)
    busy = 64 * 64 * 128 / 16 / 2
    joined = cycles_of(subgraph, lanes=1, vectors=2, tile_rows=32)
    assert joined.cycles == busy
    assert cycles_of(subgraph, half, lanes=16, vectors=2, tile_rows=8).cycles == 2 * busy
    assert cycles_of(subgraph, half, lanes=8, vectors=4, tile_rows=8).cycles == 2 * busy


def test_the_busiest_core_has_one_task_at_least():
    subgraph = only(product, (64, 128), (128, 64))
    assert cycles_of(subgraph, parallel=False).share == 1.0
    assert cycles_of(subgraph, parallel=True, order="tiles", tile_rows=8).share == 0.5
    one = cycles_of(subgraph, parallel=True, order="panels", lanes=16, vectors=4, splits=1)
    assert one.share == 1.0


def test_what_does_not_fit_the_cache_is_read_again():
    subgraph = only(product, (2048, 2048), (2048, 512))
    once = 4 * (2048 * 2048 + 2048 * 512 + 2048 * 512)
    panels = {"lanes": 16, "vectors": 2, "order": "panels", "splits": 1, "parallel": True}
    lost = 4 * 2048 * 2048 - TARGET.l2_bytes
    assert cycles_of(subgraph, **panels).nbytes == once + (16 - 2) * lost
    small = only(product, (64, 128), (128, 64))
    assert cycles_of(small, **panels).nbytes == 4 * (64 * 128 + 128 * 64 + 64 * 64)


@pytest.mark.parametrize("splits", [2, 5])
def test_partial_sums_are_written_and_read_once_more(splits):
    subgraph = only(product, (64, 4096), (4096, 32))
    knobs = {"lanes": 16, "vectors": 2, "tile_rows": 8, "parallel": True, "order": "tiles"}
    once = cycles_of(subgraph, splits=1, **knobs).nbytes
    assert cycles_of(subgraph, splits=splits, **knobs).nbytes == once + 2 * splits * 4 * 64 * 32
    rows = only(lambda x: nf.sum(x, axis=0), (4096, 48))
    problem = problem_of(rows)
    usual = {"fuse": problem.all_fused, "lane": "output", "lanes": 16, "across": 1, "steps": 1, "parallel": True}
    one, several = (
        floor_of(problem, complete("reduction", problem, TARGET, {**usual, "splits": n}), TARGET) for n in (1, splits)
    )
    assert several.nbytes == one.nbytes + 2 * splits * 4 * 48


@pytest.mark.parametrize("target", [TARGET, GPU], ids=str)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_floors_are_numbers(target, data):
    subgraph = data.draw(st.sampled_from(pool(2)), "subgraph")
    problem, roofs = problem_of(subgraph), nominal(target)
    schedule = space(problem, target).sample(np.random.default_rng(data.draw(st.integers(0, 999))))
    floor = floor_of(problem, schedule, target)
    values = (floor.cycles, floor.share, floor.nbytes, floor.held, floor.footprint, floor.seconds)
    assert all(math.isfinite(v) and v >= 0 for v in values) and floor.share <= 1
    assert 0 <= least_seconds(floor, target, roofs) < math.inf
    assert 0 <= subgraph_floor(subgraph, roofs) < math.inf


def test_a_subgraphs_floor_is_the_longer_of_arithmetic_and_memory():
    subgraph = only(product, (64, 128), (128, 64))
    flops, nbytes = 2 * 64 * 64 * 128, 4 * (64 * 128 + 128 * 64 + 64 * 64)
    assert subgraph_floor(subgraph, Roofs(100.0, (Level("memory", None, math.inf),))) == flops / 100 / 1e9
    assert subgraph_floor(subgraph, Roofs(1e9, (Level("memory", None, 1.0),))) == nbytes / 1.0 / 1e9


def test_roofs():
    roofs = Roofs(100.0, (Level("L2", 1000, 50.0), Level("memory", None, 10.0)))
    assert roofs.level(1000).name == "L2" and roofs.level(1001).name == "memory"
    assert roofs.seconds(1000, 1000) == 20e-9 and roofs.seconds(10_000, 1000) == 100e-9
    assert flops_a_cycle(TARGET) == 2 * 2 * 2 * 16
    assert nominal(TARGET).gflops == FASTEST_CLOCK * 128 / 1e9 and "no core has" in nominal(TARGET).origin
    assert 1e4 < nominal(GPU).gflops < 1e6 and "data sheet" in nominal(GPU).origin


@pytest.mark.slow
@pytest.mark.tvm
def test_no_kernel_is_faster_than_its_floor():
    """Random schedules of operators, timed here: with the fastest clock there is no kernel below its floor."""
    target, checked = cpu_target(threads=1), 0
    for subgraph in (*named().values(), only(lambda x: nf.exp(x), (300, 300))):
        problem, rng = problem_of(subgraph), np.random.default_rng(0)
        schedules = list(
            dict.fromkeys([default(problem, target), *(space(problem, target).sample(rng) for _ in range(12))])
        )
        lowered = [codegen.lower(subgraph, s, target, f"k{n}") for n, s in enumerate(schedules)]
        arrays = [np.ones(v.shape, v.dtype) for v in (*subgraph.inputs, *map(subgraph.value, subgraph.outputs))]
        for shared in (False, True):
            alike = [(s, k) for s, k in zip(schedules, lowered, strict=True) if k.is_shared == shared]
            if not alike:
                continue
            for (schedule, _), kernel in zip(alike, loaded([k for _, k in alike], target), strict=True):
                times = []
                for _ in range(20):
                    begun = time.perf_counter()
                    kernel(*arrays)
                    times.append(time.perf_counter() - begun)
                least = least_seconds(floor_of(problem, schedule, target), target, nominal(target))
                assert min(times) > least, schedule
                checked += 1
    assert checked >= 60

"""Points of K side by side in what is packed, and operands that tiles compute: the values of every other form."""

from __future__ import annotations

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.codegen.cpu.packing import Packing
from neoflow.codegen.cpu.parts import Parts
from neoflow.codegen.tir import emit
from neoflow.expr.ir import Axis
from neoflow.loops import Schedule, problem_of, tile
from neoflow.loops.space import Space
from neoflow.nn import functional as F
from tests.codegen import kernels as k
from tests.codegen.test_contraction import contractions
from tests.codegen.test_kernels import FLOATS, p

pytestmark = pytest.mark.tvm

ROWS = (
    {"row_points": 16, "run": False, "order": "tiles", "splits": 1, "prefetch": 8},
    {"row_points": 8, "run": True, "order": "panels", "splits": 3},
    {"row_points": 4, "run": True, "order": "tiles", "splits": 2, "passes": 2, "ahead": True, "pack_parts": 3},
    {"row_points": 4, "run": False, "order": "panels", "splits": 1, "passes": 3, "tile_rows": 5, "pack_parts": 5},
)
PANELS = (
    {"vector_points": 4, "turn": True, "vectors": 2, "order": "panels", "splits": 1, "passes": 3},
    {"vector_points": 16, "turn": False, "vectors": 3, "order": "tiles", "splits": 2, "pack_parts": 4, "prefetch": 8},
    {"vector_points": 8, "turn": True, "vectors": 2, "order": "tiles", "splits": 1, "in_lines": True, "pack_parts": 3},
    {"vector_points": 4, "lanes": 4, "vectors": 5, "order": "panels", "splits": 1, "ahead": True},
)


@pytest.mark.parametrize(("points", "run", "width", "length"), [(1, 4, 8, 5), (4, 1, 6, 12), (8, 4, 12, 16)])
def test_a_block_has_the_points_of_each_run_side_by_side(points, run, width, length):
    """[K / points][width / run][points][run], as NumPy lays it out."""
    packing = Packing(points, run)
    wanted = np.arange(length * width).reshape(length // points, width // run, points, run)
    wanted = wanted.swapaxes(1, 2).reshape(length, width)
    found = [[int(packing.at(emit.integer(0), emit.integer(n), width, e)) for e in range(width)] for n in range(length)]
    np.testing.assert_array_equal(found, wanted)
    said = [[int(packing.at(emit.integer(0), emit.integer(n), width, emit.integer(e))) for e in (0, 1)] for n in (0, 3)]
    np.testing.assert_array_equal(said, wanted[[0, 3], :2])
    assert packing.padded(length - 1) == (length if points > 1 else length - 1)


def test_parts_of_k_are_whole_blocks():
    k_axes = (Axis(0, 10, "c"), Axis(1, 3, "r"), Axis(2, 2, "s"))
    assert [Parts.of_blocks(k_axes, 3, n).length for n in (1, 2, 4, 8, 16)] == [3, 3, 4, 4, 8]
    assert Parts.of_blocks(k_axes, 9, 16).length == 10 and Parts.of_blocks(k_axes, 9, 16).count == 1


def checked(name: str, **knobs) -> int:
    """Each of a few contractions, either way round, where the knob is as it is asked for; how many there were."""
    found = 0
    for what, y, inputs in contractions():
        subgraph = k.subgraph_of([y], inputs)
        for side in ("right", "left") if what in ("nt", "batched", "capsule", "weight gradient") else ():
            schedule = k.scheduled(subgraph, side=side, parallel=True, **knobs)
            if schedule[name] == knobs[name]:
                found += 1
                k.check(y, inputs, schedule, scale=8.0)
    return found


@pytest.mark.parametrize("knobs", ROWS, ids=lambda s: f"{s['order']}-{s['run']}-{s['splits']}")
def test_points_of_a_row_lie_side_by_side(knobs):
    found = checked("row_points", pack=True, turn_rows=False, **knobs)
    assert found >= (3 if knobs["run"] else 6)


@pytest.mark.parametrize("knobs", PANELS, ids=lambda s: f"{s['order']}-{s['vectors']}")
def test_points_of_a_vector_lie_side_by_side(knobs):
    assert checked("vector_points", pack_panels=True, **knobs) >= 4


def test_both_operands_in_blocks_of_other_lengths():
    a, b = p(37, 29, 3), p(53, 29, 3)
    y = nf.tanh(nf.expr("y[i,j] = sum(a[i,k,l] * b[j,k,l])", a=a, b=b))
    given = {"side": "right", "lanes": 8, "vectors": 2, "pack": True, "run": True, "turn_rows": False}
    for fuse in (0, 1):
        for splits, passes in ((1, 1), (3, 1), (1, 4), (2, 3)):
            knobs = {"fuse": fuse, "splits": splits, "passes": passes, "row_points": 4, "vector_points": 16}
            schedule = k.scheduled(k.subgraph_of([y], [a, b]), **given, pack_panels=True, parallel=True, **knobs)
            assert (schedule["vector_points"], schedule["row_points"]) == (16, 4)
            k.check(y, [a, b], schedule, scale=8.0)


def test_packing_in_a_loop_over_chunks():
    a, b = p(6, 9), p(9, 75)
    long = nf.tanh(nf.exp(b) * 0.5 + nf.sin(b) * nf.cos(b)) / (nf.sqrt(b * b + 1.0))
    y = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=long)
    knobs = {"side": "right", "lanes": 8, "vectors": 10, "tile_rows": 3, "splits": 1, "pack_panels": True}
    schedule = k.scheduled(k.subgraph_of([y], [a, b]), **knobs, pack_loop=True, vector_points=8)
    assert schedule["pack_loop"] and schedule["vector_points"] == 8
    k.check(y, [a, b], schedule, scale=8.0)


# --- operands that tiles compute


def computed(dtype: str = "float32"):
    """Name, output, inputs: producers of either side, also reads under conditions, at sizes that no tile divides."""

    def q(*shape: int):
        return p(*shape, dtype=dtype)

    a, b, c = q(19, 23), q(23, 37), q(23)
    yield "maps", nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=nf.relu(a), b=nf.exp(b)), [a, b]
    yield "three factors", nf.expr("y[i,j] = sum(a[i,k] * c[k] * b[k,j])", a=a, b=b, c=c), [a, b, c]
    x, w = q(2, 5, 9, 11), q(6, 5, 3, 3)
    yield "padded", F.conv2d(x, w, padding=1), [x, w]
    y = F.conv2d(nf.tanh(x) + 1.0, nf.exp(w), stride=2, padding=1)
    yield "strided and padded", y, [x, w]
    x, w = q(5, 7, 11), q(5, 11, 13)
    yield "turned", nf.expr("y[n,i,j] = sum(a[n,i,k] * b[n,k,j])", a=nf.abs(x), b=w * 0.5), [x, w]


TILES = ({"tile_rows": 5, "vectors": 2, "unroll": 1}, {"tile_rows": 3, "vectors": 1, "unroll": 2})


def inlined(y, inputs, **knobs) -> Schedule:
    given = {"pack": False, "pack_panels": False, "in_lines": True, "parallel": True}
    return k.scheduled(k.subgraph_of([y], inputs), **given, **knobs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_tiles_compute_their_operands(dtype):
    """Both sides, side by side with what packs them: padding is 0 wherever vectors and rows of a tile begin."""
    found = 0
    for name, y, inputs in computed(dtype):
        for side in ("right", "left") if dtype == "float32" else ("right",):
            for knobs in TILES if dtype == "float32" else TILES[:1]:
                schedule = inlined(y, inputs, side=side, **knobs)
                assert not schedule["pack"], (name, side)
                found += not schedule["pack_panels"]
                k.check(y, inputs, schedule, scale=8.0)
    assert found >= (16 if dtype == "float32" else 4)


@pytest.mark.parametrize("knobs", [{"splits": 3}, {"passes": 3}, {"order": "panels", "inner": "panels"}], ids=str)
def test_operands_are_computed_in_any_part_of_k(knobs):
    for _, y, inputs in computed():
        schedule = inlined(y, inputs, side="right", **knobs)
        assert (not schedule["pack"] and (schedule["splits"], schedule["passes"]) != (1, 1)) or "inner" in knobs
        k.check(y, inputs, schedule, scale=8.0)


def test_what_tiles_compute_lies_nowhere():
    """No memory of its own; one side may be computed, the other one packed."""
    a, b = p(19, 23), p(23, 37)
    y = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=nf.relu(a), b=nf.relu(b))
    subgraph = k.subgraph_of([y], [a, b])
    for pack, pack_panels in ((False, False), (False, True), (True, False), (True, True)):
        schedule = k.scheduled(subgraph, side="right", pack=pack, pack_panels=pack_panels)
        assert (schedule["pack"], schedule["pack_panels"]) == (pack, pack_panels)
        text = codegen.source([codegen.lower(subgraph, schedule, k.TARGET, "k")], k.TARGET, "tir")
        assert ("tiles" in text, "panels" in text) == (pack, pack_panels)
        k.check(y, [a, b], schedule, scale=8.0)


def sampled(count: int, dtype: str = "float32") -> int:
    """Schedules at random of each contraction with computed operands, checked; of how many tiles compute one."""
    found, rng = 0, np.random.default_rng(count)
    for _, y, inputs in computed(dtype):
        problem = problem_of(k.subgraph_of([y], inputs))
        every = Space(problem, k.TARGET, ("contraction",))
        for schedule in dict.fromkeys(every.sample(rng) for _ in range(count)):
            found += any(tile.inlined(problem, schedule))
            k.check(y, inputs, schedule, scale=8.0)
    return found


def test_sampled_schedules_of_computed_operands():
    assert sampled(2) >= 4


@pytest.mark.slow
def test_many_sampled_schedules_of_computed_operands():
    assert sampled(30) >= 60 and sampled(15, "float64") >= 30

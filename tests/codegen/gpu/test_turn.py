"""Maps that are turned in squares of shared memory: no access meets a bank twice, and every form computes its map."""

import itertools
import shutil

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.resources import resources
from neoflow.codegen.gpu.turn import point
from neoflow.codegen.tir import emit
from neoflow.loops import TEMPLATES, Schedule, complete, default_schedule, legal, nearest, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.loops.gpu.turn import SIDES, TURNS, Square
from tests.codegen.gpu.running import all_verified, run_gpu
from tests.codegen.gpu.test_layouts import conflicts, number
from tests.codegen.kernels import subgraph_of

pytestmark = pytest.mark.tvm
EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
AMPERE = gpu_target("cuda", "sm_80")


def turned(subgraph, **knobs):
    problem = problem_of(subgraph)
    schedule = complete("gpu_map", problem, AMPERE, knobs)
    verdict = legal(problem, schedule, AMPERE)
    assert verdict.ok, verdict.reason
    return schedule


def transposed(m, n, dtype="float32"):
    """y[i,j] = f(x[j,i], z[i,j])."""
    x, z = nf.placeholder((n, m), dtype), nf.placeholder((m, n), dtype)
    return subgraph_of([nf.compute((m, n), lambda i, j: x[j, i] * 2 + z[i, j])], [x, z])


def every_square():
    """Those of a few accesses without being asked."""
    for side, word, lanes in itertools.product(SIDES, (4, 8), (1, 2, 4)):
        if lanes * word <= 16:
            marks = () if side == 32 and lanes > 1 else pytest.mark.slow
            yield pytest.param(side, word, lanes, marks=marks)


@pytest.mark.parametrize(("side", "word", "lanes"), list(every_square()))
def test_no_access_of_a_square_meets_a_bank_twice(side, word, lanes):
    """Along the lines and across them, of 4 bytes beside 8 too; and every element is met once."""
    square = Square(side, lanes, word)
    starts = [tuple(map(number, point(square, emit.integer(n)))) for n in range(square.accesses)]
    met = sorted((along + n, across) for along, across in starts for n in range(lanes))
    assert met == sorted(itertools.product(range(side), range(side)))
    for itemsize, n in itertools.product({4, word}, range(lanes)):
        lines = [(along + n) * square.pitch + across for along, across in starts]
        columns = [across * square.pitch + along + n for along, across in starts]
        for places in (lines, columns):
            assert not conflicts([p * itemsize for p in places], itemsize)


def test_what_is_turned_is_a_choice_with_reasons():
    problem = problem_of(transposed(45, 70))
    usual = complete("gpu_map", problem, AMPERE, {})
    assert (usual["turn"], usual["side"], usual["threads"], usual["vectors"]) == ("reads", 32, 256, 1)
    refusals = {
        "a read that strides along the last axis": {"turn": "columns"},
        "the place of an axis along which what is turned is contiguous": {"inner": 1},
        "nothing is turned": {"turn": "no", "side": 32},
        "powers of two that divide 70, up to 16 bytes of the widest type; the other axis of the squares has 45": {
            "lanes": 2
        },
        "the squares of a block, 1, lie in 49152 bytes of shared memory": {"side": 128},
        "and a square has 1024 accesses": {"threads": 2048},
        "a block has one square of each kind": {"vectors": 2},
    }
    for reason, knobs in refusals.items():
        verdict = legal(problem, complete("gpu_map", problem, AMPERE, {**dict(usual.knobs), **knobs}), AMPERE)
        assert not verdict.ok and reason in verdict.reason, verdict.reason


def test_the_default_turns_what_most_is_read_across():
    x, y = nf.placeholder((100, 90)), nf.placeholder((90, 100))
    straight = problem_of(subgraph_of([x * 2.0], [x]))
    assert complete("gpu_map", straight, AMPERE, {})["turn"] == "no"
    small = problem_of(transposed(8, 8))
    assert complete("gpu_map", small, AMPERE, {})["turn"] == "no"
    sides = [nf.compute((90, 100), lambda i, j, n=n: x[j, i] + float(n)) for n in range(2)]
    guarded = nf.compute((90, 100), lambda i, j: nf.select(j > 0, x[nf.maximum(j - 1, 0), i], 0.0) + x[j, i])
    assert complete("gpu_map", problem_of(subgraph_of([*sides], [x])), AMPERE, {})["turn"] == "reads"
    both = nf.compute((90, 100), lambda i, j: x[j, i] + y[i, j])
    assert complete("gpu_map", problem_of(subgraph_of([both], [x, y])), AMPERE, {})["turn"] == "reads"
    assert complete("gpu_map", problem_of(subgraph_of([guarded], [x])), AMPERE, {})["turn"] == "outputs"


def forms():
    x = nf.placeholder((5, 37, 41))
    yield "three axes", subgraph_of([nf.transpose(x, (2, 0, 1)) * 2.0], [x])
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64"):
        yield f"odd {dtype}", transposed(37, 45, dtype)
    yield "whole vectors", transposed(36, 68)
    yield "whole pairs", transposed(66, 34, "float64")
    a, b, c = nf.placeholder((70, 33)), nf.placeholder((33, 70), "float64"), nf.placeholder((33, 70), "bool")
    wide = nf.compute((33, 70), lambda i, j: nf.cast(a[j, i], "float64") + b[i, j])
    yield "two widths", subgraph_of([wide, nf.compute((33, 70), lambda i, j: a[j, i] > 0.5)], [a, b])
    chosen = nf.compute((33, 70), lambda i, j: nf.select(c[i, j], a[j, i], -a[j, i]))
    yield "a choice", subgraph_of([chosen, nf.tanh(chosen)], [a, c])
    shifted = nf.compute((33, 70), lambda i, j: nf.select(j > 2, a[nf.maximum(j - 3, 0), i], 1.0))
    yield "guarded", subgraph_of([shifted], [a])
    ids = nf.placeholder((33,), "int64")
    looked = nf.compute((33, 70), lambda i, j: nf.cast(a[j, i], "float64") + b[ids[i], j] * 2.0)
    yield "looked up", subgraph_of([nf.cast(looked, "float32")], [a, b, ids])


def drawn(subgraph):
    """Legal schedules of both forms, of single points and of the widest accesses."""
    problem = problem_of(subgraph)
    usual = complete("gpu_map", problem, AMPERE, {})
    for n, (turn, lanes) in enumerate(itertools.product(TURNS[1:], (1, 2, 4))):
        knobs = {
            **dict(usual.knobs),
            "turn": turn,
            "inner": 0,
            "lanes": lanes,
            "side": SIDES[n % 2],
            "threads": 64 << n,
        }
        schedule = nearest(problem, Schedule("gpu_map", tuple(knobs.items())), AMPERE)
        if schedule["turn"] == turn and schedule["lanes"] == lanes:
            yield schedule


def jobs_of(names):
    """Of the forms of these names, or of all."""
    return [(n, g, s) for n, g in forms() for s in drawn(g) if names is None or n in names]


@EMULATED
def test_some_forms_compute_their_maps():
    jobs = jobs_of(("three axes", "odd float16", "whole vectors", "a choice"))[::3]
    assert {s["turn"] for *_, s in jobs} == set(TURNS[1:]) and len({s["lanes"] for *_, s in jobs}) > 1
    assert len(all_verified(jobs, AMPERE)) == len(jobs)


@EMULATED
@pytest.mark.slow
def test_every_form_computes_its_map():
    jobs = jobs_of(None)
    jobs += [(name, subgraph, default_schedule(subgraph, AMPERE)) for name, subgraph in forms()]
    assert {s["lanes"] for *_, s in jobs} == {1, 2, 4} and len(jobs) > 30, len(jobs)
    all_verified(list(dict.fromkeys(jobs)), AMPERE)


@EMULATED
@pytest.mark.slow
def test_a_turned_output_in_the_place_of_an_input():
    """Every point of a square is read before the first is written."""
    x, z = nf.placeholder((70, 45)), nf.placeholder((45, 70))
    subgraph = subgraph_of([nf.compute((45, 70), lambda i, j: x[j, i] + z[i, j])], [x, z])
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((70, 45)).astype(np.float32), rng.standard_normal((45, 70)).astype(np.float32)
    for turn in TURNS[1:]:
        place = b.copy()
        schedule = turned(subgraph, turn=turn, inner=0)
        run_gpu(subgraph, schedule, AMPERE)([a, place, place])
        np.testing.assert_array_equal(place, a.T + b)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_turn_keeps_what_it_holds_in_registers():
    graphs = [subgraph for _, subgraph in forms()]
    for turn in TURNS[1:]:
        schedules = [turned(g, turn=turn) for g in graphs if turn in space_of(g)]
        kept = [g for g in graphs if turn in space_of(g)]
        lowered = [codegen.lower(g, s, AMPERE, f"k{n}") for n, (g, s) in enumerate(zip(kept, schedules, strict=True))]
        found = resources(codegen.source(lowered, AMPERE, "cuda"), AMPERE)
        for g, s, k in zip(kept, schedules, lowered, strict=True):
            used, said = found[k.code.entries[0].symbol], estimate(problem_of(g), s, AMPERE).block
            assert not used.spills and used.stack == 0 and used.shared_bytes == said.shared_bytes, (s, used)
            assert used.registers <= said.registers, (s, used)


def space_of(subgraph):
    """What may be turned."""
    knob = next(k for k in TEMPLATES["gpu_map"].knobs if k.name == "turn")
    problem = problem_of(subgraph)
    return knob.range(problem, AMPERE, {"fuse": problem.all_fused})

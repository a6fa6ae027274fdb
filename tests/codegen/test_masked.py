"""Vectors of which some lanes are stored: in pieces with AVX2 alone, under a mask with AVX-512; nothing beside them."""

from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.dtype import NUMPY
from neoflow.loops import complete, problem_of
from tests.codegen.guarded import fenced
from tests.codegen.kernels import TARGET, WIDE, loaded, subgraph_of

pytestmark = pytest.mark.tvm
NARROW = replace(TARGET, mcpu="x86-64-v3", vector_bytes=32)
"""Every machine runs it."""


def row(width, dtype):
    """A row of so many elements, each twice what is read; of truth values, their opposites."""
    x = nf.placeholder((width,), dtype, name="x")
    return nf.compute((width,), lambda i: nf.logical_not(x[i]) if dtype == "bool" else x[i] + x[i]), x


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "bool"])
def test_what_is_left_is_stored_and_nothing_else(dtype):
    rng, lowered, runs = np.random.default_rng(0), [], []
    for width in range(9, 24):
        y, x = row(width, dtype)
        subgraph = subgraph_of([y], [x])
        lanes = min(2 * NARROW.lanes(dtype), 1 << width.bit_length() - 1)
        for each in (lanes // 2, lanes):
            schedule = complete("map", problem_of(subgraph), NARROW, {"lanes": each})
            lowered.append(codegen.lower(subgraph, schedule, NARROW, f"k{len(lowered)}"))
            array = rng.integers(0, 2 if dtype == "bool" else 50, width).astype(NUMPY[dtype])
            runs.append((array, *nf.evaluate([y], {x: array})))
    for kernel, (array, wanted) in zip(loaded(lowered, NARROW), runs, strict=True):
        for at_end in (False, True):
            result = fenced(np.zeros_like(wanted), at_end)
            kernel(fenced(array, at_end), result)
            np.testing.assert_array_equal(result, wanted, err_msg=f"{wanted.shape}")


def test_neighbours_behind_the_last_lane_stay():
    """Rows of 7, one task after the other in any order: what is written of one does not touch the next."""
    x = nf.placeholder((64, 7), name="x")
    subgraph = subgraph_of([nf.compute((64, 7), lambda i, j: x[i, j] * 3.0)], [x])
    schedule = complete("map", problem_of(subgraph), NARROW, {"fuse": 0, "lanes": 8})
    [kernel] = loaded([codegen.lower(subgraph, schedule, NARROW, "k")], NARROW)
    array = np.random.default_rng(1).standard_normal((64, 7)).astype(np.float32)
    guarded = np.full((65, 7), np.nan, np.float32)
    kernel(array, guarded[:64])
    np.testing.assert_array_equal(guarded[:64], array * np.float32(3.0))
    assert np.isnan(guarded[64]).all()


def test_masks_are_for_those_who_have_them():
    y, x = row(23, "float32")
    subgraph = subgraph_of([y], [x])
    for target, is_masked in ((NARROW, False), (WIDE, True)):
        schedule = complete("map", problem_of(subgraph), target, {"lanes": target.lanes("float32")})
        code = codegen.source([codegen.lower(subgraph, schedule, target, "k")], target, "llvm")
        assert ("llvm.masked.store" in code) is is_masked


def padded(rows, width, other=0.0):
    """What is computed of points inside a border, `other` on it: of the row all lanes have a condition together, of
    the column each its own."""
    x = nf.placeholder((rows, width), name="x")

    def point(i, j):
        is_row, is_column = nf.logical_and(i >= 1, i < rows - 1), nf.logical_and(j >= 2, j < width - 1)
        return nf.select(nf.logical_and(is_row, is_column), nf.relu(x[i, j] - 1.0), other)

    return nf.compute((rows, width), point), x


@pytest.mark.parametrize("target", [NARROW, TARGET], ids=["AVX2", "this machine"])
@pytest.mark.parametrize("other", [0.0, -0.0, 2.5])
def test_conditions_of_all_lanes_beside_those_of_each(target, other):
    """Whatever is computed where they do not hold: not a number, infinite, negative."""
    y, x = padded(6, 37, other)
    subgraph = subgraph_of([y], [x])
    lowered = codegen.lower(subgraph, complete("map", problem_of(subgraph), target, {"fuse": 0}), target, "k")
    array = np.random.default_rng(2).standard_normal((6, 37)).astype(np.float32) * 3
    array[:, ::5], array[0], array[-1] = np.nan, np.inf, -np.inf
    [wanted] = nf.evaluate([y], {x: array})
    [kernel] = loaded([lowered], target)
    result = np.full_like(array, 7.0)
    kernel(array, result)
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(wanted))


def test_what_data_says_is_not_why_a_read_is_inside():
    """The guard of a read has conditions of indices alone, in the same order of evaluation; the value has both."""
    x, y = nf.placeholder((5, 19), name="x"), nf.placeholder((5, 19), name="y")

    def point(i, j):
        is_there = nf.logical_and(nf.logical_and(x[i, j] > 0.0, j < 18), i >= 1)
        return nf.select(is_there, y[i - 1, j + 1], x[i, j])

    z = nf.compute((5, 19), point)
    subgraph, rng = subgraph_of([z], [x, y]), np.random.default_rng(3)
    lowered = codegen.lower(subgraph, complete("map", problem_of(subgraph), NARROW, {"fuse": 0}), NARROW, "k")
    arrays = [rng.standard_normal((5, 19)).astype(np.float32) for _ in range(2)]
    [wanted] = nf.evaluate([z], dict(zip([x, y], arrays, strict=True)))
    [kernel] = loaded([lowered], NARROW)
    for at_end in (False, True):
        result = fenced(np.zeros_like(wanted), at_end)
        kernel(*(fenced(a, at_end) for a in arrays), result)
        np.testing.assert_array_equal(result, wanted)


def test_what_is_loaded_under_both_conditions_is_loaded_by_signs():
    """Sums over a window that goes beyond the border: no mask of 16 bits a lane, and nothing chosen of what is loaded;
    with mask registers LLVM's own load."""
    x, w = nf.placeholder((2, 9, 21), name="x"), nf.placeholder((3, 3), name="w")

    def inside(n, i, j):
        within = nf.logical_and(nf.logical_and(i >= 0, i < 9), nf.logical_and(j >= 0, j < 21))
        return nf.select(within, x[n, i, j], 0.0)

    r, s = nf.axis(3, "r"), nf.axis(3, "s")
    y = nf.compute((2, 9, 21), lambda n, i, j: nf.sum(inside(n, i + r - 1, j + s - 1) * w[r, s], axis=[r, s]))
    subgraph = subgraph_of([y], [x, w])
    for target, name in ((NARROW, "llvm.x86.avx.maskload.ps.256"), (WIDE, "llvm.masked.load")):
        knobs = {"lane": "output", "lanes": 8, "fuse": 0, "terms": True}
        lowered = codegen.lower(subgraph, complete("reduction", problem_of(subgraph), target, knobs), target, "k")
        assert name in lowered.text(), target
    lowered = codegen.lower(subgraph, complete("reduction", problem_of(subgraph), NARROW, knobs), NARROW, "k")
    assert "vpackssdw" not in codegen.source([lowered], NARROW, "asm")
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(t.shape).astype(np.float32) for t in (x, w)]
    [wanted] = nf.evaluate([y], dict(zip([x, w], arrays, strict=True)))
    [kernel] = loaded([lowered], NARROW)
    for at_end in (False, True):
        result = fenced(np.zeros_like(wanted), at_end)
        kernel(*(fenced(a, at_end) for a in arrays), result)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)

"""Reads of elements that lie apart, turned around or repeated: right, as whole loads and a shuffle, in memory."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.loops import complete, problem_of
from neoflow.nn import functional as F
from tests.codegen.guarded import fenced
from tests.codegen.kernels import TARGET, loaded, subgraph_of
from tests.loops.programs import cases
from tests.loops.test_law import check, sampled

pytestmark = pytest.mark.tvm
SIZE = 77


def strided(step, extent, offset=0):
    return lambda x: nf.compute((3, extent), lambda i, j: x[i, step * j + offset] * 2.0)


def padded(step, extent, offset):
    """Zero outside of the row."""

    def program(x):
        def at(i, j):
            k = step * j + offset
            return nf.select((k >= 0) & (k < SIZE), x[i, k], 0.5)

        return nf.compute((3, extent), at)

    return program


READS = {
    "every second": strided(2, 38),
    "every second, from the second": strided(2, 38, 1),
    "every third": strided(3, 26),
    "every fourth": strided(4, 20),
    "every fifth": strided(5, 15),
    "backwards": strided(-1, SIZE, SIZE - 1),
    "every second backwards": strided(-2, 39, SIZE - 1),
    "padded": padded(2, 41, -3),
    "padded, backwards": padded(-3, 30, SIZE + 4),
    "twice": lambda x: nf.compute((3, 2 * SIZE), lambda i, j: x[i, j // 2] + 1.0),
    "twice, from within": lambda x: nf.compute((3, 2 * SIZE - 1), lambda i, j: x[i, (j + 1) // 2] + 1.0),
    "four times, padded": lambda x: nf.compute(
        (3, 4 * SIZE + 9), lambda i, j: nf.select((j >= 7) & (j < 4 * SIZE + 7), x[i, (j - 7) // 4], 0.25)
    ),
    "three times": lambda x: nf.compute((3, 3 * SIZE), lambda i, j: x[i, j // 3] + 1.0),
}


@pytest.fixture(scope="module")
def kernels():
    """By read and lanes: the kernel, what it reads and what it gives."""
    found, lowered = [], []
    array = np.random.default_rng(0).standard_normal((3, SIZE)).astype(np.float32)
    for name, program in READS.items():
        x = nf.placeholder((3, SIZE), name="x")
        y = program(x)
        subgraph = subgraph_of([y], [x])
        [wanted] = nf.evaluate([y], {x: array})
        for lanes in dict.fromkeys((4, 8, TARGET.lanes("float32"))):
            schedule = complete("map", problem_of(subgraph), TARGET, {"lanes": lanes})
            lowered.append(codegen.lower(subgraph, schedule, TARGET, f"k{len(lowered)}"))
            found.append((f"{name} by {lanes}", lowered[-1], array, wanted))
    return list(zip(found, loaded(lowered), strict=True))


@pytest.mark.parametrize("at_end", [False, True])
def test_reads_are_right_and_stay_inside(kernels, at_end):
    for (name, _, array, wanted), kernel in kernels:
        place, result = fenced(array, at_end), fenced(np.full_like(wanted, np.nan), at_end)
        kernel(place, result)
        np.testing.assert_array_equal(result, wanted, err_msg=name)


def test_they_are_shuffles(kernels):
    wanted = {f"{name} by {TARGET.lanes('float32')}" for name in READS}
    by_name = {name: lowered.text() for (name, lowered, _, _), _ in kernels if name in wanted}
    reads = {name: text.replace("Shuffle([whole", "") for name, text in by_name.items()}  # but of what is stored
    alone = {name.partition(" by ")[0] for name, text in reads.items() if "Shuffle" not in text}
    assert alone == {"every fifth", "three times"}, "these are too far apart, or no power of two"


BESIDE = [
    *(
        (width, {"side": "right", "store": "turned", "tile_rows": rows})
        for width in (14, 29, 56)
        for rows in (4, 7, 14)
    ),
    *((width, {"side": "left", "store": "stack", "lanes": lanes}) for width in (22, 29, 56) for lanes in (4, 8)),
]
"""Widths of an image, and knobs of a contraction that writes it."""


def beside(width):
    """Products of a 1x1 convolution, and beside them an image of half the width with zeros between its points, which
    the adjoint of a strided one leaves; and one of a third."""
    x, w = nf.placeholder((5, 3, width), name="x"), nf.placeholder((5, 33), name="w")
    half = nf.placeholder((33, 2, (width + 1) // 2), name="half")
    third = nf.placeholder((33, 3, width // 2 + 2), name="third")
    k = nf.axis(5, "k")
    y = nf.compute((33, 3, width), lambda c, p, q: nf.sum(x[k, p, q] * w[k, c], axis=[k]))

    def at(c, p, q):
        between = nf.select((p % 2 == 0) & (q % 2 == 0), half[c, p // 2, q // 2], 0.0)
        return y[c, p, q] + between * third[c, p, (q + 3) // 2]

    return [nf.compute(y.shape, at)], [x, w, half, third]


@pytest.fixture(scope="module")
def contractions():
    """By width and knobs: the kernel, what it reads and what it gives."""
    found, lowered, rng = [], [], np.random.default_rng(0)
    for width, knobs in BESIDE:
        outputs, inputs = beside(width)
        arrays = [rng.standard_normal(t.shape).astype(np.float32) for t in inputs]
        subgraph = subgraph_of(outputs, inputs)
        problem = problem_of(subgraph)
        asked = {"fuse": 0, **knobs}
        schedule = complete("contraction", problem, TARGET, asked)
        assert {name: schedule[name] for name in asked} == asked
        lowered.append(codegen.lower(subgraph, schedule, TARGET, f"c{len(lowered)}"))
        [wanted] = nf.evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
        found.append((f"{width} by {knobs}", lowered[-1], arrays, wanted))
    return list(zip(found, loaded(lowered), strict=True))


@pytest.mark.parametrize("at_end", [False, True])
def test_what_is_read_beside_sums_is_right_and_stays_inside(contractions, at_end):
    for (name, _, arrays, wanted), kernel in contractions:
        places, result = [fenced(a, at_end) for a in arrays], fenced(np.full_like(wanted, np.nan), at_end)
        kernel(*places, result)
        np.testing.assert_allclose(result, wanted, 2e-5, 2e-5, err_msg=name)


def test_tiles_that_begin_at_even_points_take_shuffles(contractions):
    """With an odd number of rows, every other tile begins at the second lane of a pair."""
    taken = {name: "piece" in lowered.text() for (name, lowered, _, _), _ in contractions}
    knobs = {"side": "right", "store": "turned"}
    assert [taken[f"56 by {knobs | {'tile_rows': rows}}"] for rows in (14, 7)] == [True, False]


def test_the_largest_of_many_with_nan_and_infinities():
    """NaN is found wherever it stands, also beside infinities; the lowest of all is no neutral element."""
    x = nf.placeholder((40, 70), name="x")
    array = np.random.default_rng(1).standard_normal((40, 70)).astype(np.float32)
    array[3], array[4] = -np.inf, np.inf
    for row, place in enumerate((0, 15, 16, 69, 33)):
        array[row, place] = np.nan
    roots = [f(x, axis=a) for f in (nf.max, nf.min) for a in (0, 1)]
    for found, wanted in zip(nf.compile(roots, [x])(array), nf.evaluate(roots, {x: array}), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("window, stride, padding", [(2, 2, 0), (3, 2, 1), (3, 3, 0), (5, 4, 2)])
def test_sampled_schedules_of_pooling(window, stride, padding):
    """Forward and backward, ties among the few values included: which element is the largest is not rounded."""
    x = nf.placeholder((2, 3, 23, 37), name="x")
    y = F.max_pool(x, window, stride, padding)
    array = np.random.default_rng(0).integers(-9, 9, x.shape).astype(np.float32)
    found = cases("pooling", [y, *nf.vjp(nf.sum(y * y), [x])], {x: array}, comparing=True)
    assert check([(c, sampled(c, 24, n)) for n, c in enumerate(found)]) >= 24

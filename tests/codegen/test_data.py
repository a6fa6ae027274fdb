"""Data-dependent reads: several indices along the lanes, guards, lost statements. Each was once compiled wrongly."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.codegen.verify import verify
from neoflow.loops import complete, default_schedule, problem_of
from tests.codegen.kernels import LOOKED_UP, TARGET, kernel

pytestmark = pytest.mark.tvm
RNG = np.random.default_rng(0)


def agree(y, inputs, feeds):
    (found,) = nf.compile([y], inputs)(*(feeds[t] for t in inputs))
    np.testing.assert_allclose(found, nf.evaluate([y], feeds)[0], rtol=1e-5, atol=1e-6)


def test_two_indices_follow_the_lanes():
    x, ids = nf.placeholder((6, 40, 20), name="x"), nf.placeholder((3,), "int32", name="ids")
    y = nf.compute((20,), lambda i: nf.exp(x[ids[1], 2 * i, i]))
    agree(y, [x, ids], {x: RNG.random(x.shape, np.float32), ids: np.array([0, 5, 1], np.int32)})


def test_other_indices_of_a_guarded_read_stay_inside():
    x, ids = nf.placeholder((4, 5), name="x"), nf.placeholder((3,), "int64", name="ids")
    y = nf.compute((3, 40), lambda b, i: nf.select(i < 5, x[ids[b], i % 40], 2.0))
    agree(y, [x, ids], {x: RNG.random(x.shape, np.float32), ids: np.array([3, 3, 0])})


def test_a_data_index_beside_a_divided_one():
    x, ids = nf.placeholder((6, 7, 6), name="x"), nf.placeholder((5, 3), "int32", name="ids")
    y = nf.compute((6, 6, 4), lambda i, j, k: nf.erf(x[i, ids[2, j // 2], i]) + x[j, (k + 3) // 2, 0])
    agree(y, [x, ids], {x: RNG.random(x.shape, np.float32), ids: RNG.integers(0, 7, (5, 3)).astype(np.int32)})


@pytest.mark.parametrize("extent", [5, 7, 13, 40])
def test_indices_that_run_backwards(extent):
    x = nf.placeholder((6,), name="x")
    for index in (lambda i: (0 - 2 * i) % 5, lambda i: (3 - i) % 6, lambda i: (40 - i) // 8, lambda i: (i - 3) % 6):
        y = nf.compute((extent,), lambda i, index=index: nf.exp(x[index(i)]))
        agree(y, [x], {x: RNG.random(6, np.float32)})


@pytest.mark.parametrize("name", LOOKED_UP)
def test_an_index_is_checked_by_the_dimension_it_is_of(name):
    subgraph = LOOKED_UP[name]
    problem = problem_of(subgraph)
    schedules = [default_schedule(subgraph, TARGET)]
    if subgraph.rows is not None:  # what is looked up is stored, or computed again
        schedules += [complete("rows", problem, TARGET, {"stored": mask}) for mask in range(1 << len(problem.optional))]
    for schedule in dict.fromkeys(schedules):
        call = kernel(subgraph, schedule)
        assert verify(subgraph, lambda arrays, call=call: call(*arrays), name).faults > 0

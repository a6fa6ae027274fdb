"""What is fetched for later, past the ends of arrays too, changes nothing of what is computed."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.graph import make_graph, optimize
from neoflow.loops import complete, default_schedule, problem_of
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.runtime.device.cpu import empty
from neoflow.target import cpu_target
from tests.codegen.kernels import TARGET, check, loaded, subgraph_of
from tests.codegen.test_windows import weights_gradient

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(300, 70), (9, 33), (131, 64)])
def test_columns(shape, dtype):
    x, g = nf.placeholder(shape, dtype, name="x"), nf.placeholder(shape, dtype, name="g")
    y = nf.sum(x * g, axis=0)
    schedule = complete("reduction", problem_of(subgraph_of([y], [x, g])), TARGET, {"terms": False, "fetch": True})
    assert check([y], [x, g], schedule, scale=4.0)["fetch"]


def test_columns_are_fetched_where_no_cache_has_them():
    def default(rows):
        x = nf.placeholder((rows, 1 << 14), name="x")
        return default_schedule(subgraph_of([nf.sum(x, axis=0)], [x]), TARGET)

    assert default(1 << 10)["fetch"] and not default(8)["fetch"]


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 77), (70, 2500)])
def test_rows(shape, fetch):
    x, g = nf.placeholder(shape, name="x"), nf.placeholder(shape, name="g")
    y = F.softmax(x)
    (subgraph,) = partition(optimize(make_graph([y, *nf.vjp(y, [x], g)], [x, g]))).subgraphs
    schedule = complete("rows", problem_of(subgraph), TARGET, {"fetch": fetch})
    [kernel] = loaded([codegen.lower(subgraph, schedule, TARGET, "k")], cpu_target())
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(v.dtype) for v in subgraph.inputs]
    inputs, outputs = subgraph.tensors()
    found = [empty(o.shape, o.dtype) for o in outputs]
    kernel(*arrays, *found)
    wanted = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for got, exact in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("tile_rows", [1, 9])
@pytest.mark.parametrize(("batch", "channels", "size"), [(5, 3, 7), (4, 2, 19)])
def test_pieces(batch, channels, size, tile_rows):
    roots, inputs = weights_gradient(batch, channels, size, size, 3)
    knobs = {"lane": "reduced", "fetch": True, "tile_rows": tile_rows}
    schedule = complete("reduction", problem_of(subgraph_of(roots, inputs)), TARGET, knobs)
    assert check(roots, inputs, schedule, scale=4.0)["fetch"]


def test_pieces_are_fetched_where_no_cache_has_them():
    def default(*sizes):
        schedule = default_schedule(subgraph_of(*weights_gradient(*sizes, sizes[-1], 3)), TARGET)
        return schedule["lane"] == "reduced" and schedule["fetch"]

    assert default(64, 512, 14) and not default(8, 16, 14) and not default(2, 1 << 14, 14)

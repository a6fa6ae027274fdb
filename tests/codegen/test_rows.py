"""Row kernels: softmax, normalisation and random ones against NumPy, and what the partition asks of them."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.expr.tensor import Parameter
from neoflow.graph import make_graph, optimize
from neoflow.loops import default_schedule
from neoflow.nn import functional as F
from neoflow.partition import choose, partition
from neoflow.runtime.device.cpu import empty
from neoflow.target import cpu_target
from tests.codegen.kernels import loaded
from tests.partition.test_turned import columns, norm
from tests.strategies import random_program

pytestmark = pytest.mark.tvm
RNG = np.random.default_rng(0)


def run(subgraph, arrays, threads=2):
    """One subgraph compiled and called."""
    target = cpu_target(threads)
    schedule = default_schedule(subgraph, target)
    [kernel] = loaded([codegen.lower(subgraph, schedule, target, "k")], target)
    held = []
    for array in arrays:
        held.append(empty(array.shape, array.dtype))
        held[-1][...] = array
    results = [empty(v.shape, v.dtype) for v in map(subgraph.lying, subgraph.outputs)]
    kernel(*held, *results)
    return results


def agree(subgraph, rng, threads=2, tolerance=2e-5):
    arrays = [
        rng.standard_normal(v.shape).astype(v.dtype)
        if v.dtype.startswith("float")
        else rng.integers(0, 2, v.shape).astype(v.dtype)
        for v in subgraph.inputs
    ]
    inputs, outputs = subgraph.tensors()
    wanted = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for found, exact in zip(run(subgraph, arrays, threads), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance * max(1, np.abs(exact).max()))


def subgraphs(outputs, inputs):
    return partition(optimize(make_graph(outputs, inputs))).subgraphs


@pytest.mark.parametrize("width", [32, 37, 100, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_softmax_forward_and_backward_are_one_kernel(width, threads):
    x, g = nf.placeholder((70, width), name="x"), nf.placeholder((70, width), name="g")
    y = F.softmax(x)
    (subgraph,) = subgraphs([y, *nf.vjp(y, [x], g)], [x, g])
    assert subgraph.rows == 1
    agree(subgraph, RNG, threads)


@pytest.mark.parametrize("width", [48, 768])
def test_layer_norm(width):
    x, gamma, beta = (nf.placeholder(s, name=n) for s, n in (((4, 9, width), "x"), ((width,), "g"), ((width,), "b")))
    (subgraph,) = subgraphs([F.layer_norm(x, gamma, beta)], [x, gamma, beta])
    assert subgraph.rows == 2
    agree(subgraph, RNG, tolerance=1e-4)


def test_rows_of_several_dimensions_inside():
    x = nf.placeholder((6, 5, 7, 11), name="x")
    n = nf.sum(x * x, axis=(2, 3), keepdims=True)
    (subgraph,) = subgraphs([x * nf.sqrt(n + 1e-9) / (1.0 + n), n], [x])
    assert subgraph.rows == 2 and len(subgraph.outputs) == 2
    agree(subgraph, RNG, tolerance=1e-4)


def test_short_rows_stay_apart():
    x = nf.placeholder((600, 5), name="x")
    assert all(s.rows is None for s in subgraphs([F.softmax(x)], [x]))


def test_reads_of_other_rows_stay_apart():
    x = nf.placeholder((64, 64), name="x")
    s = nf.sum(x, axis=1)
    y = nf.compute((64, 64), lambda i, j: x[i, j] / (s[i] * s[63 - i] + 2.0))
    assert all(s.rows is None for s in subgraphs([y], [x]))


def random_rows(seeds, monkeypatch, tolerance=2e-3):
    """Row kernels of random programs with gradients, however short the rows."""
    monkeypatch.setattr(choose, "MIN_ROW", 2)
    count = 0
    for seed in seeds:
        program = random_program(seed, jumps=False, gathers=False)
        roots = [t for t in program.outputs if t.dtype == "float32"]
        for t in list(roots):
            roots += nf.vjp(t, program.float_inputs, allow_unused=True)
        if not roots:
            continue
        for subgraph in subgraphs(roots, list(program.feeds)):
            if subgraph.rows is not None:
                inputs, outputs = subgraph.tensors()
                rng = np.random.default_rng(seed)
                arrays = [
                    rng.uniform(0.5, 1.5, v.shape).astype(v.dtype)
                    if v.dtype.startswith("float")
                    else rng.integers(0, 2, v.shape).astype(v.dtype)
                    for v in subgraph.inputs
                ]
                wanted = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
                for found, exact in zip(run(subgraph, arrays), wanted, strict=True):
                    scale = max(1.0, np.nanmax(np.abs(np.where(np.isfinite(exact), exact, 0)), initial=0))
                    np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance * scale, err_msg=str(seed))
                count += 1
    return count


def test_random_row_kernels(monkeypatch):
    assert random_rows(range(8), monkeypatch) >= 4


@pytest.mark.slow
def test_many_random_row_kernels(monkeypatch):
    assert random_rows(range(1000, 1400), monkeypatch) >= 200


@pytest.mark.parametrize("case", [norm((1, 12, 49)), columns((40, 96)), columns((9, 16 * 7))])
def test_turned_rows_and_blocks_of_columns(case):
    *fed, roots = case
    found = [s for s in subgraphs(roots, [t for t in fed if not isinstance(t, Parameter)]) if s.orders]
    assert found
    for subgraph in found:
        agree(subgraph, np.random.default_rng(1))

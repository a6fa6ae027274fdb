"""Row kernels: softmax, normalisation and random ones against NumPy, and what the partition asks of them."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.expr.tensor import Parameter
from neoflow.graph import make_graph, optimize
from neoflow.loops import complete, default_schedule, problem_of, space
from neoflow.nn import functional as F
from neoflow.partition import choose, partition
from neoflow.runtime.device.cpu import empty
from neoflow.target import cpu_target
from tests.codegen.kernels import loaded
from tests.partition.test_turned import columns, norm
from tests.strategies import random_program

pytestmark = pytest.mark.tvm
RNG = np.random.default_rng(0)


def run(subgraph, arrays, threads=2, **knobs):
    """One subgraph compiled, by its default schedule but for some knobs, and called."""
    target = cpu_target(threads)
    schedule = complete("rows", problem_of(subgraph), target, knobs) if knobs else default_schedule(subgraph, target)
    [kernel] = loaded([codegen.lower(subgraph, schedule, target, "k")], target)
    held = []
    for array in arrays:
        held.append(empty(array.shape, array.dtype))
        held[-1][...] = array
    results = [empty(v.shape, v.dtype) for v in map(subgraph.lying, subgraph.outputs)]
    kernel(*held, *results)
    return results


def agree(subgraph, rng, threads=2, tolerance=2e-5, **knobs):
    arrays = [
        rng.standard_normal(v.shape).astype(v.dtype)
        if v.dtype.startswith("float")
        else rng.integers(0, 2, v.shape).astype(v.dtype)
        for v in subgraph.inputs
    ]
    inputs, outputs = subgraph.tensors()
    wanted = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for found, exact in zip(run(subgraph, arrays, threads, **knobs), wanted, strict=True):
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


SHAPES = {"in lanes": (60, 301), "of two axes": (30, 9, 37), "outputs in lanes": (30, 5, 7, 33), "short": (50, 3)}


def sums_beside(case, count, dtype="float32"):
    """Sums over the same axes that read the same x, with something computed between them."""
    shape = SHAPES[case]
    axes = {"in lanes": 1, "of two axes": (1, 2), "outputs in lanes": (1, 2), "short": 1}[case]
    x, *others = (nf.placeholder(shape, dtype, name=n) for n in "xabcdef"[: 1 + count])
    y = x
    for n, other in enumerate(others):
        one = nf.sum(x * other, axis=axes, keepdims=True)
        y = y * (nf.tanh(one) if n % 2 else one * 0.25) + other
    (subgraph,) = subgraphs([y], [x, *others])
    assert subgraph.rows
    return subgraph


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("case", SHAPES)
def test_sums_of_the_same_have_one_loop(case, count, threads):
    subgraph = sums_beside(case, count)
    assert default_schedule(subgraph, cpu_target(threads))["together"]
    agree(subgraph, RNG, threads, tolerance=1e-4)
    agree(subgraph, RNG, threads, tolerance=1e-4, together=False)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("shape", [(50, 3), (50, 37), (50, 1000), (20, 5, 33)])
def test_what_is_stored_in_the_loop_that_sums_it_up(shape, dtype):
    x, y = nf.placeholder(shape, dtype, name="x"), nf.placeholder(shape, dtype, name="y")
    axes = tuple(range(1, len(shape)))
    kept = nf.maximum(x, y * 2)
    total, squares = nf.sum(kept, axis=axes), nf.sum(kept * kept, axis=axes)
    found = subgraphs([kept, total, squares], [x, y])
    for subgraph in found:
        if subgraph.rows:
            agree(subgraph, RNG, tolerance=2e-3 if dtype == "float16" else 2e-5)
            agree(subgraph, RNG, tolerance=2e-3 if dtype == "float16" else 2e-5, together=False)
    assert any(s.rows and default_schedule(s, cpu_target(2))["together"] for s in found) or shape[-1] == 3


def test_what_is_stored_may_take_the_place_of_what_is_read():
    x, y = nf.placeholder((50, 37), name="x"), nf.placeholder((50, 37), name="y")
    kept = nf.maximum(x, 0.0) * y
    total = nf.sum(kept * y, axis=1, keepdims=True)
    (subgraph,) = subgraphs([kept, nf.tanh(total)], [x, y])
    assert default_schedule(subgraph, cpu_target(2))["together"]
    target = cpu_target(2)
    [kernel] = loaded([codegen.lower(subgraph, default_schedule(subgraph, target), target, "k")], target)
    a, b = (RNG.standard_normal((50, 37)).astype("float32") for _ in range(2))
    held, other, out = empty((50, 37), "float32"), empty((50, 37), "float32"), empty((50, 1), "float32")
    held[...], other[...] = a, b
    kernel(held, other, held, out)
    np.testing.assert_allclose(held, np.maximum(a, 0) * b, rtol=1e-6)
    np.testing.assert_allclose(out[:, 0], np.tanh((np.maximum(a, 0) * b * b).sum(1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operation", [nf.max, nf.min])
def test_extremes_of_the_same_have_one_loop(operation):
    x, y = nf.placeholder((40, 77), name="x"), nf.placeholder((40, 77), name="y")
    (subgraph,) = subgraphs([x * operation(x, axis=1, keepdims=True) + operation(x * y, axis=1, keepdims=True)], [x, y])
    schedule = default_schedule(subgraph, cpu_target(2))
    assert subgraph.rows and schedule["together"]
    agree(subgraph, RNG)
    held = RNG.standard_normal((40, 77)).astype("float32")
    held[3, 70] = np.nan
    found, *_ = run(subgraph, [held, np.ones_like(held)])
    extreme = getattr(held, operation.__name__)(axis=1, keepdims=True)
    np.testing.assert_array_equal(found, held * extreme + extreme)


@pytest.mark.parametrize("seed", range(6))
def test_any_schedule_of_one_loop(seed):
    """Lanes, unrolled vectors, rows and steps of all sums together, drawn."""
    rng, target = np.random.default_rng(seed), cpu_target(2)
    subgraph = sums_beside([*SHAPES][seed % len(SHAPES)], 2 + seed % 2, ["float32", "float64"][seed // 4 % 2])
    drawn = space(problem_of(subgraph), target)
    schedules = [s for s in (drawn.sample(rng) for _ in range(60)) if s["together"]][:4]
    assert schedules
    kernels = loaded([codegen.lower(subgraph, s, target, f"k{n}") for n, s in enumerate(schedules)], target)
    inputs, outputs = subgraph.tensors()
    arrays = [rng.standard_normal(v.shape).astype(v.dtype) for v in subgraph.inputs]
    (wanted,) = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for kernel in kernels:
        result = empty(wanted.shape, subgraph.inputs[0].dtype)
        kernel(*arrays, result)
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("beside", [2, 3, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_side_by_side(beside, threads):
    """Also those that are left: 70 is no multiple of 3 or 4, and 2 are fewer than 3."""
    for rows in (70, 2):
        if beside > rows:
            continue
        x, g = nf.placeholder((rows, 37), name="x"), nf.placeholder((rows, 37), name="g")
        y = F.softmax(x)
        (subgraph,) = subgraphs([y, *nf.vjp(y, [x], g)], [x, g])
        agree(subgraph, RNG, threads, beside=beside)
    several = sums_beside("of two axes", 2)
    agree(several, RNG, threads, tolerance=1e-4, beside=beside)


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

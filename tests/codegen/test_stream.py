"""What is stored past the caches: the same values wherever outputs begin, and only where no cache would keep them."""

from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.graph import make_graph, optimize
from neoflow.loops import complete, default_schedule, legal, problem_of, streamed_otherwise
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.runtime.device.cpu import empty
from neoflow.target import cpu_target
from tests.codegen.kernels import TARGET, changed, check, loaded, subgraph_of

pytestmark = pytest.mark.tvm


def streamed(roots, inputs, **knobs):
    return complete("map", problem_of(subgraph_of(roots, inputs)), TARGET, {"stream": True, **knobs})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [(5, 64), (3, 7, 48), (32,)])
@pytest.mark.parametrize("wide", [1, 2])
def test_maps(shape, dtype, wide):
    x = nf.placeholder(shape, dtype, name="x")
    schedule = streamed([x * x + x], [x], lanes=wide * TARGET.lanes(dtype))
    assert check([x * x + x], [x], schedule)["stream"]


def test_what_ends_in_part_of_a_vector():
    x = nf.placeholder((101,), name="x")
    assert check([x + x], [x], streamed([x + x], [x]))["stream"]


def test_interleaved():
    a, b = (nf.placeholder((9, 32), name=n) for n in "ab")
    y = nf.compute((9, 64), lambda i, j: nf.select(j % 2 == 0, a[i, j // 2], b[i, j // 2]), name="y")
    assert check([y], [a, b], streamed([y], [a, b]))["residues"]


def lowered_rows(shape):
    """The kernel of a softmax with its gradient: what it reads again of its outputs is not streamed."""
    x, g = nf.placeholder(shape, name="x"), nf.placeholder(shape, name="g")
    y = F.softmax(x)
    (subgraph,) = partition(optimize(make_graph([y, *nf.vjp(y, [x], g)], [x, g]))).subgraphs
    return subgraph, default_schedule(subgraph, TARGET)


@pytest.mark.parametrize("shift", [0, 1])
def test_rows_into_outputs_that_begin_anywhere(shift):
    subgraph, schedule = lowered_rows((5, 64))
    *first, last = schedule.inner
    schedule = replace(schedule, inner=(*first, changed(last, stream=True)))
    assert legal(problem_of(subgraph), schedule, TARGET).ok
    [kernel] = loaded([codegen.lower(subgraph, schedule, TARGET, "k")], cpu_target())
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(v.dtype) for v in subgraph.inputs]
    inputs, outputs = subgraph.tensors()
    found = [
        empty((o.shape[0] + 1, *o.shape[1:]), o.dtype).reshape(-1)[shift:][: 5 * 64].reshape(5, 64) for o in outputs
    ]
    kernel(*arrays, *found)
    wanted = nf.evaluate(list(outputs), dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for got, exact in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=2e-5, atol=1e-6)


def test_code_stores_past_the_caches_and_waits_for_it_once():
    x = nf.placeholder((64, 64), name="x")
    subgraph = subgraph_of([x + 1.0], [x])
    kernel = codegen.lower(subgraph, streamed([x + 1.0], [x]), TARGET, "k")
    code = codegen.source([kernel], TARGET, "asm")
    assert "vmovnt" in code and code.count("sfence") == 1
    plain = codegen.lower(subgraph, default_schedule(subgraph, TARGET), TARGET, "k")
    assert "sfence" not in codegen.source([plain], TARGET, "asm")


def test_what_no_cache_keeps_is_streamed():
    def default(rows, columns=1024):
        x = nf.placeholder((rows, columns), name="x")
        return default_schedule(subgraph_of([nf.tanh(x)], [x]), TARGET)

    assert default(1 << 14)["stream"] and not default(1 << 12)["stream"]
    assert [s["stream"] for s in lowered_rows((1 << 14, 1024))[1].inner if s.template == "map"][-1]
    assert not any(s["stream"] for s in lowered_rows((64, 1024))[1].inner if s.template == "map")
    assert not any(s["stream"] for s in lowered_rows((1 << 14, 1001))[1].inner if s.template == "map")


# --- contractions


def product(m, k, n, beside):
    """The roots and inputs of relu(a @ b + c * d), or of a @ b alone."""
    a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
    if not beside:
        return [a @ b], [a, b]
    c, d = nf.placeholder((m, n), name="c"), nf.placeholder((n,), name="d")
    return [nf.relu(a @ b + c * d)], [a, b, c, d]


def tiles(roots, inputs, **knobs):
    return complete("contraction", problem_of(subgraph_of(roots, inputs)), TARGET, {"stream": True, **knobs})


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("store", ["registers", "stack"])
@pytest.mark.parametrize(("passes", "side"), [(1, "right"), (3, "right"), (1, "left")])
def test_tiles(store, beside, passes, side):
    """With panels that end in part of a vector's neighbours: 80 columns are two panels of 32 and half of one."""
    roots, inputs = product(30, 24, 80, beside)
    knobs = {
        "side": side,
        "store": store if side == "right" else "stack",
        "passes": passes,
        "vectors": 2,
        "tile_rows": 7,
    }
    problem = problem_of(subgraph_of(roots, inputs))
    schedule = complete("contraction", problem, TARGET, {**knobs, "stream": False})
    other = streamed_otherwise(problem, schedule, TARGET)
    assert (other is None) == (side == "left")  # lanes are along the rows there, neighbours in memory are not
    if other is not None:
        assert check(roots, inputs, other, scale=4.0)["stream"]
        assert streamed_otherwise(problem, other, TARGET) == schedule


def test_tiles_of_several_outputs():
    a, b = nf.placeholder((20, 12), name="a"), nf.placeholder((12, 64), name="b")
    y = a @ b
    roots = [y, nf.tanh(y)]
    assert check(roots, [a, b], tiles(roots, [a, b]), scale=4.0)["stream"]


def test_tiles_whose_vectors_are_more_than_two_registers_of_the_output_have_no_choice():
    a, b = nf.placeholder((64, 32), name="a"), nf.placeholder((32, 128), name="b")
    roots, register = [nf.cast(a @ b, "float64")], TARGET.lanes("float64")
    rng = np.random.default_rng(0)
    whole = {t: rng.integers(-8, 9, t.shape) for t in (a, b)}  # whose sums in float32 are exact in any order
    for lanes, may in ((register, True), (2 * register, True), (4 * register, False)):
        knobs = {"side": "right", "lanes": lanes, "vectors": 1, "tile_rows": 4, "stream": False}
        problem = problem_of(subgraph_of(roots, [a, b]))
        other = streamed_otherwise(problem, complete("contraction", problem, TARGET, knobs), TARGET)
        assert (other is not None) is may
        if other is not None:
            check(roots, [a, b], other, whole, scale=4.0)


def test_lines_that_begin_inside_of_registers_have_no_choice():
    problem = problem_of(subgraph_of(*product(30, 24, 70, False)))
    schedule = default_schedule(subgraph_of(*product(30, 24, 70, False)), TARGET)
    assert streamed_otherwise(problem, schedule, TARGET) is None
    verdict = legal(problem, changed(schedule, stream=True), TARGET)
    assert not verdict.ok and "no whole registers" in verdict.reason


def test_tiles_that_no_cache_keeps_are_streamed():
    def default(columns, beside=False):
        return default_schedule(subgraph_of(*product(4096, 64, columns, beside)), TARGET)

    assert default(2048)["stream"] and not default(1024)["stream"]
    assert default(2048, beside=True)["fetch"]  # what is read beside the sums still is
    assert not default(2048)["fetch"]


def test_code_of_tiles_stores_past_the_caches():
    roots, inputs = product(64, 16, 64, False)
    kernel = codegen.lower(subgraph_of(roots, inputs), tiles(roots, inputs), TARGET, "k")
    code = codegen.source([kernel], TARGET, "asm")
    assert "vmovnt" in code and "sfence" in code

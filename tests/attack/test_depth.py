"""Deep programs: chains, long sums, nests. They run under a recursion limit that no walk by depth stays below."""

import sys
from functools import reduce

import numpy as np
import pytest

import neoflow as nf
from neoflow import devices, rewriting
from neoflow.codegen.rounding import error_bounds
from neoflow.expr.guards import guarded_reads
from neoflow.graph import Graph, make_graph
from neoflow.loops import default_schedule
from neoflow.trace import Trace

pytestmark = pytest.mark.tvm

ROOM = 200
"""Frames that are left: more than the compiler needs for its own calls, fewer than any program here is deep."""
SLOW = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """What is imported on first use needs a deeper stack."""
    x = nf.placeholder((2,), name="x")
    nf.compile([nf.tanh(x)], inputs=[x])


@pytest.fixture(autouse=True)
def low_limit(loaded):
    before, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + ROOM)
    yield
    sys.setrecursionlimit(before)


def agrees(outputs, feeds, rtol=1e-5):
    """Compiled and evaluated values, equal but for rounding."""
    found = nf.compile(outputs, inputs=list(feeds))(*feeds.values())
    for a, b in zip(found, nf.evaluate(outputs, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


def calls(work):
    """How many calls of Python functions it takes."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def numbers(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain_of_tensors(n):
    x = nf.placeholder((19,), name="x")
    return reduce(lambda y, _: nf.tanh(y), range(n), x), x


def mixed_chain(n):
    """A chain whose kernels are all different."""
    x = nf.placeholder((19,), name="x")
    steps = (nf.tanh, lambda y: y * 0.5, lambda y: nf.maximum(y, 0.25), lambda y: y + 1.0)
    chosen = np.random.default_rng(1).integers(len(steps), size=n)
    return reduce(lambda y, k: steps[k](y), chosen, x), x


def chain_in_one_body(n):
    x = nf.placeholder((19,), name="x")
    return nf.compute((19,), lambda i: reduce(lambda e, _: nf.tanh(e), range(n), x[i]), name="y"), x


def sum_in_one_body(n):
    x = nf.placeholder((n + 7,), name="x")
    return nf.compute((7,), lambda i: reduce(lambda e, k: e + x[i + k], range(1, n), x[i]), name="y"), x


def weighted_sum_in_one_body(n):
    x = nf.placeholder((n + 7,), name="x")
    return nf.compute((7,), lambda i: reduce(lambda e, k: e + x[i + k] * (k / n), range(1, n), x[i]), name="y"), x


def sum_of_many(n):
    xs = [nf.placeholder((7,), name=f"x{k}") for k in range(n)]
    return nf.compute((7,), lambda i: reduce(lambda e, x: e + x[i], xs[1:], xs[0][i]), name="y"), xs


def sum_written(n):
    """Python's own parser needs a frame for three terms at most; a walk that needed one for each would not end."""
    x = nf.placeholder((n + 7,), name="x")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + n // 2)
    try:
        return nf.expr(f"y[i<7] = {' + '.join(f'x[i + {k}]' for k in range(n))}", x=x), x
    finally:
        sys.setrecursionlimit(before)


def nest_of_selects(n):
    """Each condition chooses between a read and the rest, which reads as well."""
    x = nf.placeholder((19,), name="x")

    def body(i):
        e = x[i]
        for k in range(n):
            e = nf.select(x[i] < k / n, e * 0.5, x[(k * 7) % 19] + 1.0)
        return e

    return nf.compute((19,), body, name="y"), x


def shared_branches(n):
    """Both branches read the rest, which reads outside unless a condition around all of it holds."""
    x = nf.placeholder((20,), name="x")

    def body(i):
        e = x[i + 3]
        for k in range(n):
            e = nf.select(x[i] < k / n, e * 0.5, e + 1.0)
        return nf.select(i < 17, e, 0.0)

    return nf.compute((19,), body, name="y"), x


def divided_index(n):
    x = nf.placeholder((19,), name="x")
    return nf.compute((19,), lambda i: x[reduce(lambda e, _: (e * 2 + 1) // 3, range(n), i)], name="y"), x


def deep_index(n):
    """An index of n choices inside each other."""
    x = nf.placeholder((19,), name="x")

    def body(i):
        e = i
        for k in range(n):
            e = nf.maximum(18 - e, k % 7)
        return x[e]

    return nf.compute((19,), body, name="y"), x


@pytest.mark.parametrize(
    ("make", "n"),
    [
        (chain_of_tensors, 210),
        (chain_in_one_body, 210),
        (sum_in_one_body, 600),
        (weighted_sum_in_one_body, 600),
        (nest_of_selects, 60),
        (shared_branches, 16),
        (divided_index, 20),
        (divided_index, 400),
        (deep_index, 210),
        pytest.param(mixed_chain, 300, marks=SLOW),
        pytest.param(nest_of_selects, 250, marks=SLOW),
        pytest.param(shared_branches, 40, marks=SLOW),
        pytest.param(chain_of_tensors, 2_000, marks=SLOW),
        pytest.param(chain_of_tensors, 20_000, marks=SLOW),
        pytest.param(mixed_chain, 2_000, marks=SLOW),
        pytest.param(chain_in_one_body, 2_000, marks=SLOW),
        pytest.param(sum_in_one_body, 10_000, marks=SLOW),
        pytest.param(sum_in_one_body, 100_000, marks=SLOW),
        pytest.param(weighted_sum_in_one_body, 100_000, marks=SLOW),
        pytest.param(sum_written, 2_000, marks=SLOW),
        pytest.param(nest_of_selects, 1_000, marks=SLOW),
    ],
)
def test_compiled(make, n):
    y, x = make(n)
    agrees([y], {x: numbers(x.shape)}, rtol=1e-4)


@pytest.mark.parametrize("n", [600, pytest.param(100_000, marks=SLOW)])
def test_a_sum_of_many_inputs(n):
    y, xs = sum_of_many(n)
    agrees([y], {x: numbers((7,), k) for k, x in enumerate(xs)}, rtol=1e-3)


@pytest.mark.parametrize("make", [sum_in_one_body, weighted_sum_in_one_body, sum_of_many])
def test_equal_pieces_are_equal_kernels(make):
    """However long the sum, few kernels: the first piece, those in between, the last."""
    for n in (1_000, 2_000):
        y, x = make(n)
        _, divided = rewriting.stages(make_graph([y], x if isinstance(x, list) else [x]), Trace())
        assert len({s.digest for s in divided.subgraphs}) <= 3 < len(divided.calls)


@pytest.mark.parametrize("make", [divided_index, nest_of_selects, shared_branches])
def test_the_definition_is_linear(make):
    """Four times the depth takes at most five times the calls of Python functions, and no more text."""
    few, many = calls(lambda: make(100)), calls(lambda: make(400))
    assert many < 5 * few + 10_000


def test_conditions_multiply_no_reads():
    """Each read of a body whose branches share everything has the conditions around all of it."""
    y, _ = shared_branches(100)
    found = guarded_reads(y.definition.body)
    assert len(found) == len(set(y.definition.reads))
    assert all(str(guards[0]) == "axis0 < 17" for _, guards in found)


@pytest.mark.parametrize("count", [pytest.param(300, marks=SLOW), pytest.param(2_000, marks=SLOW)])
def test_a_norm_and_a_penalty_over_many_parameters(count):
    """SGD with the gradients clipped by their common norm, and a penalty on every parameter."""
    x = nf.placeholder((3,), name="x")
    start = [numbers((3,), seed) for seed in range(count)]
    w = [nf.parameter((3,), name=f"w{n}", init=a) for n, a in enumerate(start)]
    fit = reduce(lambda total, p: total + nf.sum(p * x), w, nf.sum(x))
    penalty = reduce(lambda total, p: total + nf.sum(p * p), w[1:], nf.sum(w[0] * w[0]))
    loss = fit + 0.01 * penalty
    gradients = nf.grad(loss, w)
    norm = nf.sqrt(reduce(lambda total, g: total + nf.sum(g * g), gradients[1:], nf.sum(gradients[0] * gradients[0])))
    scale = 1.0 / nf.maximum(norm, 1.0)
    step = nf.compile(
        [loss, norm], inputs=[x], updates={p: p - 0.1 * (g * scale) for p, g in zip(w, gradients, strict=True)}
    )
    at = numbers((3,), count)
    found, found_norm = step(at)
    wide = np.array(start, np.float64)
    gradient = at + 0.02 * wide
    wanted_norm = np.sqrt((gradient**2).sum())
    np.testing.assert_allclose(found, at.sum() + (wide * at).sum() + 0.01 * (wide**2).sum(), rtol=1e-4)
    np.testing.assert_allclose(found_norm, wanted_norm, rtol=1e-5)
    for p, before, g in zip(w[::37], wide[::37], gradient[::37], strict=True):
        np.testing.assert_allclose(nf.get_value(p), before - 0.1 * g / max(wanted_norm, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "n"), [(chain_of_tensors, 210), (chain_in_one_body, 210), (sum_in_one_body, 300), (nest_of_selects, 210)]
)
def test_printed_read_and_judged(make, n):
    """Texts, explanations and bounds of rounding, of what is deeper than the stack."""
    y, x = make(n)
    graph = make_graph([y], [x])
    assert Graph.from_text(graph.to_text()).to_text() == graph.to_text()
    trace = Trace()
    _, divided = rewriting.stages(graph, trace)
    assert all(r.text() for r in trace.records)
    for call in divided.calls:
        _, outputs = call.subgraph.tensors()
        assert len(error_bounds(outputs)) == len(outputs)
    (bound,) = error_bounds([y])
    (value,) = nf.evaluate([bound], {x: numbers(x.shape)}, dtype="float64")
    assert value.shape == y.shape


@pytest.mark.parametrize(
    "make",
    [pytest.param(chain_of_tensors, marks=SLOW), pytest.param(chain_in_one_body, marks=SLOW), sum_in_one_body],
)
def test_differentiated(make):
    y, x = make(210)
    (g,) = nf.vjp(y, [x])
    agrees([g], {x: numbers(x.shape)}, rtol=1e-4)


@pytest.mark.parametrize("make", [pytest.param(mixed_chain, marks=SLOW), chain_in_one_body, sum_in_one_body])
def test_work_is_linear(make):
    """Four times the operations take at most five times the calls of Python functions, up to the lowering."""

    def stages(n):
        y, x = make(n)
        _, divided = rewriting.stages(make_graph([y], [x]), Trace())
        for s in divided.subgraphs:
            default_schedule(s, devices.resolve_target("cpu"))

    few, many = calls(lambda: stages(250)), calls(lambda: stages(1_000))
    assert 1_000 < many < 5 * few

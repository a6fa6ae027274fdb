"""Sums of products are computed in an order that takes less work; where that is no gain or not the same, they stay."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.ir import Reduce
from neoflow.expr.tensor import Compute, topological
from neoflow.graph import CANONICALIZE, PASSES, make_graph, optimize, run
from neoflow.graph.engine import Pass
from neoflow.graph.factor import FactorSums
from neoflow.graph.passes import CANONICAL, FACTOR
from neoflow.graph.work import work_of
from tests.graph.programs import linear_sums

ANY = Pass("factor", (FactorSums(saved=0),), after=CANONICAL)
"""However little it saves, so that programs may be small."""
P, R, S = 24, 32, 40
G, W, A, B = (
    nf.placeholder(shape, name=n) for n, shape in (("g", (P, R)), ("w", (R, S)), ("a", (S, P)), ("b", (S, P)))
)


def summed(body, over, shape=(P,), name="y"):
    """sum over axes r and s of the body, or over those named."""
    axes = {"r": nf.axis(R, "r"), "s": nf.axis(S, "s")}
    return nf.compute(shape, lambda *at: nf.sum(body(*at, **axes), axis=[axes[n] for n in over]), name=name)


def feeds_of(graph):
    """Numbers for the inputs of a graph."""
    rng = np.random.default_rng(0)
    return {t: rng.uniform(-1, 1, t.shape).astype(t.dtype) for t in graph.inputs}


def factored(*roots, row=ANY):
    """The nodes after the pass, as text, and its derivation; the values stay."""
    inputs = [t for t in topological(roots) if not isinstance(t, Compute)]
    graph = run(make_graph(list(roots), inputs), CANONICALIZE)[0]
    after, derivation = run(graph, row)
    feeds = feeds_of(graph)
    for x, y in zip(nf.evaluate(after.outputs, feeds), nf.evaluate(graph.outputs, feeds), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    return [str(t) for t in after.nodes], derivation


def refusal(*roots, row=ANY):
    """The sentence with which the one candidate is refused."""
    _, derivation = factored(*roots, row=row)
    (step,) = derivation.refused
    assert not derivation.steps
    return step.reason


def is_left_alone(*roots):
    _, derivation = factored(*roots)
    return not derivation.steps and not derivation.refused


def test_a_sum_over_two_axes_is_divided():
    """Over the longer axis first, so that what lies between is small."""
    nodes, derivation = factored(summed(lambda p, r, s: G[p, r] * W[r, s] * A[s, p], "rs"))
    assert nodes == [
        f"y_sum[i, j] = sum[r](w[j, r] * a[r, i])    # float32[{P}, {R}]",
        f"y[i] = sum[r](g[i, r] * y_sum[i, r])    # float32[{P}]",
    ]
    assert [s.reason for s in derivation.steps] == ["153600 instructions become 59840, with 3072 bytes between them"]


def test_what_depends_on_no_summed_axis_leaves_the_sum():
    c = nf.placeholder((P,), name="c")
    nodes, _ = factored(summed(lambda p, r, s: nf.exp(c[p]) * G[p, r] / (c[p] * c[p] + 1.0) * nf.tanh(c[p]), "r"))
    assert nodes == [
        f"y_sum[i] = sum[r](g[i, r])    # float32[{P}]",
        f"y[i] = exp(c[i]) * y_sum[i] / (c[i] * c[i] + 1.0) * tanh(c[i])    # float32[{P}]",
    ]


def test_terms_that_share_a_product_are_summed_together():
    nodes, derivation = factored(
        summed(lambda p, r, s: G[p, r] * W[r, s] * A[s, p] - B[s, p] * (W[r, s] * G[p, r]), "rs")
    )
    assert len(derivation.steps) == 1
    assert nodes[1] == f"y[i] = sum[r](y_sum[i, r] * a[r, i] - b[r, i] * y_sum[i, r])    # float32[{P}]"


def test_sums_that_share_a_product_share_its_sum():
    """Either alone would compute as much as before; their axes have other numbers."""
    v, t, r = nf.placeholder((S,), name="v"), nf.placeholder((P, S), name="t"), nf.axis(R, "r")
    y = nf.compute((P, S), lambda p, s: nf.sum(G[p, r] * W[r, s] * nf.exp(t[p, s]) * v[s], axis=[r]), name="y")
    z = nf.compute((S, P), lambda s, p: nf.sum(G[p, r] * W[r, s] * v[s] * t[p, s] / 3.0, axis=[r]), name="z")
    nodes, derivation = factored(y, z)
    assert nodes == [
        f"y_sum[i, j] = sum[r](g[i, r] * w[r, j])    # float32[{P}, {S}]",
        f"y[i, j] = y_sum[i, j] * exp(t[i, j]) * v[j]    # float32[{P}, {S}]",
        f"z[i, j] = y_sum[j, i] * v[i] * t[j, i] / 3.0    # float32[{S}, {P}]",
    ]
    assert [len(step.at) for step in derivation.steps] == [2]


def test_what_stands_under_a_condition_stays_under_it():
    def body(p, r, s):
        return nf.select(A[s, p] > 0.0, G[p, r] * W[r, s] * nf.log(A[s, p]), 0.0)

    nodes, _ = factored(summed(body, "rs"))
    assert nodes[1] == f"y[i] = sum[r](select(a[r, i] > 0.0, y_sum[i, r] * log(a[r, i]), 0.0))    # float32[{P}]"


def test_a_condition_on_what_is_summed_first_stays_in_the_sum():
    """Zero times what is infinite there would not be zero."""
    assert is_left_alone(summed(lambda p, r, s: nf.select(W[r, s] > 0.0, G[p, r] * W[r, s] * A[s, p], 0.0), "rs"))


def test_what_only_a_condition_keeps_inside_is_not_read_without_it():
    def body(p, r, s):
        return nf.select((p >= 1) & (s >= 1), G[p - 1, r] * W[r, s - 1] * A[s, p], 0.0)

    assert is_left_alone(summed(body, "rs"))


def test_what_is_looked_up_under_a_condition_is_not_looked_up_without_it():
    ids, c = nf.placeholder((P,), "int64", name="ids"), nf.placeholder((P,), name="c")

    def steps(at, guard):
        y = summed(lambda p, r, s: guard(p, G[at(p), r] / c[p] / c[p] / c[p]), "r")
        after, derivation = run(make_graph([y], [G, c, ids]), ANY)
        return after, len(derivation.steps)

    def guard(p, e):
        return nf.select(ids[p] >= 0, e, 0.0)

    assert steps(lambda p: ids[p], guard)[1] == 0
    assert steps(lambda p: nf.minimum(nf.maximum(ids[p], 0), P - 1), guard)[1] == 1
    after, count = steps(lambda p: ids[p], lambda p, e: e)
    with pytest.raises(nf.NeoflowError, match="leaves g: index 0 is 24"):
        nf.evaluate(after.outputs, feeds_of(after) | {ids: np.full(P, P)})
    assert count == 1 and len(after.nodes) == 2


def test_different_terms_are_not_summed_apart():
    """sum(x x - m x) is not sum(x x) - m sum(x), which cancels."""
    assert is_left_alone(summed(lambda p, r, s: G[p, r] * G[p, r] - A[0, p] * G[p, r], "r"))
    assert is_left_alone(summed(lambda p, r, s: G[p, r] - 1.0, "r"))


def test_equal_factors_count_as_often_as_they_are_there():
    nodes, _ = factored(summed(lambda p, r, s: G[p, r] * W[r, s] * A[s, p] * A[s, p] * G[p, r], "rs"))
    assert nodes[0].startswith("y_sum[i, j] = sum[r](w[j, r] * a[r, i] * a[r, i])")
    assert nodes[1].startswith("y[i] = sum[r](g[i, r] * y_sum[i, r] * g[i, r])")


def test_a_chain_of_products_is_divided_again_and_again():
    w2, g2 = nf.placeholder((S, R), name="w2"), nf.placeholder((R, P), name="g2")
    r, s, q = nf.axis(R, "r"), nf.axis(S, "s"), nf.axis(R, "q")
    y = nf.compute((P, P), lambda i, j: nf.sum(G[i, r] * W[r, s] * w2[s, q] * g2[q, j], axis=[r, s, q]), name="y")
    graph = make_graph([y], [G, W, w2, g2])
    after, derivation = run(graph, ANY)
    assert len(derivation.steps) == 2 and all(isinstance(t.definition.body, Reduce) for t in after.nodes)
    feeds = feeds_of(graph)
    wanted = np.linalg.multi_dot([feeds[t].astype("float64") for t in (G, W, w2, g2)])
    np.testing.assert_allclose(nf.evaluate(after.outputs, feeds, dtype="float64")[0], wanted, rtol=1e-6, atol=1e-6)
    assert sum(work_of(t.definition) for t in after.nodes) < work_of(y.definition) / 100


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_stay_exact(dtype):
    g, w, b = (nf.placeholder(t.shape, dtype, name=t.name) for t in (G, W, B))
    r, s = nf.axis(R, "r"), nf.axis(S, "s")
    y = nf.compute((P, P), lambda p, q: nf.sum(g[p, r] * w[r, s] * b[s, q], axis=[r, s]), name="y")
    graph = make_graph([y], [g, w, b])
    after, derivation = run(graph, ANY)
    assert len(derivation.steps) == 1
    feeds = {t: np.random.default_rng(0).integers(-100, 100, t.shape).astype(dtype) for t in (g, w, b)}
    wanted = np.linalg.multi_dot([feeds[t].astype("int64") for t in (g, w, b)]).astype(dtype)
    for roots in (graph.outputs, after.outputs):
        np.testing.assert_array_equal(nf.evaluate(roots, feeds)[0], wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_narrow_in_memory_stays_in_registers(dtype):
    g, w, a = (nf.placeholder(t.shape, dtype, name=t.name) for t in (G, W, A))
    graph = make_graph([summed(lambda p, r, s: g[p, r] * w[r, s] * a[s, p], "rs")], [g, w, a])
    assert run(graph, ANY)[0] is graph


def test_other_reductions_stay():
    r, s = nf.axis(R, "r"), nf.axis(S, "s")
    assert is_left_alone(nf.compute((P,), lambda p: nf.max(G[p, r] * W[r, s] * A[s, p], axis=[r, s]), name="y"))


def test_what_saves_too_little_is_refused():
    y = summed(lambda p, r, s: G[p, r] * W[r, s] * A[s, p], "rs")
    assert refusal(y, row=FACTOR) == "153600 instructions would be 59840, which is no gain"
    c = nf.placeholder((P,), name="c")
    assert "which is no gain" in refusal(summed(lambda p, r, s: c[p] * G[p, r], "r"))


def test_what_is_too_large_to_be_stored_is_refused():
    a, c = nf.placeholder((2048, 64), name="a"), nf.placeholder((2048,), name="c")
    r, i, j = nf.axis(64, "r"), nf.axis(2048, "i"), nf.axis(2048, "j")
    y = nf.compute((), lambda: nf.sum(nf.exp(a[i, r] * a[j, r]) * nf.tanh(c[i] * c[j]), axis=[r, i, j]), name="y")
    _, derivation = run(make_graph([y], [a, c]), FACTOR)
    (step,) = derivation.refused
    assert step.reason == "what is summed first has 16777216 bytes, more than 8388608"


def test_what_is_infinite_is_so_before_and_after():
    """Numbers that are finite, but for one: whoever reads it is not finite, the others are what they were."""
    y = summed(lambda p, r, s: G[p, r] * W[r, s] * A[s, p], "rs")
    graph = make_graph([y], [G, W, A])
    after, _ = run(graph, ANY)
    for at, value in ((G, np.inf), (A, -np.inf), (A, np.nan)):
        feeds = feeds_of(graph)
        feeds[at] = feeds[at].copy()
        feeds[at].flat[3] = value
        with np.errstate(invalid="ignore"):
            (before,), (found,) = nf.evaluate(graph.outputs, feeds), nf.evaluate(after.outputs, feeds)
        assert not np.isfinite(before).all()
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(before))
        np.testing.assert_allclose(found[np.isfinite(found)], before[np.isfinite(before)], rtol=1e-4, atol=1e-5)


def law(seed):
    """Values and gradients of a small program before and after, and that the end is an end; the steps."""
    case = linear_sums(seed, 3, 20)
    graph = run(make_graph(case.roots, list(case.feeds)), CANONICALIZE)[0]
    after, derivation = run(graph, ANY)
    after.check()
    for x, y in zip(case.values(after.outputs), case.values(graph.outputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    assert not run(after, ANY)[1].steps and derivation.replay(graph).digest == after.digest
    before, now = (sum(work_of(t.definition) for t in g.nodes) for g in (graph, after))
    assert now < before or not derivation.steps, f"seed {seed}"
    return len(derivation.steps)


def test_values_and_gradients_stay():
    assert sum(map(law, range(60))) > 30


@pytest.mark.slow
def test_values_and_gradients_stay_in_2000_programs():
    assert sum(map(law, range(1000, 3000))) > 1000


def test_a_step_of_the_table_comes_between_padding_and_hoisting():
    names = [row.name for row in PASSES]
    assert names.index("pad guards") < names.index("factor") < names.index("hoist")


def test_optimised_programs_are_no_more_work():
    y = summed(lambda p, r, s: G[p, r] * W[r, s] * A[s, p], "rs")
    graph = make_graph([y], [G, W, A])
    assert optimize(graph).digest == graph.digest

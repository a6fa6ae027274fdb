"""Guards of contractions become zeros around an operand; where they cannot, the refusal says why."""

import numpy as np

import neoflow as nf
from neoflow.expr.ir import Read, Reduce
from neoflow.graph import PASSES, canonicalize, make_graph, optimize, run

PAD = next(row for row in PASSES if row.name == "pad guards")


def guarded(product, shape=(6,), taps=3, extent=6, at=lambda i, r: i + r - 1):
    """sum[r](product where 0 <= at < extent, else 0)."""
    r = nf.axis(taps, "r")

    def body(i):
        inside = (at(i, r) >= 0) & (at(i, r) < extent)
        return nf.sum(nf.select(inside, product(i, r), 0.0), axis=[r])

    return nf.compute(shape, body, name="y")


def inputs():
    return nf.placeholder((6,), name="x"), nf.placeholder((3,), name="w")


def refusal(y, *inputs):
    """The sentence with which padding y is refused; the graph stays."""
    graph = canonicalize(make_graph([y], inputs))
    after, derivation = run(graph, PAD)
    assert after is graph and not derivation.steps
    (step,) = derivation.refused
    assert str(step).startswith("pad guards at ") and step.name == "y"
    return step.reason


def test_a_guard_becomes_zeros_around_the_operand():
    x, w = inputs()
    y = guarded(lambda i, r: x[i + r - 1] * w[r])
    after, derivation = run(make_graph([y], [x, w]), PAD)
    assert [str(t) for t in after.nodes] == [
        "x_padded[i<8] = select((i - 1 >= 0) & (i - 1 < 6), x[i - 1], 0.0)    # float32[8]",
        "y[i] = sum[r](x_padded[i + r] * w[r])    # float32[6]",
    ]
    (step,) = derivation.steps
    assert step.reason == "its guards say no more than that x is zero outside its extents"
    feeds = {x: np.arange(6, dtype=np.float32), w: np.float32([1, 10, 100])}
    np.testing.assert_array_equal(nf.evaluate(after.outputs, feeds), nf.evaluate([y], feeds))


def test_guarded_contractions_share_one_padded_operand():
    g = nf.placeholder((2, 3, 5, 5), name="g")
    w = nf.placeholder((3, 4, 3, 3), name="w")
    x = nf.placeholder((2, 4, 11, 11), name="x")
    c, r, s = nf.axis(4, "c"), nf.axis(3, "r"), nf.axis(3, "s")
    y = nf.compute(
        (2, 3, 5, 5),
        lambda b, o, p, q: nf.sum(x[b, c, 2 * p + r, 2 * q + s] * w[o, c, r, s], axis=[c, r, s]),
    )
    (dx,) = nf.vjp(y, [x], g)
    graph = optimize(make_graph([dx], [g, w]))
    contractions = [t for t in graph.nodes if isinstance(t.definition.body, Reduce)]
    assert len(contractions) == 4
    for t in contractions:
        assert all(isinstance(f, Read) for f in t.definition.body.body.args), str(t)
    assert sum("padded" in t.name for t in graph.nodes) == 1
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape) for t in (g, w)}
    found, wanted = nf.evaluate([*graph.outputs, dx], feeds, dtype="float64")
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_one_step_replaces_all_that_share_and_no_other():
    x, w = inputs()
    same = [guarded(lambda i, r, n=n: x[i + r - 1] * w[r] * n) for n in (2.0, 3.0)]
    other = guarded(lambda i, r: x[i + r - 1] * w[r], extent=5)
    _, derivation = run(make_graph([*same, other], [x, w]), PAD)
    both, alone = (step for step in derivation.steps if step.rewrite.name == "pad guards")
    assert len(both.at) == 2 and len(alone.at) == 1
    assert alone.reason == "its guards say no more than that x is zero outside [0, 5)"


def test_a_factor_that_may_be_infinite_is_not_multiplied_by_zero():
    x, w = inputs()
    y = guarded(lambda i, r: x[i + r - 1] * nf.exp(w[r]))
    assert refusal(y, x, w) == "a factor is more than a read: where it is infinite, 0 times it is no 0"


def test_an_operand_that_needs_the_guard_keeps_it():
    x, v = inputs()[0], nf.placeholder((6,), name="v")
    y = guarded(lambda i, r: x[i + r - 1] * v[i + r - 1])
    assert refusal(y, x, v) == "another operand leaves its tensor where the guards do not hold"


def test_an_index_that_needs_the_guard_to_be_read_keeps_it():
    """Found by a random program: the gradient of a read whose index is the place of a maximum."""
    x, v, n = inputs()[0], nf.placeholder((7,), name="v"), nf.placeholder((6,), "int64", name="n")
    y = guarded(lambda i, r: x[i + r - 1] * v[n[i + r - 1] % 7])
    assert refusal(y, x, v, n) == "another operand leaves its tensor where the guards do not hold"
    feeds = {x: np.arange(6.0), v: np.arange(7.0) + 1, n: np.array([0, 3, 6, 2, 5, 1])}
    graph = optimize(make_graph([y], [x, v, n]))
    np.testing.assert_allclose(*nf.evaluate([*graph.outputs, y], feeds, dtype="float64"))


def test_a_guard_on_something_else_is_kept():
    x, w, n = *inputs(), nf.placeholder((6,), "int64", name="n")
    r = nf.axis(3, "r")
    y = nf.compute((6,), lambda i: nf.sum(nf.select(n[i] > 2, x[i] * w[r], 0.0), axis=[r]), name="y")
    assert refusal(y, x, w, n) == "its guards are no window on a single operand"


def test_an_operand_that_would_grow_too_much_is_not_padded():
    x, w = nf.placeholder((2,), name="x"), nf.placeholder((5,), name="w")
    y = guarded(lambda i, r: x[i - 2500 * r] * w[r], (10000,), 5, 2, lambda i, r: i - 2500 * r)
    assert refusal(y, x, w) == "what it reaches is more than 4 times the operand"


def padded(source, other=0.0):
    return nf.compute((8,), lambda i: nf.select((i > 0) & (i < 7), source[i - 1], other), name="p")


def test_what_is_widened_and_padded_is_padded_narrow():
    h = nf.placeholder((6,), "float16", name="h")
    p = padded(nf.cast(h, "float32"))
    after, derivation = run(make_graph([p], [h]), PAD)
    assert [t.dtype for t in after.nodes] == ["float16", "float32"] and after.nodes[0].inputs == (h,)
    (step,) = derivation.steps
    assert step.reason == "cast only widens h"
    feeds = {h: np.arange(6, dtype=np.float16)}
    np.testing.assert_array_equal(nf.evaluate(after.outputs, feeds), nf.evaluate([p], feeds))


def test_what_is_no_narrow_number_is_not_padded_with():
    h = nf.placeholder((6,), "float16", name="h")
    after, derivation = run(make_graph([padded(nf.cast(h, "float32"), 0.1)], [h]), PAD)
    (step,) = derivation.refused
    assert step.reason == "around it stands 0.1, which is no float16" and len(after.nodes) == 2

"""Contractions of all steps as one: where, why not, and what memory it takes."""

import math
from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Parameter
from neoflow.graph import Editor, cost, is_contraction, make_graph, optimize, priced, run
from neoflow.graph.passes import BATCH, CANONICALIZE
from neoflow.graph.waiting import most
from neoflow.models import build_model
from neoflow.partition import partition
from neoflow.train.step import sgd_updates
from tests.graph.programs import recurrences

STEPS, BATCHED, SIZE = 5, 8, 16
K, R = nf.axis(SIZE, "k"), nf.axis(BATCHED, "r")


def projected(x, w):
    return nf.compute((BATCHED, SIZE), lambda b, o: nf.sum(x[b, K] * w[o, K], axis=[K]))


def gradient(d, x):
    return nf.compute((SIZE, SIZE), lambda i, j: nf.sum(d[R, i] * x[R, j], axis=[R]))


def given(*names, shape=(BATCHED, SIZE)):
    return [nf.placeholder(shape, name=n) for n in names]


def batched(outputs, inputs):
    """The graph after the pass, and its derivation; values stay."""
    graph = run(make_graph(outputs, [t for t in inputs if not isinstance(t, Parameter)]), CANONICALIZE)[0]
    after, derivation = run(graph, BATCH)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (graph, after)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    return after, derivation


def contractions(graph):
    return [t for t in graph.nodes if t.definition.has_reduction]


def refusals(outputs, inputs):
    return {step.reason for step in batched(outputs, inputs)[1].refused}


def total(ts):
    return nf.compute(ts[0].shape, lambda i, j: sum((t[i, j] for t in ts[1:]), ts[0][i, j]))


@pytest.mark.parametrize("order", [range(STEPS), range(STEPS)[::-1], (3, 0, 4, 1, 2)])
def test_projections_of_slices_read_the_whole_in_its_order(order):
    x, w = nf.placeholder((STEPS, BATCHED, SIZE), name="x"), nf.parameter((SIZE, SIZE), name="w")
    h = nf.tanh(projected(x[0], w) * 0.0)
    for t in order:
        h = nf.tanh(projected(x[t], w) + h)
    after, derivation = batched([h], [x, w])
    (step,) = derivation.steps[:1]
    assert step.rewrite.name == "batch shared" and "its operands lie side by side" in step.reason
    (one,) = contractions(after)
    assert one.shape == (STEPS, BATCHED, SIZE) and set(one.inputs) == {x, w}


def test_every_second_slice_or_a_slice_of_the_middle_is_a_run_of_steps():
    x, w = nf.placeholder((BATCHED, 2 * STEPS, SIZE), name="x"), nf.parameter((SIZE, SIZE), name="w")
    h = nf.exp(x[:, 0])
    for t in (1, 3, 5):
        h = nf.tanh(projected(x[:, t], w) + h)
    (one,) = contractions(batched([h], [x, w])[0])
    assert one.shape == (3, BATCHED, SIZE) and set(one.inputs) == {x, w}


def layers():
    """Two layers of a cell over slices, and the gradients of all weights."""
    x = nf.placeholder((STEPS, BATCHED, SIZE), name="x")
    weights = [nf.parameter((SIZE, SIZE), name=n) for n in ("w1", "u1", "w2", "u2")]
    states = [x[t] for t in range(STEPS)]
    for w, u in (weights[:2], weights[2:]):
        h, made = None, []
        for s in states:
            p = projected(s, w)
            h = nf.tanh(p if h is None else p + projected(h, u))
            made.append(h)
        states = made
    loss = nf.sum(states[-1] * states[-1])
    return [loss, *nf.grad(loss, weights)], [x, *weights]


def test_gradients_of_a_recurrence_are_one_sum_and_what_they_read_is_written_in_parts():
    outputs, inputs = layers()
    after, derivation = batched(outputs, inputs)
    done = [step.rewrite.name for step in derivation.steps]
    assert done.count("batch sums") == 4 and done.count("batch shared") == 3
    assert "needs another of them" in " ".join(step.reason for step in derivation.refused)
    found = partition(optimize(make_graph(outputs, inputs[:1])))
    stacks = {v.base.name for v in found.views.values() if v.is_part}
    assert len(found.wholes) == 4 and all(name.endswith("_steps") for name in stacks)
    whole = [t for t in after.nodes if t.name.endswith("_steps") and not t.definition.has_reduction]
    assert sorted(len(t.inputs) for t in whole) == [STEPS - 1, STEPS, STEPS, STEPS], "one stack for all uses"


@pytest.mark.tvm
def test_a_step_gives_what_evaluate_gives():
    outputs, inputs = layers()
    rng = np.random.default_rng(0)
    feeds = {t: (0.3 * rng.standard_normal(t.shape)).astype(np.float32) for t in inputs}
    fed = [nf.placeholder(t.shape, name=t.name) for t in inputs]
    graph = make_graph(outputs, inputs[:1]).replace(dict(zip(inputs, fed, strict=True)))
    found = nf.compile(list(graph.outputs), fed)(*feeds.values())
    for value, wanted in zip(found, nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


def test_what_would_be_copied_costs():
    x, *weights = given("x", *"abc", shape=(SIZE, SIZE))
    ys = [nf.compute((SIZE, SIZE), lambda b, o, w=w: nf.sum(x[b, K] * w[o, K], axis=[K])) for w in weights]
    pairs = [nf.placeholder((4, 4096), name=n) for n in "abcdef"]
    r = nf.axis(4, "r")
    terms = [
        nf.compute((4096,), lambda i, a=a, b=b: nf.sum(a[r, i] * b[r, i], axis=[r]))
        for a, b in zip(pairs[:3], pairs[3:], strict=True)
    ]
    sums = nf.compute((4096,), lambda i: terms[0][i] + terms[1][i] + terms[2][i])
    (refused,) = refusals([sums], pairs)
    assert refused.startswith("one for 3 would take about ")
    assert refused.endswith(f"with {2 * 6 * pairs[0].nbytes} bytes for copies")
    (one,) = contractions(batched([nf.exp(y[:, ::2]) for y in ys], [x, *weights])[0])
    assert one.shape == (3, SIZE, SIZE), "of so small ones the starts of two kernels are more"


def test_large_contractions_of_small_given_weights_are_one_though_these_are_copied():
    x = nf.placeholder((64, SIZE, SIZE), name="x")
    weights = given("a", "b", "c", shape=(4, SIZE))
    shape = (64, SIZE, 4)
    ys = [nf.compute(shape, lambda a, b, o, w=w: nf.sum(x[a, b, K] * w[o, K], axis=[K])) for w in weights]
    (one,) = contractions(batched([nf.exp(y[:, :, ::2]) for y in ys], [x, *weights])[0])
    assert one.shape == (3, *shape)


def test_an_epilogue_that_would_leave_its_contraction_counts():
    x, w = nf.placeholder((2, 1024, SIZE), name="x"), nf.parameter((256, SIZE), name="w")
    parts = [x[t] for t in range(2)]
    ys = [nf.compute((1024, 256), lambda b, o, part=part: nf.sum(part[b, K] * w[o, K], axis=[K])) for part in parts]
    (refused,) = refusals([nf.tanh(y) for y in ys], [x, w])
    assert refused.endswith(f"with {2 * 2 * ys[0].nbytes} bytes for copies")


def test_terms_that_share_an_operand_with_one_other_alone_are_left():
    a, b, c, d = inputs = given(*"abcd", shape=(4096, SIZE))
    r = nf.axis(4096, "r")
    terms = [
        nf.compute((SIZE,), lambda i, x=x, y=y: nf.sum(nf.exp(x[r, i]) * nf.exp(y[r, i]), axis=[r]))
        for x, y in ((a, b), (a, c), (d, b))
    ]
    sums = nf.compute((SIZE,), lambda i: terms[0][i] + terms[1][i] + terms[2][i])
    assert "two of them share an operand that the others do not" in refusals([sums], inputs)


def test_links_of_a_chain_are_left():
    inputs = given(*"abcdef")
    first, second, third = (gradient(*map(nf.exp, inputs[n : n + 2])) for n in (0, 2, 4))
    pair = nf.compute(first.shape, lambda i, j: first[i, j] + second[i, j])
    chain = nf.compute(first.shape, lambda i, j: pair[i, j] + third[i, j])
    assert not batched([chain], inputs)[1].steps


def test_long_contractions_are_left_to_chains():
    pairs, r = [map(nf.exp, given("a", "b", shape=(400, SIZE))) for _ in range(3)], nf.axis(400, "r")
    terms = [nf.compute((SIZE, SIZE), lambda i, j, a=a, b=b: nf.sum(a[r, i] * b[r, j], axis=[r])) for a, b in pairs]
    inputs = [i for t in terms for e in t.inputs for i in e.inputs]
    (refused,) = refusals([total(terms)], inputs)
    assert refused.startswith("one for 3 would take about ") and "copies" not in refused


def test_depthwise_convolutions_share_nothing_that_is_packed():
    x, *weights = nf.placeholder((2, 8, 64), name="x"), *given(*"abc", shape=(8, 5))
    r = nf.axis(5, "r")
    ys = [nf.compute((2, 8, 60), lambda b, c, p, w=w: nf.sum(x[b, c, p + r] * w[c, r], axis=[r])) for w in weights]
    reasons = refusals([nf.exp(y[:, :, ::2]) for y in ys], [x, *weights])
    assert "it is no product of two sides, one of which all of them could pack once" in reasons


def test_what_shares_nothing_is_no_group():
    a, b = given("a", "b")
    ys = [nf.compute((SIZE,), lambda i, x=x: nf.sum(x[R, i] * x[R, i], axis=[R])) for x in (a, b)]
    assert not batched([nf.stack(ys)], [a, b])[1].steps


def branches(count, axis):
    """A convolution written as several, side by side along an axis, and the gradients of weights and image."""
    x, w = nf.placeholder((2, 8, 20, 20), name="x"), nf.parameter((count, 8, 8, 9, 9), name="w")
    y = nf.stack([nf.nn.functional.conv2d(x, w[n], stride=2) for n in range(count)], axis=axis)
    return [y, *nf.grad(nf.sum(y * y), [w, x])], [x, w]


@pytest.mark.parametrize("axis", range(5))
def test_convolutions_of_one_image_are_one_forward_and_backward(axis):
    outputs, inputs = branches(4, axis)
    graph, _ = batched(outputs, inputs)
    convolution, d_w, _ = graph.outputs
    assert is_contraction(convolution.definition) and is_contraction(d_w.definition), "as they are put together"


def test_projections_to_queries_keys_and_values_are_one_forward_and_backward():
    """Three linear maps of one input, each of which attention reads in another place."""
    x = nf.placeholder((2, 64, 32), name="x")
    weights = [nf.parameter((32, 32), name=f"w_{n}") for n in "qkv"]
    q, k, v = (x @ w for w in weights)
    scores = nf.nn.functional.softmax(nf.expr("s[b,i,j] = sum(q[b,i,e] * k[b,j,e])", q=q, k=k), axis=-1)
    y = nf.expr("y[b,i,e] = sum(s[b,i,j] * v[b,j,e])", s=scores, v=v)
    outputs = [y, *nf.grad(nf.mean(y * y), weights)]
    plain = make_graph(outputs, [x])
    graph = optimize(plain)
    widths = [t.shape for t in contractions(graph) if is_contraction(t.definition)]
    assert widths.count((3, 2, 64, 32)) == 1 and widths.count((3, 32, 32)) == 1, "all three and their gradients"
    assert (2, 64, 32) in widths and (32, 32) not in widths
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, *weights)}
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (plain, graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["capsconv", "capsconv8"])
def test_eight_convolutions_are_as_many_kernels_as_one(name):
    model = build_model(name, 16)
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    graph = make_graph([model.loss], model.inputs, sgd_updates(model, gradients))
    assert len(partition(optimize(graph)).calls) == 6


def test_many_are_several():
    x = nf.placeholder((100, BATCHED, SIZE), name="x")
    d = nf.placeholder((100, BATCHED, SIZE), name="d")
    after, _ = batched([total([gradient(d[t], x[t]) for t in range(100)])], [x, d])
    assert sorted(t.definition.reduction_axes[0].extent for t in contractions(after)) == [36, 64]


def test_equal_paddings_of_slices_are_one():
    x, w = nf.placeholder((4, 3, 6), name="x"), nf.parameter((8, 3, 3), name="w")
    c, r = nf.axis(3, "c"), nf.axis(3, "r")
    padded = [nf.pad(x[n], [(0, 0), (1, 1)]) for n in range(4)]
    ys = [nf.compute((8, 6), lambda o, p, x=x: nf.sum(x[c, p + r] * w[o, c, r], axis=[c, r])) for x in padded]
    graph, derivation = batched([nf.stack(ys)], [x, w])
    assert len(graph.nodes) == 2 and graph.outputs[0].definition.has_reduction, str(derivation)


def recurrence(steps=STEPS):
    """What each step of one projects, all of which is read by the next alone; the gradient of a weight it shares."""
    x, w, u = nf.placeholder((steps, BATCHED, SIZE), name="x"), *given("w", "u", shape=(SIZE, SIZE))
    h, made = nf.exp(x[0]), []
    for t in range(steps):
        made.append(h)
        h = nf.tanh(projected(x[t], w) + projected(h, u))
    return [h, total([gradient(h, x[t]) for t, h in enumerate(made)])], [x, w, u]


def test_what_waits_is_counted_in_bytes_at_once():
    """All projections are there before the first is read; apart one is, until it is added. The sum of all steps reads
    all states, a link of a chain one, which the next projection reads as well."""
    outputs, inputs = recurrence()
    _, derivation = batched(outputs, inputs)
    state = BATCHED * SIZE * 4
    reasons = {s.rewrite.name: s.reason for s in derivation.steps}
    for name in ("batch shared", "batch sums"):
        assert reasons[name].endswith(f"up to {STEPS * state} bytes of them wait at once, apart {state}")


def test_what_is_copied_waits_beside_its_copy():
    """The second state is returned, so that all are copied to lie side by side: each waits for that."""
    outputs, inputs = recurrence()
    state = BATCHED * SIZE * 4
    second = next(t for t in make_graph(outputs, inputs).nodes if t.name.startswith("tanh"))
    _, derivation = batched([*outputs, second], inputs)
    (step,) = [s for s in derivation.steps if s.rewrite.name == "batch sums"]
    assert f"with {2 * STEPS * state} bytes for copies" in step.reason
    assert step.reason.endswith(f"up to {2 * STEPS * state} bytes of them wait at once, apart {2 * state}")


def test_what_is_given_does_not_wait():
    x, d = (nf.placeholder((STEPS, BATCHED, SIZE), name=n) for n in "xd")
    _, derivation = batched([total([gradient(d[t], x[t]) for t in range(STEPS)])], [x, d])
    (step,) = [s for s in derivation.steps if s.rewrite.name == "batch sums"]
    assert step.reason.endswith("its operands lie side by side")


def test_what_ends_at_a_moment_is_there_in_it():
    assert most([]) == 0 and most([(1, 3, 5), (3, 4, 7), (5, math.inf, 2)]) == 12 and most([(1, 2, 5), (3, 4, 7)]) == 7


@pytest.mark.parametrize("name", ["batch shared", "batch sums"])
def test_each_byte_that_waits_has_a_price(name):
    """From the seconds on that are saved beyond those that have to be, over the bytes that are more."""
    outputs, inputs = recurrence()
    graph = make_graph(outputs, inputs)
    (rewrite,) = [r for r in BATCH.rewrites if r.name == name]
    editor = Editor(graph.roots)
    (match,) = [m for t in editor.computes() for m in rewrite.match(editor, t) if rewrite.legal(editor, m).ok]
    found = rewrite.legal(editor, match)
    more = (STEPS - 1) * BATCHED * SIZE * 4
    least = cost.LONGER if name == "batch sums" else cost.SURE
    assert found.price == pytest.approx(((1 - least) * found.before - found.after) / more, rel=1e-12)
    below = replace(rewrite, price=0.99 * found.price).legal(editor, match)
    assert below.ok and below.after == pytest.approx(found.after + 0.99 * found.price * more, rel=1e-12)
    above = replace(rewrite, price=1.01 * found.price).legal(editor, match)
    paid = f"{more} more cost as much as {1.01 * found.price * more * 1e6:.1f} us where memory is scarce"
    assert not above.ok and above.reason.endswith(paid) and above.reason.startswith("one for 5 would take about ")
    assert replace(rewrite, price=math.inf).legal(editor, match).reason.endswith("memory is too scarce for any")


def test_what_makes_nothing_wait_costs_nothing_at_any_price():
    x, w = nf.placeholder((STEPS, BATCHED, SIZE), name="x"), nf.parameter((SIZE, SIZE), name="w")
    y = nf.stack([projected(x[t], w) for t in range(STEPS)])
    found = [run(make_graph([y], [x]), row)[0].digest for row in (BATCH, priced(BATCH, math.inf))]
    assert found[0] == found[1] and len(contractions(run(make_graph([y], [x]), BATCH)[0])) == 1


@pytest.mark.parametrize("price", [1e-12, 1e-9, math.inf])
def test_values_stay_at_any_price(price):
    apart = 0
    for seed in range(12):
        case = recurrences(seed)
        graph = make_graph(case.roots, list(case.feeds))
        after = run(graph, priced(BATCH, price))[0]
        apart += after.digest != run(graph, BATCH)[0].digest
        for a, b in zip(case.values(graph.outputs), case.values(after.outputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    assert apart > 3 or price < 1e-10

"""Which algorithm is chosen: by what kernels take, from the records or measured."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.graph.algorithms import ALGORITHMS, correlation, strided, whole
from neoflow.loops import default_schedule
from neoflow.roofs import STATED
from neoflow.tune.records import Records
from neoflow.tune.trial import Trial
from neoflow.tuning.choosing import (
    DIRECT,
    ROUNDING,
    applied,
    candidates,
    choose,
    measured,
    recorded,
    small_graph,
    to_measure,
)
from tests.loops.test_template import TWO


@pytest.fixture(scope="module")
def graph():
    """A convolution and its gradients, each a definition of its own."""
    x = nf.placeholder((2, 8, 9, 9), name="x")
    w = nf.placeholder((8, 8, 3, 3), name="w")
    y = nf.nn.functional.conv2d(x, w, padding=1)
    g = nf.placeholder(y.shape, name="g")
    return optimize(make_graph([y, *nf.vjp(y, [x, w], g)], [x, w, g]))


def nodes(kernel):
    """A cost that a test can foretell: what contracts takes a second a multiply-add of a hundred, the rest nothing."""
    flops = [n.definition for n in kernel.nodes if n.definition.reduction_axes]
    return sum(float(np.prod([*d.shape, *(a.extent for a in d.reduction_axes)])) / 100 for d in flops)


@pytest.mark.slow
def test_the_fastest_is_chosen_and_what_rounds_more_only_where_it_is_allowed(graph):
    choices = choose(graph, nodes)
    assert [c.algorithm for c in choices] == ["winograd 2"] * 3
    assert all(list(c.seconds) == [DIRECT, "winograd 2", "im2col"] for c in choices)
    everything = choose(graph, nodes, rounding=256.0)
    assert {c.algorithm for c in everything} == {"winograd 4"}
    assert str(choices[0]).startswith("conv2d: winograd 2, at most 7.11 times the direct sum's roundings (direct ")


def test_what_is_chosen_is_applied(graph):
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype("float32") for t in graph.inputs}
    after = applied(graph, choose(graph, nodes))
    assert sum(t.name.endswith("_products") for t in after.nodes) == 3
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (after, graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_what_is_hardly_faster_stays_direct(graph):
    assert {c.algorithm for c in choose(graph, lambda kernel: 1.0)} == {DIRECT}


def test_a_small_graph_has_what_pads_and_nothing_else_of_the_program():
    x = nf.placeholder((2, 8, 9, 9), name="x")
    w = nf.placeholder((8, 8, 3, 3), name="w")
    graph = optimize(make_graph([nf.nn.functional.conv2d(nf.exp(x), nf.tanh(w), padding=1) * 2.0], [x, w]))
    [t] = [n for n in graph.nodes if not isinstance(correlation(n.definition), str)]
    assert [n.name for n in small_graph(t).nodes] == ["pad", "conv2d"]


def test_what_no_kernel_is_known_of_stays_direct(graph, tmp_path):
    records = Records(tmp_path / "r.sqlite", lambda template: "1")
    choices = choose(graph, recorded(records, TWO))
    assert all(c.algorithm == DIRECT and not c.seconds for c in choices)
    assert str(choices[0]) == "conv2d: direct"


def test_what_is_measured_is_kept_and_not_measured_again(graph, tmp_path):
    asked = []

    def measure(kernel, target, schedules, deadline=None):
        asked.append(kernel.digest)
        return [Trial(s, "ok", nodes(kernel) + 1e-9) for s in schedules]

    records = Records(tmp_path / "r.sqlite", lambda template: "1")
    choices = choose(graph, measured(measure, records, TWO))
    assert [c.algorithm for c in choices] == ["winograd 2"] * 3
    assert len(asked) == len(set(asked)) > 0
    again = Records(tmp_path / "r.sqlite", lambda template: "1")
    assert choose(graph, recorded(again, TWO)) == choices
    changed = Records(tmp_path / "r.sqlite", lambda template: "2")
    assert {c.algorithm for c in choose(graph, recorded(changed, TWO))} == {DIRECT}


def test_a_kernel_that_fails_is_tried_once(graph, tmp_path):
    asked = []

    def measure(kernel, target, schedules, deadline=None):
        asked.append(kernel.digest)
        return [Trial(s, "wrong", reason="test") for s in schedules]

    records = Records(tmp_path / "r.sqlite", lambda template: "1")
    for _ in range(2):
        assert {c.algorithm for c in choose(graph, measured(measure, records, TWO))} == {DIRECT}
    assert len(asked) == len(set(asked))


def test_each_is_a_few_kernels_and_every_one_has_a_default_schedule(graph):
    """One for each transform, the products and the results; what moves channels is one more at most for each."""
    for t, those in candidates(graph, rounding=256.0).items():
        assert [c.name for c in those] == [DIRECT, *(a.name for a in ALGORITHMS if a.form is correlation)]
        for kernels in (c.kernels for c in those):
            assert len(kernels) <= 7
            assert all(default_schedule(k, TWO).template for k in kernels), t.name
    assert ROUNDING < 256.0


@pytest.mark.parametrize("is_changed", [False, True])
def test_what_follows_from_parameters_that_stay_takes_no_time(is_changed):
    """The taps of minimal filtering are transformed once for all calls in inference, at every step in training."""
    x, w = nf.placeholder((1, 8, 10, 10), name="x"), nf.parameter((8, 8, 3, 3), name="w")
    y = nf.nn.functional.conv2d(x, w, padding=1)
    graph = optimize(make_graph([y], [x], {w: w * 0.5} if is_changed else None))
    [(direct, *others)] = candidates(graph).values()
    made = {c.name: [k.nodes[-1].definition.shape for k in c.kernels] for c in others}
    points, taps = (4, 4), (8, 8)
    assert ((*points, *taps) in made["winograd 2"]) == is_changed
    assert len(direct.kernels) == 2  # the padding and the sum


def in_steps(image, taps, **how):
    """The gradient of an image."""
    x, w = nf.placeholder(image, name="x"), nf.placeholder(taps, name="w")
    y = nf.nn.functional.conv2d(x, w, **how)
    g = nf.placeholder(y.shape, name="g")
    return optimize(make_graph(nf.vjp(y, [x], g), [x, w, g]))


def test_all_classes_of_a_gradient_are_judged_together():
    """By products what autodiff split stays so; where calls alone count, one contraction beside its zeros wins."""
    graph = in_steps((2, 8, 12, 12), (8, 8, 3, 3), stride=2, padding=1)
    result = graph.nodes[-1]
    digest = whole(result).definition.digest
    by_products = next(c for c in choose(graph, nodes) if c.digest == digest)
    # of 12 results along either side 6 have one tap and 6 have two; with zeros between all have three
    products = {DIRECT: 18**2, "zeros": 36**2}
    assert by_products.algorithm == DIRECT
    assert by_products.seconds == {name: pytest.approx(n * 2 * 8 * 8 / 100) for name, n in products.items()}
    calls = choose(graph, lambda kernel: 1.0)
    by_calls = next(c for c in calls if c.digest == digest)
    assert str(by_calls) == "d_x: zeros (direct 6000000.0 us, zeros 2000000.0 us)"
    after = applied(graph, calls)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype("float32") for t in graph.inputs}
    assert [t.name for t in after.nodes] == ["g_spread", "d_x"]
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (after, graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_taps_that_do_not_overlap_are_measured_by_classes():
    """Zeros, four times their products, are not even thought to be faster."""
    graph = in_steps((16, 96, 56, 56), (192, 96, 2, 2), stride=2)
    ((direct, *others),) = to_measure(graph, ROUNDING, STATED)
    assert len(direct.nodes) == 1 and not isinstance(strided(direct.nodes[0].definition), str)
    assert [k.nodes[-1].definition.shape for k in others] == [(16, 96, 28, 28)] * 4


def test_a_small_graph_has_what_a_whole_is_put_together_of():
    graph = in_steps((2, 8, 12, 12), (8, 8, 3, 3), stride=2, padding=1)
    small = small_graph(graph.nodes[-1])
    assert {t.name for t in small.nodes} == {t.name for t in graph.nodes}
    assert whole(small.nodes[-1]).definition is whole(graph.nodes[-1]).definition

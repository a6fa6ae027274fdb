"""Forms of parts: the same values, the best of them counted, and taken where a program is compiled."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import canonicalize, is_contraction, make_graph, optimize
from neoflow.graph.algorithms import BY_NAME
from neoflow.nn import functional as F
from neoflow.partition import Subgraph, partition
from neoflow.rewriting.estimates import Estimate
from neoflow.rewriting.forms import IN_PLACE, Forms, computed_by, in_place
from neoflow.rewriting.strategies import AFTER, FORMS, RULES, STRATEGIES, TOGETHER, searched
from neoflow.superopt import Limits, Sites, standard
from neoflow.target import Target

TARGET = Target("cpu", "cascadelake", 1, 64, 1 << 21)
LASTS = Forms(TARGET, may_last=lambda kernel: True)


def image(learns=False, side=14):
    """Two convolutions of one image, and what is written of them: the loss where something learns."""
    x = nf.placeholder((1, 16, side, side), name="x")
    v, w = (nf.parameter((16, 16, k, k), init=np.full((16, 16, k, k), 0.1), name=f"w{k}") for k in (3, 1))
    y = nf.relu(F.conv2d(x, v, None, 1, 1)) + F.conv2d(x, w, None)
    return [y], [x], ({w: w * 0.5} if learns else None)


def test_every_form_has_the_same_values():
    outputs, inputs, _ = image()
    graph = optimize(canonicalize(make_graph(outputs, inputs)))
    x = np.random.default_rng(0).standard_normal(inputs[0].shape).astype(np.float32)
    expected = nf.evaluate(graph.outputs, {inputs[0]: x})[0]
    names = set()
    for chosen in LASTS.each(graph):
        formed, cut = LASTS.take(graph, partition, chosen)
        names.update(chosen.values())
        assert cut.calls
        np.testing.assert_allclose(nf.evaluate(formed.outputs, {inputs[0]: x})[0], expected, rtol=1e-3, atol=1e-4)
    assert names == {"winograd 2", "winograd 4", "im2col", IN_PLACE}


def test_a_step_that_learns_rounds_less():
    outputs, inputs, _ = image()
    graph = optimize(canonicalize(make_graph(outputs, inputs)))
    names = {name for chosen in LASTS.each(graph, learns=True) for name in chosen.values()}
    assert names == {"winograd 2", "im2col", IN_PLACE}
    none = Forms(TARGET, tries=False)
    assert list(none.each(graph)) == [{}]


def seconds(kernel: Subgraph, direct: float) -> float:
    """A convolution directly takes so long, all else a second."""
    taps = [n for n in kernel.nodes if is_contraction(n.definition) and len(n.definition.reduction_axes) == 3]
    return direct if taps else 1.0


@pytest.mark.parametrize(("direct", "is_winograd"), [(100.0, True), (1.1, False)])
def test_the_best_form_counts(direct, is_winograd):
    """What is made of weights alone is prepared; in a step that changes them it is not."""
    outputs, inputs, _ = image()
    graph = canonicalize(make_graph(outputs, inputs))
    estimate = Estimate(partition, partial(seconds, direct=direct), forms=LASTS)
    chosen = estimate.chosen(graph)
    assert (set(chosen.values()) & set(BY_NAME) != set()) == is_winograd
    kernels = estimate.whole(graph, chosen)
    assert estimate.take(kernels) == pytest.approx(estimate(graph).seconds)
    assert (estimate(graph).seconds < estimate.usual(graph).seconds) == is_winograd
    learning = Estimate(partition, partial(seconds, direct=direct), changed=graph.parameters, forms=LASTS)
    assert learning(graph).seconds >= estimate(graph).seconds


def filled(kernel: Subgraph) -> float:
    """Minimal filtering takes 5 seconds for up to 32 channels; directly 16 channels take 4, and 32 take 9."""
    total = 0.01
    for definition in (n.definition for n in kernel.nodes if is_contraction(n.definition)):
        is_direct = any(a.extent == 3 for a in definition.reduction_axes)
        total += {16: 4.0, 32: 9.0}[definition.shape[1]] if is_direct else 5.0
    return total


def test_only_rules_and_forms_together_find_the_best():
    """Two convolutions of one image become one, which directly takes longer than both, and by minimal filtering less;
    for the written ones minimal filtering does not pay."""
    x = nf.placeholder((1, 16, 16, 16), name="x")
    kernels = [nf.parameter((16, 16, 3, 3), name=f"w{n}") for n in range(2)]
    graph = canonicalize(make_graph([nf.concat([F.conv2d(x, w, None) for w in kernels], axis=1)], [x]))
    limits, sites = Limits(graphs=40, widest=1.6), Sites(standard().rules)

    def estimate(forms: Forms) -> Estimate:
        return Estimate(partition, filled, {"batch"}, forms=forms)

    found = {s: searched(s, graph, sites, estimate, LASTS, limits) for s in STRATEGIES}
    assert {s: round(f.after.seconds) for s, f in found.items()} == {RULES: 8, FORMS: 8, AFTER: 8, TOGETHER: 5}
    best = found[TOGETHER]
    assert best.steps and {name for _, name in best.forms} & set(BY_NAME)
    assert best.replay(graph).digest == best.graph.digest


def test_definitions_that_are_not_there_are_left():
    outputs, inputs, _ = image()
    graph = optimize(canonicalize(make_graph(outputs, inputs)))
    assert computed_by(graph, {"0" * 64: "winograd 2", "1" * 64: IN_PLACE}).digest == graph.digest
    assert in_place({"a": IN_PLACE, "b": "im2col"}) == {"a"}

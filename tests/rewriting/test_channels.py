"""Images with their channels last: the same values, weights moved once, nothing else touched."""

import numpy as np

import neoflow as nf
from neoflow.expr.tensor import Compute
from neoflow.graph import canonicalize, make_graph, optimize
from neoflow.nn import functional as F
from neoflow.partition import partition, prepared_first
from neoflow.rewriting.channels import Laid, channels_last, images, last_of
from tests.chance import Chance


def drawn(make, name, *shape):
    return nf.parameter(shape, name=name, init=lambda shape, rng: rng.standard_normal(shape))


def network(seed):
    """A random network of what images go through: convolutions of all kinds, poolings, joins, norms, and a row of
    scores; and its image."""
    make = Chance(np.random.default_rng(seed))
    batch, channels, size = make.between(1, 2), make.pick((3, 4, 6)), make.between(9, 13)
    x = nf.placeholder((batch, channels, size, size + make.between(0, 2)), name="x")
    y = nf.relu(F.conv2d(x, drawn(make, "first", 4, channels, 3, 3), drawn(make, "bias", 4), 1, 1))
    for n in range(make.between(1, 4)):
        count = y.shape[1]
        kind = make.pick(("conv", "wide", "depthwise", "groups", "pool", "mean", "join", "scale"))
        if kind == "conv":
            y = nf.relu(F.conv2d(y, drawn(make, f"c{n}", 4, count, 1, 1)))
        elif kind == "wide":
            y = F.conv2d(y, drawn(make, f"w{n}", 6, count, 3, 3), None, make.pick((1, 2)), 1)
        elif kind == "depthwise":
            y = F.conv2d(y, drawn(make, f"d{n}", count, 1, 3, 3), None, 1, 1, groups=count)
        elif kind == "groups":
            y = F.conv2d(y, drawn(make, f"g{n}", 4, count // 2, 3, 3), None, 1, 1, groups=2)
        elif kind == "pool":
            y = F.max_pool(y, 3, 1, 1)
        elif kind == "mean":
            y = F.avg_pool(y, 3, 1, 1, count_include_pad=False)
        elif kind == "join":
            y = nf.concat([y, nf.tanh(y)], axis=1)
        else:
            y = y * nf.reshape(drawn(make, f"s{n}", count), (1, count, 1, 1)) + y
    scores = F.linear(F.global_avg_pool(y), drawn(make, "out", 3, y.shape[1]))
    return (make.pick((scores, y)) if make.chance(0.3) else scores), x


def law(seed):
    """How many images of a random network lie otherwise; the values are as they were."""
    y, x = network(seed)
    graph = canonicalize(make_graph([y], [x]))
    after = channels_last(graph)
    after.check()
    assert after.inputs == graph.inputs and [t.shape for t in after.outputs] == [t.shape for t in graph.outputs]
    rng = np.random.default_rng(seed)
    feeds = {t: rng.standard_normal(t.shape) for t in (*graph.inputs, *graph.parameters)}
    for g in (after, optimize(after)):
        [a], [b] = (nf.evaluate(list(h.outputs), feeds, dtype="float64") for h in (g, graph))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    return len(images(graph))


def test_values_stay_with_channels_last():
    assert sum(law(seed) for seed in range(6)) > 20


def test_a_network_runs_as_it_did_with_channels_last():
    y, x = network(3)
    laid = channels_last(canonicalize(make_graph([y], [x])))
    value = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    [a] = nf.compile(list(laid.outputs), list(laid.inputs))(value)
    [b] = nf.compile([y], [x])(value)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


def test_a_tensor_that_lies_so_has_its_elements_elsewhere():
    order = last_of(4, 1)
    assert order.shape((2, 3, 5, 7)) == (2, 5, 7, 3)
    assert order.indices(("b", "c", "h", "w")) == ("b", "h", "w", "c")
    assert [a.extent for a in order.points((2, 3, 5, 7))] == [2, 3, 5, 7]


def test_weights_that_are_read_along_channels_are_moved_once():
    x, w = nf.placeholder((1, 64, 12, 12), name="x"), drawn(None, "w", 64, 1, 3, 3)
    y = F.global_avg_pool(F.conv2d(x, w, None, 1, 1, groups=64))
    graph = optimize(channels_last(canonicalize(make_graph([y], [x]))))
    assert any(t.name == "w_moved" and t.shape[-1] == 64 for t in graph.nodes)
    cut = partition(graph)
    assert "goes along it in vectors, and packs nothing" in "\n".join(map(str, cut.decisions))
    calls, prepared = prepared_first(graph, cut.calls, cut.views)
    assert [c.name for c in calls[:prepared]] == ["w_moved"]


def test_what_has_no_windows_or_learns_stays_as_it_is():
    x, w = nf.placeholder((2, 4, 6, 6), name="x"), drawn(None, "w", 4, 4, 3, 3)
    y = F.conv2d(x, w, None, 1, 1)
    learning = make_graph([nf.sum(y)], [x], {w: w - 0.1 * nf.grad(nf.sum(y), [w])[0]})
    scores = make_graph([nf.exp(nf.expr("s[b,h,i,j] = sum(x[b,h,i,e] * x[b,h,j,e])", x=x)) + 1.0], [x])
    for graph in map(canonicalize, (learning, scores)):
        assert channels_last(graph) is graph
    inside = canonicalize(make_graph([nf.sum(nf.relu(y))], [x]))
    assert {t.shape for t in images(inside)} >= {(2, 4, 6, 6)}
    assert all(isinstance(t, Compute) for t in images(inside))


def test_a_search_says_so_and_does_it_again():
    y, x = network(5)
    graph = canonicalize(make_graph([y], [x]))
    assert str(Laid()) == "the channels of images lie last"
    assert make_key(Laid().replay(graph)) == make_key(channels_last(graph))


def make_key(graph):
    return [t.structure for t in graph.outputs]

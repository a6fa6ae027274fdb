"""Tensors that lie in another order: values stay whatever lies how, an update in that order is the update."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.ir import Scatter
from neoflow.expr.tensor import Compute, Parameter, Placeholder
from neoflow.graph import Layout, Packed, lay, make_graph, optimize, plain
from neoflow.graph.laid import kin
from tests.chance import Chance
from tests.graph.programs import PROGRAMS


def some_layout(make, shape):
    """A layout of a shape; None where no width divides any extent."""
    dims = [(d, w) for d, n in enumerate(shape) for w in range(1, n) if n % w == 0]
    if not dims:
        return None
    d, width = make.pick(dims)
    rest = make.shuffled([n for n in range(len(shape)) if n != d])
    at = make.between(0, len(rest))
    return Layout(tuple(rest[:at]), d, tuple(rest[at:]), width)


def law(seed):
    """How many tensors lie otherwise in random programs, each computed as before."""
    count, make = 0, Chance(np.random.default_rng(seed))
    for program in PROGRAMS:
        case = program(seed)
        graph = optimize(make_graph(case.roots, list(case.feeds)))
        drawn = {
            t: layout
            for t in graph.nodes
            if isinstance(t, Compute) and not isinstance(t.definition.body, Scatter) and make.chance(0.5)
            if (layout := some_layout(make, t.shape)) is not None
        }
        after, now = lay(graph, drawn)
        after.check()
        assert all(now[t].shape == layout.shape(t.shape) for t, layout in drawn.items())
        for a, b in zip(case.values(graph.outputs), case.values(after.outputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"{program}, seed {seed}")
        count += len(drawn)
    return count


def learning(seed):
    """A network of random sizes, an optimizer of every kind, and its parameters."""
    make = Chance(np.random.default_rng(seed))
    rows, first, second = make.between(2, 5), make.pick((4, 6, 8)), make.pick((4, 6, 8))
    x = nf.placeholder((rows, first), name="x")
    w = nf.parameter((first, second), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    v = nf.parameter((second, 4), name="v", init=lambda shape, rng: rng.standard_normal(shape))
    loss = nf.mean((nf.tanh(x @ w) @ v) ** 2)
    adam = nf.optim.Adam(lr=0.1, weight_decay=make.pick((0.0, 0.1)))
    optimizer = make.pick((nf.optim.SGD(lr=0.1), nf.optim.SGD(lr=0.1, momentum=0.9), adam))
    updates = optimizer.updates([w, v], nf.grad(loss, [w, v]))
    feeds = {x: make.rng.standard_normal(x.shape)}
    graph = optimize(make_graph([loss], [x], updates))
    feeds.update({p: make.rng.uniform(1, 2, p.shape).astype(p.dtype) for p in graph.parameters})
    return graph, feeds, (w, v), make


def training_law(seed):
    """How many tensors lie otherwise with parameters that do: the new values are the same ones, packed."""
    graph, feeds, parameters, make = learning(seed)
    drawn = {}
    for p in parameters:
        family = kin(graph, p)
        assert not hasattr(family, "reason"), family
        drawn.update(dict.fromkeys(family, some_layout(make, p.shape)))
    after, now = lay(graph, drawn)
    after.check()
    assert [plain(p) for p, _ in after.updates] == [p for p, _ in graph.updates]
    packed = {now[t]: drawn[t].pack(a) if t in drawn else a for t, a in feeds.items()}
    before = nf.evaluate(list(graph.roots), feeds, dtype="float64")
    found = nf.evaluate(list(after.roots), packed, dtype="float64")
    lying = [None] * len(graph.outputs) + [drawn.get(p) for p, _ in graph.updates]
    for a, b, layout in zip(before, found, lying, strict=True):
        np.testing.assert_allclose(a, b if layout is None else layout.unpack(b), rtol=1e-9, atol=1e-9)
    return len(drawn)


def test_values_stay_whatever_lies_how():
    assert law(0) >= 20
    assert sum(map(training_law, range(4))) >= 20


@pytest.mark.slow
def test_values_stay_in_many_random_programs():
    assert sum(map(law, range(1000, 1150))) >= 3000


def test_layouts_are_bijections_of_arrays():
    make = Chance(np.random.default_rng(0))
    for _ in range(50):
        shape = tuple(make.between(2, 8) for _ in range(make.between(1, 4)))
        if (layout := some_layout(make, shape)) is None:
            continue
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        packed = layout.pack(array)
        assert packed.shape == layout.shape(shape) and layout.plain_shape(packed.shape) == shape
        np.testing.assert_array_equal(layout.unpack(packed), array)
        x = nf.placeholder(shape, name="x")
        np.testing.assert_array_equal(nf.evaluate([layout.packed(x)], {x: array})[0], packed)


def trained(new):
    """A parameter whose new value is `new` of it and its gradient."""
    x, w = nf.placeholder((4, 8), name="x"), nf.parameter((8, 12), name="w")
    loss = nf.sum(nf.tanh(x @ w))
    return x, w, loss, new(w, nf.grad(loss, [w])[0])


def test_an_update_lies_as_its_parameter_down_to_the_gradient():
    x, w, loss, new = trained(lambda w, d: w - 0.1 * d)
    graph = make_graph([loss], [x], {w: new})
    layout = Layout((), 1, (0,), 4)
    family = kin(graph, w)
    after, now = lay(graph, dict.fromkeys(family, layout))
    (p, value), gradient = (
        after.updates[0],
        next(t for t in family if isinstance(t, Compute) and t.definition.has_reduction),
    )
    assert isinstance(p, Packed) and p.of is w and p.shape == value.shape == (3, 8, 4)
    assert now[gradient].shape == (3, 8, 4) and f"{now[gradient]}".count("//") == 0
    assert all("_packed" not in t.name for t in after.nodes), "nothing is packed"


def test_what_is_returned_stays_as_it_is():
    x, w, loss, new = trained(lambda w, d: w - 0.1 * d)
    returned = kin(make_graph([loss, new], [x], {w: new}), w)
    assert "is given a new value that the program returns too, or does not compute" in returned.reason
    given = nf.placeholder((8, 12), name="given")
    assert "does not compute" in kin(make_graph([loss], [x, given], {w: given}), w).reason


def test_what_looks_parameters_up_is_no_sum():
    x, w, loss, new = trained(lambda w, d: w - 0.1 * d)
    ids = nf.placeholder((3,), "int64", name="ids")
    rows = nf.compute((3, 12), lambda b, j: w[ids[b], j], name="rows")
    assert kin(make_graph([loss, rows], [x, ids], {w: new}), w).reason == "w is read by rows, which is no sum"


def test_a_gradient_that_is_returned_is_read_where_it_lies():
    x, w, loss, _ = trained(lambda w, d: w)
    d = nf.grad(loss, [w])[0]
    graph = make_graph([loss, d], [x], {w: w - 0.1 * d})
    family = kin(graph, w)
    assert d not in family and graph.updates[0][1] in family
    feeds = {x: np.ones(x.shape, np.float32), w: np.ones(w.shape, np.float32)}
    layout = Layout((), 0, (1,), 2)
    after, now = lay(graph, dict.fromkeys(family, layout))
    packed = {x: feeds[x], now[w]: layout.pack(feeds[w])}
    for a, b in zip(nf.evaluate(list(graph.outputs), feeds), nf.evaluate(list(after.outputs), packed), strict=True):
        np.testing.assert_allclose(a, b)
    assert isinstance(now[w], Parameter) and isinstance(x, Placeholder)

"""Layers: their parameters, that they are the functional operators, and the statistics they keep."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F
from neoflow.nn import init


def values(layer, seed=0):
    rng = np.random.default_rng(seed)
    return {p: init.initial_value(p, rng) for p in layer.parameters()}


CASES = [
    (lambda: nn.Linear(4, 3), lambda layer, x: F.linear(x, *layer.parameters()), (2, 4)),
    (
        lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        lambda layer, x: F.conv2d(x, *layer.parameters(), stride=2, padding=1, groups=2),
        (2, 4, 7, 7),
    ),
    (
        lambda: nn.CapsuleConv(3, 2, 3, side=(2, 3), stride=2),
        lambda layer, x: F.capsule_conv(x, *layer.parameters(), stride=2),
        (2, 3, 7, 7, 4, 2),
    ),
    (lambda: nn.LayerNorm(5), lambda layer, x: F.layer_norm(x, *layer.parameters()), (2, 3, 5)),
    (
        lambda: nn.MultiHeadAttention(6, 3),
        lambda layer, x: F.multi_head_attention(x, *layer.parameters(), heads=3),
        (2, 4, 6),
    ),
    (lambda: nn.GRUCell(3, 4), lambda layer, x: F.gru_cell(x, nf.ones((2, 4)), *layer.parameters()), (2, 3)),
    (
        lambda: nn.LSTMCell(3, 4),
        lambda layer, x: F.lstm_cell(x, *[nf.ones((2, 4))] * 2, *layer.parameters())[0],
        (2, 3),
    ),
]


@pytest.mark.parametrize(("make", "functional", "shape"), CASES)
def test_layers_are_the_operators(make, functional, shape):
    layer, x = make(), nf.placeholder(shape, name="x")
    state = {nn.GRUCell: 1, nn.LSTMCell: 2}.get(type(layer), 0)
    y = layer(x, *[nf.ones((2, 4))] * state)
    y = y[0] if isinstance(y, tuple) else y
    feeds = {**values(layer), x: np.random.default_rng(1).standard_normal(shape)}
    one, other = nf.evaluate([y, functional(layer, x)], feeds, dtype="float64")
    np.testing.assert_array_equal(one, other)
    assert len({p.name for p in layer.parameters()}) == len(layer.parameters())


def test_embedding():
    layer, ids = nn.Embedding(5, 3), nf.placeholder((2,), "int64", name="ids")
    feeds = {**values(layer), ids: np.array([4, 1])}
    np.testing.assert_array_equal(nf.evaluate(layer(ids), feeds)[0], feeds[layer.weight][[4, 1]])


def test_sequential_trains_and_keeps_statistics():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), nf.relu, nn.Linear(8, 2, name="out"))
    x = nf.placeholder((6, 4), name="x")
    y, still = net(x), net(x, training=False)
    norm = net.layers[1]
    assert [p.name for p in net.parameters()] == [
        "linear.weight", "linear.bias", "norm.gamma", "norm.beta", "out.weight", "out.bias"
    ]  # fmt: skip
    assert list(net.updates()) == [norm.running_mean, norm.running_variance]
    feeds = {**values(net), x: np.random.default_rng(1).standard_normal((6, 4))}
    feeds |= {p: init.initial_value(p) for p in net.updates()}
    before = nf.evaluate(net.layers[0](x), feeds, dtype="float64")[0]
    mean, variance = nf.evaluate(list(net.updates().values()), feeds, dtype="float64")
    np.testing.assert_allclose(mean, 0.1 * before.mean(0))
    np.testing.assert_allclose(variance, 0.9 + 0.1 * before.var(0, ddof=1))
    nf.check_grad(y, net.parameters(), feeds)
    nf.check_grad(still, net.parameters(), feeds)


def test_values_follow_the_generator():
    p = nf.parameter((300, 200), init=init.fan_in(2**0.5))
    one, same, other = (init.initial_value(p, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.dtype == np.float32 and (one != other).all()
    np.testing.assert_allclose(one.std(), np.sqrt(2 / 200), rtol=0.02)
    fixed = nf.parameter((3,), "float64", init=init.seeded(init.normal(), 5))
    a, b = init.initial_value(fixed), init.initial_value(fixed, np.random.default_rng(9))
    np.testing.assert_array_equal(a, b)
    assert a.dtype == np.float64
    assert not init.initial_value(nf.parameter((2,))).any()

"""Random networks trained in ways that must come to the same: incomplete batches, accumulated ones, resumed runs, and
the inference form beside the layers called with training off. Run by the interpreter, in float64."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F
from neoflow.runtime.parameters import get_value
from neoflow.runtime.store import STORE
from tests.runtime.programs import InterpretedTrainer

SLOW, FAST = range(100), range(3)


class Net:
    """A network that follows from a seed alone, for batches of any size."""

    def __init__(self, seed, batch, norm=True, drop=True):
        rng = np.random.default_rng(seed)
        self.batch, width, length = batch, int(rng.integers(2, 5)), int(rng.integers(1, 4))
        self.x = nf.placeholder((batch, length, width), "float64", name="x")
        self.labels = nf.placeholder((batch, length), "int64", name="labels")
        layers = []
        for _ in range(int(rng.integers(1, 4))):
            layers += self.block(rng, width, length, norm, drop)
        self.net = nn.Sequential(*layers, nn.Linear(width, 3, dtype="float64"))
        self.classes = rng.integers(0, 3, (64, length))
        self.samples = rng.standard_normal((64, length, width))
        self.scores = self.net(self.x)
        self.still = self.net(self.x, training=False)
        loss = F.cross_entropy(self.scores, self.labels)
        if rng.random() < 0.5:
            first = self.net.parameters()[0]
            loss = loss + nf.sum(first * first) * 0.01
        if rng.random() < 0.3:
            loss = loss * 2.0 + nf.mean(nf.sum(self.scores * self.scores, axis=[1, 2])) / 7.0
        self.loss, self.parameters = loss, self.net.parameters()

    @staticmethod
    def block(rng, width, length, norm, drop):
        def merge(x):
            return nf.reshape(x, (x.shape[0] * length, width))

        def part(x):
            return nf.reshape(x, (x.shape[0] // length, length, width))

        def turned(x):
            return nf.transpose(nf.transpose(x, (2, 0, 1)), (1, 2, 0))

        kinds = [
            [nn.Linear(width, width, dtype="float64")],
            [merge, nn.Linear(width, width, dtype="float64"), nf.tanh, part],
            [nn.LayerNorm(width, dtype="float64")],
            [turned, nf.sigmoid],
            [lambda x: x + nf.mean(x, axis=1, keepdims=True)],
            [lambda x: x * F.softmax(x)],
        ]
        kinds += [[nn.BatchNorm(length, dtype="float64")], [merge, nn.BatchNorm(width, dtype="float64"), part]] * norm
        kinds += [[nn.Dropout(0.4)]] * drop
        chosen = rng.choice(len(kinds), 3)
        return [f for n in dict.fromkeys(chosen) for f in kinds[n]]

    def trainer(self, **options):
        options = {"optimizer": nf.optim.SGD(lr=0.1, momentum=0.5), "progress": False, **options}
        run = InterpretedTrainer(self.loss, self.parameters, inputs=[self.x, self.labels], **options)
        for p in run.all_parameters:
            STORE.initialize(p, 7)
        return run

    def cut(self, sizes):
        ends = np.cumsum(sizes)
        return [(self.samples[e - n : e], self.classes[e - n : e]) for n, e in zip(sizes, ends, strict=True)]


def values(run):
    return np.concatenate([get_value(p).ravel() for p in run.parameters])


def incomplete(seed):
    """A batch of n in a program for more, and in one for n: the same loss and the same step."""
    rng = np.random.default_rng((seed, 1))
    n = int(rng.integers(2, 6))
    more, exact = Net(seed, n + int(rng.integers(1, 5)), drop=False), Net(seed, n, drop=False)
    runs = [more.trainer(), exact.trainer()]
    losses = [run.fit(net.cut([n]), 2).losses for run, net in zip(runs, (more, exact), strict=True)]
    np.testing.assert_allclose(*losses, rtol=1e-8)
    np.testing.assert_allclose(values(runs[0]), values(runs[1]), rtol=1e-6, atol=1e-10)


def accumulated(seed):
    """A large batch, and the same samples in pieces of any sizes: the same loss and the same step."""
    rng = np.random.default_rng((seed, 2))
    sizes = [int(n) for n in rng.integers(1, 5, int(rng.integers(2, 5)))]
    small = Net(seed, max(sizes), norm=False, drop=False)
    large = Net(seed, sum(sizes), norm=False, drop=False)
    runs = [small.trainer(accumulate=len(sizes)), large.trainer()]
    losses = [runs[0].fit(small.cut(sizes), 2).losses, runs[1].fit(large.cut([sum(sizes)]), 2).losses]
    np.testing.assert_allclose(*losses, rtol=1e-8)
    np.testing.assert_allclose(values(runs[0]), values(runs[1]), rtol=1e-6, atol=1e-10)


def inferred(seed):
    """The inference form of scores and of the loss is the network called with training off."""
    net = Net(seed, 4)
    run = net.trainer()
    run.fit(net.cut([4, 4, 3]), 1)
    feeds = {p: get_value(p) for p in (*net.parameters, *net.net.state())}
    feeds |= {net.x: net.samples[:4], net.labels: net.classes[:4]}
    np.testing.assert_array_equal(*nf.evaluate([nn.inference(net.scores), net.still], feeds))
    (expected,) = nf.evaluate([net.still], feeds)
    np.testing.assert_allclose(run.predict(net.scores, net.samples[:11])[:4], expected, rtol=1e-12)
    assert run.predict(net.scores, net.samples[:11]).shape == (11, *expected.shape[1:])
    one, other = run.evaluate(net.cut([4, 4, 3]))["loss"], run.evaluate(net.cut([3, 4, 4]))["loss"]
    assert one == pytest.approx(other, rel=1e-10)


def resumed(seed, folder):
    """A run that stopped after any step and was resumed gives the bits of one that did not."""
    rng = np.random.default_rng((seed, 3))
    accumulate, stop = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    sizes = [int(n) for n in rng.integers(2, 5, 6)]

    def run(**options):
        net = Net(seed, 4)
        return net, net.trainer(accumulate=accumulate, **options)

    net, straight = run()
    whole = straight.fit(net.cut(sizes), 3).losses
    net, first = run(checkpoint=folder)
    losses = first.fit(net.cut(sizes), 3, steps=stop).losses
    net, again = run(checkpoint=folder)
    again.resume()
    assert losses + again.fit(net.cut(sizes), 3).losses == whole
    np.testing.assert_array_equal(values(again), values(straight))


@pytest.mark.parametrize("law", [incomplete, accumulated, inferred])
def test_a_few(law):
    for seed in FAST:
        law(seed)


@pytest.mark.slow
@pytest.mark.parametrize("law", [incomplete, accumulated, inferred])
def test_many(law):
    for seed in SLOW:
        law(seed)


def test_a_few_resumed(tmp_path):
    for seed in FAST:
        resumed(seed, tmp_path / str(seed))


@pytest.mark.slow
def test_many_resumed(tmp_path):
    for seed in SLOW:
        resumed(seed, tmp_path / str(seed))

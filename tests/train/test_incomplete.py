"""Incomplete batches and steps of several batches: the loss and its gradients are means over the samples there are."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError, RuntimeFault, nn
from neoflow.data import Batches
from neoflow.models import build_model
from neoflow.nn import functional as F
from neoflow.runtime.parameters import get_value, set_value
from neoflow.train.samples import Counted, MixedSamples, sample_dimensions, weighted
from tests.runtime.programs import InterpretedTrainer, Softmax, batches, dataset

BOTH = [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)]


class Regression:
    """A network of any batch size with the same first values, its samples x and labels."""

    rng = np.random.default_rng(8)
    x, labels = rng.standard_normal((24, 5)).astype(np.float32), rng.integers(0, 3, 24)

    def __init__(self, batch, dtype="float32", loss="mean", norm=False):
        self.x = nf.placeholder((batch, 5), dtype, name="x")
        self.labels = nf.placeholder((batch,), "int64", name="labels")
        parts = [nn.Linear(5, 4, dtype=dtype), nf.tanh, nn.Linear(4, 3, dtype=dtype)]
        self.net = nn.Sequential(*parts[:1], *([nn.BatchNorm(4, dtype=dtype)] if norm else []), *parts[1:])
        self.scores = self.net(self.x)
        self.parameters = self.net.parameters()
        penalty = nf.sum(self.parameters[0] * self.parameters[0]) * 0.1
        self.loss = F.cross_entropy(self.scores, self.labels) + penalty

    def trainer(self, kind=InterpretedTrainer, **options):
        options = {"optimizer": nf.optim.Adam(lr=0.05), "progress": False, **options}
        return kind(self.loss, self.parameters, inputs=[self.x, self.labels], **options)

    @classmethod
    def data(cls, *sizes, dtype="float32"):
        ends = np.cumsum(sizes)
        return [(cls.x[e - n : e].astype(dtype), cls.labels[e - n : e]) for n, e in zip(sizes, ends, strict=True)]


def values(model):
    return np.concatenate([get_value(p).ravel() for p in model.parameters])


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("norm", [False, True])
def test_an_incomplete_batch_is_the_mean_over_its_samples(kind, norm):
    """A program for 6 samples, fed 6, 4 and 1 (2), makes the steps of programs for 6, 4 and 1 (2)."""
    sizes = (6, 4, 2 if norm else 1)
    data = Regression.data(*sizes, dtype="float64")
    whole = Regression(6, "float64", norm=norm)
    run = whole.trainer(kind, optimizer=nf.optim.SGD(lr=0.1))
    records = []
    history = run.fit(data, 1, on_step=records.append)
    assert [r.samples for r in records] == list(sizes)
    losses, at = [], None
    for size, batch in zip(sizes, data, strict=True):
        one = Regression(size, "float64", norm=norm)
        for p, value in zip(one.parameters, at or (), strict=bool(at)):
            set_value(p, value)
        losses += one.trainer(optimizer=nf.optim.SGD(lr=0.1)).fit([batch], 1).losses
        at = [get_value(p) for p in one.parameters]
    np.testing.assert_allclose(history.losses, losses, rtol=1e-9)
    np.testing.assert_allclose(values(whole), np.concatenate([a.ravel() for a in at]), rtol=1e-8, atol=1e-12)
    mean = np.average(losses, weights=sizes)
    assert history.epochs[0].training["loss"] == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("kind", BOTH)
def test_accumulated_batches_are_one_large_batch(kind):
    """Steps of 6 + 6 + 3, and of 9, by a program for 6 are those by programs for 15 and 9."""
    small, data = Regression(6), Regression.data(6, 6, 3, 6, 3)
    history = small.trainer(kind, accumulate=3).fit(data, 2)
    losses, large = [], Regression(15)
    run = large.trainer(kind)
    losses = run.fit(Regression.data(15, 9), 2).losses
    np.testing.assert_allclose(history.losses, losses, rtol=2e-5)
    np.testing.assert_allclose(values(small), values(large), rtol=2e-3, atol=2e-4)
    assert len(history.losses) == 4 and run.position.taken == 0


def test_accumulated_gradients_are_exact_within_rounding():
    """One SGD step in float64: 1e-12 apart from the step of the large batch, however the samples are cut."""
    large = Regression(24, "float64")
    large.trainer(optimizer=nf.optim.SGD(lr=0.1)).fit(Regression.data(24, dtype="float64"), 1)
    for sizes in ((8, 8, 8), (8, 8, 7, 1), (5, 8, 3, 8)):
        small = Regression(8, "float64")
        run = small.trainer(optimizer=nf.optim.SGD(lr=0.1), accumulate=len(sizes))
        run.fit(Regression.data(*sizes, dtype="float64"), 1)
        np.testing.assert_allclose(values(small), values(large), rtol=1e-11, atol=1e-13)
        assert run.position.step == 1 and run.position.epoch == 1


def test_accumulation_resumes_and_its_metrics_are_means(tmp_path):
    def run(**options):
        return Softmax().trainer(accumulate=2, **options)

    whole, records = run(), []
    losses = whole.fit(batches(), 4, on_step=records.append).losses
    assert len(losses) == 12 and {r.samples for r in records} == {12}
    assert all(0 <= r.values["accuracy"] <= 1 for r in records)
    first = run(checkpoint=tmp_path).fit(batches(), 4, steps=5).losses
    again = run(checkpoint=tmp_path)
    again.resume()
    assert first + again.fit(batches(), 4).losses == losses
    with pytest.raises(ConfigError, match="a step accumulates at least 1 batch, not 0"):
        Softmax().trainer(accumulate=0)


def test_the_last_batch_of_an_epoch_may_be_kept():
    data = Batches(dataset(), 6, keep_last=True)
    assert len(data) == 7 and [len(y) for _, y in data] == [6] * 6 + [4]
    records = []
    run = Softmax().trainer()
    history = run.fit(Batches(dataset(), 6, keep_last=True), 2, on_step=records.append)
    assert [r.samples for r in records] == ([6] * 6 + [4]) * 2
    weights = [r.samples for r in records[7:]]
    mean = np.average([r.values["accuracy"] for r in records[7:]], weights=weights)
    assert history.epochs[1].training["accuracy"] == pytest.approx(mean)


def test_batches_may_be_a_data_set_or_a_function(tmp_path):
    kept = Batches(dataset(), 6, seed=5, keep_last=True)
    losses = Softmax().trainer(seed=5).fit(kept, 2).losses
    assert Softmax().trainer(seed=5).fit(dataset(), 2).losses == losses
    first = Softmax().trainer(seed=5, checkpoint=tmp_path).fit(dataset(), 2, steps=9).losses
    again = Softmax().trainer(seed=5, checkpoint=tmp_path)
    again.resume()
    assert first + again.fit(dataset(), 2).losses == losses
    pieces = list(batches())
    assert Softmax().trainer().fit(lambda: iter(pieces), 2).losses == Softmax().trainer().fit(pieces, 2).losses


def test_resuming_among_incomplete_batches(tmp_path):
    def data():
        return Batches(dataset(), 6, keep_last=True)

    whole = Softmax().trainer().fit(data(), 2)
    first = Softmax().trainer(checkpoint=tmp_path).fit(data(), 2, steps=10)
    again = Softmax().trainer(checkpoint=tmp_path)
    again.resume()
    rest = again.fit(data(), 2)
    assert first.losses + rest.losses == whole.losses and rest.epochs[-1].training == whole.epochs[-1].training


def test_samples_that_do_not_stay_apart():
    x = nf.placeholder((6, 5), name="x")
    mixed = [
        nf.max(x, axis=0),
        x[::-1],
        x[:3],
        x[0],
        nf.expr("y[i,j] = sum[k](x[i,k] * x[j,k])", x=x),
        nf.max(nf.sum(x, axis=1)),
    ]
    for t in mixed:
        with pytest.raises(MixedSamples, match=r"an incomplete batch has no meaning for it"):
            weighted([nf.sum(t * t)], {x: 0}, nf.placeholder((6,), name="weights"))
    w = nf.parameter((5,), name="w", init=np.ones(5, np.float32))
    centred = x - nf.max(x, axis=0)
    run = InterpretedTrainer(nf.mean(centred * w), [w], inputs=[x], progress=False)
    run.fit([(Regression.x[:6],)], 1)
    with pytest.raises(ConfigError, match=r"max.*takes the max over samples"):
        run.fit([(Regression.x[:4],)], 2)
    alone = run.evaluate([(Regression.x[:6],), (Regression.x[:4],)])["loss"]
    assert alone == run.evaluate([(Regression.x[:6],)])["loss"]


def test_where_samples_are_counted():
    x = nf.placeholder((6, 4, 3), name="x")
    merged = nf.reshape(x, (24, 3)) * 2.0
    back = nf.reshape(merged, (6, 12))
    turned = nf.transpose(x)
    found = sample_dimensions([merged, back, turned], {x: 0})
    assert found[merged] == Counted(0, 4) and found[back] == Counted(0) and found[turned] == Counted(2)
    assert nf.sum(merged) not in sample_dimensions([nf.sum(merged)], {x: 0})


@pytest.mark.parametrize("name", ["capsnet", "mi_lstm", "ptb_lstm", "bert", "resnet", "shufflenet"])
def test_every_model_takes_incomplete_batches(name):
    model = build_model(name, 2, small=True)
    axes = {model.x: model.batch_axis, model.labels: model.batch_axis if model.labels.rank > 1 else 0}
    loss, scores = model.loss, model.scores
    assert not weighted([loss, *model.state.values()], axes, nf.placeholder((2,), name="w"))[0].rank
    assert sample_dimensions([scores], axes)[scores].run >= 1


@pytest.mark.parametrize("kind", BOTH)
def test_predictions(kind):
    model = Softmax()
    run, data = model.trainer(kind), dataset()
    expected = data.images.reshape(40, 16) @ get_value(model.w).T
    scores = run.predict(model.scores, data.images)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
    pieces = [(data.images[n : n + 5], data.labels[n : n + 5]) for n in range(0, 40, 5)]
    forms = (data, (data.images,), pieces, lambda: iter(pieces), [p[:1] for p in pieces], [p[0] for p in pieces])
    for form in forms:
        np.testing.assert_array_equal(run.predict(model.scores, form), scores)
    flat = nf.reshape(model.scores, (18,))
    several = run.predict([model.scores, model.hit, flat], data)
    np.testing.assert_allclose(several[0], scores, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(several[1], scores.argmax(1) == data.labels)
    np.testing.assert_array_equal(several[2], several[0].ravel())
    assert run.predict(model.scores, data.images[:1]).shape == (1, 3)


def test_predictions_that_are_refused():
    model = Softmax()
    run = model.trainer()
    for output, data, error, message in (
        (model.loss, dataset(), ConfigError, r"\w+\[\] has no value for each sample"),
        (model.scores, [], RuntimeFault, "there is no sample to predict"),
        (model.scores, (dataset().images,) * 2, RuntimeFault, r"there are 2 arrays for 1 inputs \(x\)"),
        (model.scores, np.zeros((3, 4)), RuntimeFault, r"input x has shape \(6, 1, 4, 4\), the array \(3, 4\)"),
        (model.hit, [(dataset().images,)], RuntimeFault, "a batch has 1 arrays for 2 inputs"),
        (model.hit, (dataset().images, dataset().labels[:3]), RuntimeFault, "the arrays have 3, 40 samples"),
        (model.hit, [(dataset().images[:9], dataset().labels[:9])], RuntimeFault, "has 9 samples; .* 1 to 6"),
    ):
        with pytest.raises(error, match=message):
            run.predict(output, data)

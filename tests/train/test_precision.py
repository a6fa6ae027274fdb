"""Training in mixed precision: as in float32 but for roundings; a step that overflows is skipped, the scale halved."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError, RuntimeFault
from neoflow.data import Batches, load_digits
from neoflow.nn import functional as F
from neoflow.runtime.parameters import get_value, set_value
from neoflow.train.scaling import INITIAL, INTERVAL, LEAST, METRIC
from neoflow.train.session import run_session
from tests.runtime.programs import InterpretedTrainer, Softmax, batches, dataset

KINDS = [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)]


class Network:
    """A hidden layer with batch normalisation and dropout before the softmax: state of every kind."""

    batch = 6

    def __init__(self):
        self.x = nf.placeholder((self.batch, 1, 4, 4), name="x")
        self.labels = nf.placeholder((self.batch,), "int64", name="labels")
        self.net = nf.nn.Sequential(
            lambda x: nf.reshape(x, (self.batch, 16)),
            nf.nn.Linear(16, 24),
            nf.nn.BatchNorm(24),
            nf.relu,
            nf.nn.Dropout(0.1),
            nf.nn.Linear(24, 3),
        )
        self.scores = self.net(self.x)
        self.loss = F.cross_entropy(self.scores, self.labels)
        self.parameters = self.net.parameters()

    def trainer(self, kind=InterpretedTrainer, loss=None, **options):
        given = {"optimizer": nf.optim.Adam(lr=0.02), "progress": False, **options}
        return kind(self.loss if loss is None else loss, self.parameters, inputs=[self.x, self.labels], **given)


def values(trainer):
    return {p.name: get_value(p) for p in trainer.all_parameters}


def scale_of(trainer, scale=None):
    """The loss scale of a trainer, set where one is given."""
    if scale is not None:
        set_value(trainer.objective.scaling.scale, np.float32(scale))
    return trainer.objective.scaling


def same(a, b, but=()):
    return all(np.array_equal(a[n], b[n]) for n in a if n not in but)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_losses_are_near_those_of_float32(kind, precision):
    wide, mixed = (Network().trainer(kind, precision=p) for p in ("fp32", precision))
    if precision == "fp16":
        scale_of(mixed, 2.0**8)  # at which no step overflows
    losses, near = (np.array(t.fit(batches(), 2).losses) for t in (wide, mixed))
    assert len(losses) == 12 and 0 < np.abs(losses - near).max() < (0.08 if precision == "bf16" else 0.02)
    assert all(p.dtype == "float32" for p in mixed.parameters)


@pytest.mark.tvm
@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_every_form_of_a_step(precision):
    """Groups, clipping, accumulation, an incomplete batch, metrics, validation, prediction, a summary."""
    n = Network()
    hit = nf.cast(nf.equal(nf.argmax(n.scores, axis=-1), n.labels), "float32")
    slow = nf.optim.Group(n.parameters[-1:], lr=0.002)
    trainer = n.trainer(
        nf.Trainer,
        precision=precision,
        optimizer=nf.optim.AdamW(lr=0.02, groups=[slow], clip=1.0),
        accumulate=2,
        metrics={"accuracy": hit},
    )
    data = dataset(40)
    parts = [(data.images[i : i + 6], data.labels[i : i + 6]) for i in range(0, 40, 6)]
    history = trainer.fit(parts, 6, validation=data)
    assert history.losses[-1] < history.losses[0] and history.epochs[-1].validation["accuracy"] > 0.5
    assert trainer.predict(n.scores, data.images).dtype == np.float32
    assert "[24, 16]" in str(trainer.summary())


def test_the_values_of_a_step_have_the_scale():
    trainer = Network().trainer(precision="fp16")
    assert get_value(scale_of(trainer).scale) == INITIAL
    records, scale = [], 2.0**8
    scale_of(trainer, scale)
    history = trainer.fit(batches(), 1, on_step=records.append)
    assert {r.values[METRIC] for r in records} == {scale} and history.epochs[0].training[METRIC] == scale
    assert METRIC not in trainer.evaluate(batches())
    assert METRIC not in Network().trainer(precision="bf16").fit(batches(), 1).epochs[0].training


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_overflows_changes_nothing_but_the_scale(kind):
    trainer = Network().trainer(kind, precision="fp16")
    trainer.fit(batches(), 1)
    scaling = scale_of(trainer, 2.0**26)
    skipped = get_value(scaling.skipped)
    before = values(trainer)
    assert {"norm.running_mean", "dropout.step"} <= before.keys()
    history = trainer.fit(batches(), 2, steps=7)
    after = values(trainer)
    own = [p.name for p in scaling.parameters]
    assert same(before, after, own) and np.isfinite(history.losses).all()
    assert (
        after["loss_scale"] == 2.0**25 and after["loss_scale.skipped"] == skipped + 1 and after["loss_scale.good"] == 0
    )
    trainer.fit(batches(), 5)  # halves until it fits, then goes on
    assert not same(after, values(trainer), own)
    assert get_value(scaling.skipped) > 5 and get_value(scaling.scale) < 2.0**20 and get_value(scaling.good) > 0


def test_the_scale_doubles_after_so_many_good_steps():
    trainer = Network().trainer(precision="fp16")
    scaling = scale_of(trainer, 2.0**6)
    trainer.fit(batches(), 1)
    assert get_value(scaling.good) == 6
    set_value(scaling.good, np.array(INTERVAL - 2))
    trainer.fit(batches(), 2, steps=7)
    assert (get_value(scaling.scale), get_value(scaling.good)) == (2.0**6, INTERVAL - 1)
    trainer.fit(batches(), 2, steps=8)
    assert (get_value(scaling.scale), get_value(scaling.good)) == (2.0**7, 0)


def test_the_scale_leaves_the_gradients_what_they_are():
    losses = []
    for scale in (2.0**4, 2.0**12):
        trainer = Network().trainer(precision="fp16", optimizer=nf.optim.SGD(lr=0.5, clip=0.5))
        scale_of(trainer, scale)
        losses.append(trainer.fit(batches(), 2).losses)
    np.testing.assert_allclose(*losses, atol=2e-3)


def test_small_gradients_are_not_lost():
    """A loss so small that its gradients vanish in float16 unless it is scaled."""
    n = Network()
    before = [get_value(p) for p in n.parameters]
    tiny = n.trainer(loss=n.loss * 2.0**-22, precision="fp16", optimizer=nf.optim.SGD(lr=2.0**22))
    exact = Network()
    for p, value in zip(exact.parameters, before, strict=True):
        set_value(p, value)
    losses = np.array(tiny.fit(batches(), 2).losses) * 2.0**22
    np.testing.assert_allclose(
        losses, exact.trainer(precision="fp32", optimizer=nf.optim.SGD(lr=1.0)).fit(batches(), 2).losses, atol=0.03
    )


@pytest.mark.parametrize("which", [0, 1, 2])
def test_overflow_in_any_batch_of_an_accumulated_step_skips_it(which):
    """Of three batches one has an input so large that its gradients are beyond float16; its loss is finite."""
    n = Softmax()
    w = nf.parameter((3, 16), name="w", init=np.zeros((3, 16), np.float32))
    flat = nf.reshape(n.x, (n.batch, 16))
    loss = F.cross_entropy(nf.expr("s[n,c] = sum(x[n,i] * w[c,i])", x=flat, w=w), n.labels)
    trainer = InterpretedTrainer(
        loss, [w], inputs=n.inputs, precision="fp16", accumulate=3, progress=False, optimizer=nf.optim.SGD(lr=0.1)
    )
    given = [(x.copy(), y) for x, y in batches()][:3]
    given[which][0][0] = 6e4
    scale_of(trainer, 2.0**126)
    trainer.fit(given, 1)
    assert not get_value(w).any() and get_value(scale_of(trainer).scale) == 2.0**125
    assert get_value(scale_of(trainer).skipped) == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.tvm
def test_a_resumed_run_goes_on_to_the_last_bit(tmp_path, precision):
    first = Network()
    begin = {p.name: get_value(p) for p in first.parameters}

    def make(folder):
        n = Network()
        for p in n.parameters:
            set_value(p, begin[p.name])
        return n.trainer(nf.Trainer, precision=precision, checkpoint=tmp_path / folder)

    whole = make("whole")
    losses = whole.fit(batches(), 4).losses
    half = make("half")
    started = half.fit(batches(), 2).losses
    again = make("half")
    again.resume()
    assert started + again.fit(batches(), 4).losses == losses
    assert same(values(whole), values(again))


@pytest.mark.tvm
def test_a_checkpoint_of_bfloat16_is_one_of_float32(tmp_path):
    Network().trainer(nf.Trainer, precision="bf16", checkpoint=tmp_path).fit(batches(), 1)
    wide = Network().trainer(nf.Trainer, checkpoint=tmp_path)
    assert wide.resume().epoch == 1


def test_gradients_that_no_scale_makes_finite_stop_the_run():
    n = Network()
    root = nf.sqrt(nf.sum(n.x * 0.0 * n.parameters[-1][0]))  # its derivative at 0 is infinite, times 0
    trainer = n.trainer(loss=n.loss + 0.0 * root, precision="fp16")
    scale_of(trainer, 4 * LEAST)
    with pytest.raises(
        RuntimeFault, match=r"step 3: the gradients are not finite in float16, even with the loss scaled"
    ):
        trainer.fit(batches(), 4)
    assert trainer.position.step == 4 and not trainer.begun.is_made


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_overflows_names_what_is_too_large_for_float16(kind):
    n = Network()
    trainer = n.trainer(kind, precision="fp16")
    before = values(trainer)
    given = [(x * 1e6, y) for x, y in batches()]
    with pytest.raises(RuntimeFault, match=r"the first to go bad is tensor \w+\[\d, \d+.*\] = -?(inf|nan)"):
        trainer.fit(given, 1)
    assert same(before, values(trainer))
    assert np.isfinite(n.trainer(kind, precision="bf16").fit(given, 1).losses).all()


def test_refusals():
    with pytest.raises(ConfigError, match="precision 'half' is none of fp32, bf16, fp16"):
        Softmax().trainer(precision="half")
    with pytest.raises(ConfigError, match="'tf32' is one of NVIDIA's tensor cores"):
        Softmax().trainer(precision="tf32")
    n = Softmax()
    whole = nf.sum(nf.cast(n.hit, "int64"))
    with pytest.raises(ConfigError, match="the loss is one float"):
        InterpretedTrainer(whole, [n.w], inputs=n.inputs, precision="bf16", progress=False)
    for dtype in ("float16", "float64"):
        with pytest.raises(ConfigError, match=f"precision 'fp16' scales a float32 loss, but .* is {dtype}"):
            InterpretedTrainer(nf.cast(n.loss, dtype), [n.w], inputs=n.inputs, precision="fp16", progress=False)


class Convolutional:
    """A small network of convolutions, for digits of 8x8."""

    def __init__(self):
        self.x, self.labels = nf.placeholder((32, 1, 8, 8), name="x"), nf.placeholder((32,), "int64", name="labels")
        self.net = nf.nn.Sequential(
            nf.nn.Conv2d(1, 16, 3, bias=False),
            nf.nn.BatchNorm(16),
            nf.relu,
            nf.nn.Conv2d(16, 16, 3),
            nf.relu,
            lambda y: nf.reshape(y, (32, -1)),
            nf.nn.Linear(16 * 4 * 4, 10),
        )
        self.scores = self.net(self.x)

    def accuracy(self, precision):
        digits = load_digits(size=8)
        hit = nf.cast(nf.equal(nf.argmax(self.scores, axis=-1), self.labels), "float32")
        trainer = nf.Trainer(
            F.cross_entropy(self.scores, self.labels),
            self.net.parameters(),
            inputs=[self.x, self.labels],
            evaluation={"accuracy": hit},
            optimizer=nf.optim.Adam(lr=2e-3),
            precision=precision,
            progress=False,
        )
        trainer.fit(Batches(digits.train, 32), 6)
        return trainer.evaluate(digits.test)["accuracy"]


@pytest.mark.slow
@pytest.mark.tvm
def test_a_convolutional_network_becomes_as_good():
    found = {precision: Convolutional().accuracy(precision) for precision in ("fp32", "bf16", "fp16")}
    assert found["fp32"] > 0.96 and min(found.values()) > found["fp32"] - 0.012, found


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("name, epochs, good", [("capsnet", 2, 0.95), ("mi_lstm", 4, 0.85)])
def test_models_become_as_good(name, epochs, good):
    found = {}
    for precision in ("fp32", "bf16", "fp16"):
        session = run_session(name, epochs=epochs, progress=False, precision=precision)
        found[precision] = session.judged["accuracy"]
    assert found["fp32"] > good and min(found.values()) > found["fp32"] - 0.015, found

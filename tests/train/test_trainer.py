"""Training: what a step, an epoch and an evaluation are, and how a run stops."""

import signal
import time

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError, RuntimeFault
from neoflow.runtime.parameters import get_value, set_value
from tests.runtime.programs import InterpretedTrainer, Softmax, batches, dataset


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def reference_losses(steps, lr):
    """SGD on the same data, in NumPy by hand."""
    rng = np.random.default_rng(1)
    w, b = rng.normal(size=(3, 16)).astype(np.float32).astype(np.float64) * np.float32(0.1), np.zeros(3)
    w = w.astype(np.float32).astype(np.float64)
    data, losses = batches(), []
    while True:
        for x, y in data:
            if len(losses) == steps:
                return losses
            flat = x.reshape(len(x), 16).astype(np.float64)
            p = softmax(flat @ w.T + b)
            losses.append(-np.log(p[np.arange(len(y)), y]).mean())
            p[np.arange(len(y)), y] -= 1
            w -= lr(len(losses) - 1) * (p.T @ flat) / len(y)
            b -= lr(len(losses) - 1) * p.sum(0) / len(y)


@pytest.mark.parametrize("kind", [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)])
def test_losses_and_schedule(kind):
    def schedule(n):
        return 0.5 / (1 + n)

    history = Softmax().trainer(kind, optimizer=nf.optim.SGD()).fit(batches(), 3, schedule=schedule)
    np.testing.assert_allclose(history.losses, reference_losses(18, schedule), rtol=2e-5)
    assert history.stopped == "finished" and 0 < history.first_step <= history.seconds


def test_a_number_as_learning_rate_is_the_constant_schedule():
    losses = [
        Softmax().trainer(optimizer=nf.optim.SGD(lr=0.25)).fit(batches(), 2, schedule=s).losses
        for s in (None, lambda n: 0.25)
    ]
    assert losses[0] == losses[1]


@pytest.mark.tvm
def test_learns():
    model = Softmax()
    trainer = model.trainer(nf.Trainer)
    history = trainer.fit(batches(), 40, validation=dataset())
    assert history.epochs[-1].training["loss"] < 0.3 * history.epochs[0].training["loss"]
    assert history.epochs[-1].validation["accuracy"] > 0.9
    assert [e.epoch for e in history.epochs] == list(range(1, 41))


def test_evaluation_counts_each_sample_once():
    model, data = Softmax(), dataset()
    found = model.trainer().evaluate(data)  # 40 samples in batches of 6
    scores = data.images.reshape(40, 16) @ get_value(model.w).T
    assert found["accuracy"] == pytest.approx((scores.argmax(1) == data.labels).mean())
    assert found["loss"] == pytest.approx(-np.log(softmax(scores)[np.arange(40), data.labels]).mean(), rel=1e-5)


def test_metrics_and_records():
    model, records = Softmax(), []
    mean_score = nf.mean(model.scores)
    trainer = model.trainer(metrics={"accuracy": model.hit, "score": mean_score}, evaluation={"again": model.hit})
    history = trainer.fit(batches(), 1, validation=lambda: batches(1), on_step=records.append)
    assert [r.step for r in records] == list(range(6)) and {r.epoch for r in records} == {0}
    assert history.losses == [r.values["loss"] for r in records]
    (epoch,) = history.epochs
    assert epoch.training.keys() == {"loss", "accuracy", "score"}
    assert epoch.validation.keys() == {"loss", "accuracy", "score", "again"}
    assert epoch.training["accuracy"] == pytest.approx(np.mean([r.values["accuracy"] for r in records]))


def test_state_of_the_model_is_updated():
    model = Softmax()
    count = nf.parameter((), name="count")
    trainer = model.trainer(state={count: count + 1.0})
    trainer.fit(batches(), 1)
    assert get_value(count) == 6


def test_steps_limit_and_total_epochs():
    trainer, data = Softmax().trainer(), batches()
    assert len(trainer.fit(data, 2, steps=4).losses) == 4
    assert trainer.fit(data, 2).stopped == "finished" and trainer.position.step == 12
    assert trainer.fit(data, 2).losses == []


@pytest.mark.parametrize("kind", [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)])
def test_a_loss_that_is_not_finite_stops_and_changes_nothing(kind):
    model = Softmax()
    log_x = nf.log(model.x[:, 0, 0, 0])
    loss = model.loss + 1e-3 * nf.sum(log_x)
    trainer = kind(loss, model.parameters, inputs=model.inputs, progress=False)
    good = (np.ones((6, 1, 4, 4), np.float32), np.zeros(6, np.int64))
    bad = (np.ones((6, 1, 4, 4), np.float32), np.zeros(6, np.int64))
    bad[0][4, 0, 0, 0] = -1
    kept = []

    def keep(record):
        kept.append(get_value(model.w))

    message = (
        r"step 2: the loss is nan; the first to go bad is tensor log\w*\[4\] = nan \(.*test_trainer.py:\d+\), 1 of"
    )
    with pytest.raises(RuntimeFault, match=message):
        trainer.fit([good, good, bad], on_step=keep)
    np.testing.assert_array_equal(get_value(model.w), kept[-1])


def test_a_bad_input_and_a_bad_parameter_are_named():
    model = Softmax()
    image = np.ones((6, 1, 4, 4), np.float32)
    image[2, 0, 1, 3] = np.inf
    with pytest.raises(
        RuntimeFault, match=r"step 0: the loss is nan; the first to go bad is input x\[2, 0, 1, 3\] = inf"
    ):
        model.trainer().fit([(image, np.zeros(6, np.int64))])
    set_value(model.b, np.array([0, np.nan, 0]))
    with pytest.raises(RuntimeFault, match=r"is parameter b\[1\] = nan.*, since the step before"):
        model.trainer().fit(batches())


def test_ctrl_c_finishes_the_step_and_saves(tmp_path):
    trainer = Softmax().trainer(checkpoint=tmp_path)

    def press(record):
        if record.step == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    history = trainer.fit(batches(), 5, on_step=press)
    assert history.stopped == "interrupted" and len(history.losses) == 4
    assert [p.name for p in tmp_path.glob("*.json")] == ["step-00000004.json"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    def press(record):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.01)  # two signals that are pending together count as one

    with pytest.raises(KeyboardInterrupt):
        Softmax().trainer(checkpoint=tmp_path).fit(batches(), on_step=press)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "eager"}, "mode 'eager' is none of static, dynamic"),
        ({"tune_share": 0.0}, "tune_share=0.0 is not above 0"),
        ({"tune": -1.0}, "seconds=-1.0 must be positive"),
        ({"metrics": {"loss": None}}, r"'loss' is taken"),
        ({"checkpoint_every": 3}, "needs a checkpoint folder"),
    ],
)
def test_refused_arguments(options, message):
    model = Softmax()
    if "metrics" in options:
        options = {"metrics": {"loss": model.hit}}
    with pytest.raises(ConfigError, match=message):
        model.trainer(**options)


def test_refused_losses_metrics_and_batches():
    model = Softmax()
    with pytest.raises(ConfigError, match=r"metric 'scores' has shape \(6, 3\)"):
        model.trainer(metrics={"scores": model.scores})
    with pytest.raises(ConfigError, match=r"the loss is one float, but \w+ is float32\[6, 3\]"):
        nf.Trainer(model.scores, model.parameters, inputs=model.inputs)
    with pytest.raises(RuntimeFault, match=r"a batch has 1 arrays for 2 inputs \(x, labels\)"):
        model.trainer().fit([(np.ones((6, 1, 4, 4), np.float32),)])
    with pytest.raises(RuntimeFault, match="an epoch gave no batch"):
        model.trainer().fit(iter([]))
    for nothing in ({"inputs": []}, {"parameters": []}):
        with pytest.raises(ConfigError, match=r"one input at least, .*, and one parameter"):
            nf.Trainer(**{"loss": model.loss, "parameters": model.parameters, "inputs": model.inputs, **nothing})
    rate = nf.placeholder((), name="rate")
    with pytest.raises(ConfigError, match="learning rate is the placeholder rate: give a schedule"):
        model.trainer(optimizer=nf.optim.SGD(lr=rate)).fit(batches())
    fixed = nf.optim.SGD(lr=nf.cast(nf.parameter((), "int64"), "float32") + 1.0)
    with pytest.raises(ConfigError, match="nothing for a schedule to set"):
        model.trainer(optimizer=fixed).fit(batches(), schedule=lambda n: 0.1)

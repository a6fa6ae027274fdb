"""Early stopping, the best epoch, callbacks, schedules that give no rate, groups of parameters."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import ConfigError, ExpressionError
from neoflow.nn.optim import Group
from neoflow.runtime.parameters import get_value, set_value
from neoflow.train.stopping import EarlyStopping
from tests.runtime.programs import InterpretedTrainer, Softmax, batches, dataset

LOSSES = [5.0, 4.0, 4.5, 3.0, 3.5, float("nan"), 2.95, 3.0, 1.0]


class Told(InterpretedTrainer):
    """A trainer whose validation gives what it is told."""

    def evaluate(self, batches, *, training=False):
        loss = LOSSES[self.position.epoch - 1]
        return {"loss": loss, "accuracy": -loss}


def told(**options):
    return Softmax().trainer(Told, **options)


def fit(run, rule, epochs=9, **options):
    return run.fit(batches(), epochs, validation=dataset(), early_stopping=rule, **options)


@pytest.mark.parametrize(
    ("rule", "ran", "best"),
    [
        (EarlyStopping(), 9, 9),
        (EarlyStopping(patience=2), 6, 4),
        (EarlyStopping(patience=1), 3, 2),
        (EarlyStopping(patience=3, min_delta=0.1), 7, 4),
        (EarlyStopping(patience=None), 9, 9),
        (EarlyStopping("validation accuracy", patience=2, mode="max"), 6, 4),
    ],
)
def test_a_run_stops_when_nothing_gets_better(rule, ran, best):
    history = fit(told(), rule)
    assert (len(history.epochs), history.best) == (ran, best)
    assert history.stopped == ("early" if ran < 9 else "finished")


@pytest.mark.parametrize("folder", [False, True])
def test_the_best_epoch_is_restored_when_asked(tmp_path, folder):
    for restore, expected in ((True, 3), (False, 5)):
        run, kept = told(checkpoint=tmp_path / str(restore) if folder else None), []
        fit(
            run, EarlyStopping(patience=2, restore=restore), on_epoch=lambda e, run=run, to=kept: to.append(values(run))
        )
        np.testing.assert_array_equal(values(run), kept[expected])
        assert len(kept) == 6


def values(run):
    return np.concatenate([get_value(p).ravel() for p in run.all_parameters])


def test_a_resumed_run_waits_no_longer_and_knows_its_best(tmp_path):
    whole = fit(told(), EarlyStopping(patience=2, restore=True))
    straight, parts = told(checkpoint=tmp_path), []
    parts.append(fit(straight, EarlyStopping(patience=2, restore=True), epochs=5))
    again = told(checkpoint=tmp_path)
    again.resume()
    parts.append(fit(again, EarlyStopping(patience=2, restore=True)))
    assert [len(p.epochs) for p in parts] == [5, 1] and parts[1].stopped == "early" and parts[1].best == whole.best == 4
    other = told()
    fit(other, EarlyStopping(patience=2, restore=True))
    np.testing.assert_array_equal(values(again), values(other))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "lowest"}, "mode 'lowest'; it is 'min' or 'max'"),
        ({"patience": 0}, "patience 0; it is at least 1 epoch, or None"),
        ({"min_delta": -1.0}, "min_delta -1.0; it is at least 0"),
    ],
)
def test_rules_that_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        EarlyStopping(**options)


def test_what_is_watched_is_there_before_the_first_step():
    run = Softmax().trainer()
    for rule, message in (
        (EarlyStopping(), r"watches 'validation loss'; an epoch has loss, accuracy; give fit a validation"),
        (EarlyStopping("losss"), r"watches 'losss'; an epoch has loss, accuracy$"),
    ):
        with pytest.raises(ConfigError, match=message):
            run.fit(batches(), 1, early_stopping=rule)
    assert run.position.step == 0
    assert fit(run, EarlyStopping("accuracy", mode="max"), epochs=1).best == 1


def test_another_rule_knows_nothing_of_the_one_before():
    run = told()
    fit(run, EarlyStopping(patience=2), epochs=3)
    history = fit(run, EarlyStopping("validation accuracy", patience=None, mode="max"), epochs=4)
    assert history.best == 4
    assert fit(run, EarlyStopping("loss", patience=None, mode="max"), epochs=5).best == 5


def test_an_epoch_callback():
    seen, run = [], Softmax().trainer()
    history = run.fit(batches(), 3, validation=dataset(), on_epoch=seen.append)
    assert seen == history.epochs and seen[0].values.keys() == {
        "loss", "accuracy", "validation loss", "validation accuracy"
    }  # fmt: skip


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -0.1, "0.1", True, 1j, np.zeros(2)])
def test_a_schedule_that_gives_no_rate(value):
    asked, run = [], Softmax().trainer()
    run.step_function = lambda: pytest.fail("compiled before the schedule was asked")

    def schedule(n):
        asked.append(n)
        return value

    with pytest.raises(ConfigError, match=r"the schedule gives .* at step 0; a learning rate is a number, at least 0"):
        run.fit(batches(), 1, schedule=schedule)
    assert asked == [0]


def test_a_schedule_that_fails_later_and_one_that_is_no_function():
    run = Softmax().trainer()
    with pytest.raises(ConfigError, match=r"the schedule gives None at step 3"):
        run.fit(batches(), 1, schedule=lambda n: 0.1 if n < 3 else None)
    assert run.position.step == 3
    with pytest.raises(ConfigError, match=r"a schedule is a function of the step, not 0.1"):
        run.fit(batches(), 2, schedule=0.1)
    asked = []
    Softmax().trainer().fit(batches(), 1, schedule=lambda n: asked.append(n) or np.float32(0.1))
    assert asked == list(range(6))


# ---- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)])
def test_groups_have_rates_of_their_own(kind):
    """SGD in closed form: each group's step is its rate times its gradient plus its decay."""
    model = Softmax()
    w, b = model.parameters
    optimizer = nf.optim.SGD(lr=0.1, groups=[Group([b], lr=0.02, weight_decay=0.5)])

    set_value(b, np.array([1.0, 2.0, 3.0], np.float32))
    gradients = nf.grad(model.loss, [w, b])
    data = list(batches())[:1]
    feeds = dict(zip(model.inputs, data[0], strict=True)) | {p: get_value(p) for p in (w, b)}
    dw, db = nf.evaluate(gradients, feeds)
    model.trainer(kind, optimizer=optimizer).fit(data, 1, schedule=lambda n: 0.05)
    np.testing.assert_allclose(get_value(w), feeds[w] - 0.05 * dw, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(get_value(b), feeds[b] - 0.01 * (db + 0.5 * feeds[b]), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_groups_agree_with_torch(name):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    start = [rng.standard_normal((4, 3)), rng.standard_normal(3)]
    w, b = (nf.parameter(v.shape, "float64", name=n, init=v) for n, v in zip("wb", start, strict=True))
    loss = nf.sum(nf.tanh(w * b))
    optimizer = getattr(nf.optim, name)(lr=0.05, weight_decay=0.1, groups=[Group([b], lr=0.2, weight_decay=0.0)])
    updates = optimizer.updates([w, b], nf.grad(loss, [w, b]))
    v, c = (torch.tensor(value, requires_grad=True) for value in start)
    groups = [{"params": [v]}, {"params": [c], "lr": 0.2, "weight_decay": 0.0}]
    other = getattr(torch.optim, name)(groups, lr=0.05, weight_decay=0.1)
    state = {w: start[0], b: start[1]} | {p: np.zeros(p.shape, p.dtype) for p in optimizer.state}
    for _ in range(3):
        state = dict(zip(updates, nf.evaluate(list(updates.values()), state), strict=True))
        other.zero_grad()
        torch.tanh(v * c).sum().backward()
        other.step()
    np.testing.assert_allclose(state[w], v.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(state[b], c.detach().numpy(), rtol=1e-9)


def test_groups_that_are_refused():
    w, b = nf.parameter((2,), name="w"), nf.parameter((2,), name="b")
    with pytest.raises(ExpressionError, match="parameter b is in 2 groups"):
        nf.optim.SGD(groups=[Group([b]), Group([w, b])])
    with pytest.raises(ExpressionError, match="parameter b of a group is not among those that are trained"):
        nf.optim.SGD(groups=[Group([b])]).updates([w], [w])
    with pytest.raises(ExpressionError, match=r"the learning rate is -1"):
        Group([b], lr=-1)
    model = Softmax()
    for group, lr in ((Group([model.b], lr=0.1), 0.0), (Group([model.b], lr=nf.placeholder((), name="r")), 0.1)):
        with pytest.raises(ExpressionError, match=r"a group has the learning rate .* beside the optimizer's .*ratio"):
            model.trainer(optimizer=nf.optim.SGD(lr=lr, groups=[group]))

"""One loss, two forms: what a step keeps and what an evaluation computes are found from the loss alone."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import nn
from neoflow.runtime.parameters import get_value
from tests.runtime.programs import InterpretedTrainer

X = np.random.default_rng(4).standard_normal((6, 4)).astype(np.float32) * 3 + 2


def network(batch=6, rate=0.5):
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), nf.tanh, nn.Dropout(rate), nn.Linear(8, 2), nn.Dropout(rate))
    x = nf.placeholder((batch, 4), name="x")
    y = net(x)
    return net, x, y, nf.mean(y * y)


def trainer(kind=InterpretedTrainer, **options):
    net, x, y, loss = network()
    options = {"optimizer": nf.optim.SGD(lr=0.01), "progress": False, **options}
    return net, y, kind(loss, net.parameters(), inputs=[x], **options)


def test_the_inference_form_is_what_layers_compute_with_training_off():
    net, x, y, loss = network()
    feeds = {p: get_value(p) for p in (*net.parameters(), *net.state())} | {x: X}
    still = net(x, training=False)
    for ours, expected in ((nn.inference(y), still), (nn.inference([loss])[0], nf.mean(still * still))):
        np.testing.assert_array_equal(*nf.evaluate([ours, expected], feeds))
    assert nn.inference(still) is still and nn.inference([x])[0] is x


def test_the_state_of_a_network():
    net, _, _, loss = network()
    found = nn.state(loss)
    assert {p.name for p in found} == {
        "norm.running_mean", "norm.running_variance", "dropout.step", "dropout2.step"
    }  # fmt: skip
    assert found.keys() == net.updates().keys()
    assert nn.state(nn.inference(loss)) == {}


def test_a_layer_that_is_called_twice_blends_both_batches_in():
    norm, x = nn.BatchNorm(4), nf.placeholder((6, 4), name="x")
    twice = norm(x) + norm(x * 3.0)
    mean = nn.state(twice)[norm.running_mean]
    feeds = {x: X, norm.running_mean: np.ones(4, np.float32), norm.running_variance: np.ones(4, np.float32)}
    once = 0.9 * np.ones(4) + 0.1 * X.mean(0)
    np.testing.assert_allclose(nf.evaluate([mean], feeds)[0], 0.9 * once + 0.1 * 3 * X.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(*nf.evaluate([mean, norm.updates()[norm.running_mean]], feeds))
    alone = nn.state(norm(x * 2.0))[norm.running_mean]
    np.testing.assert_allclose(nf.evaluate([alone], feeds)[0], 0.9 + 0.2 * X.mean(0), rtol=1e-5)


@pytest.mark.parametrize("kind", [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)])
def test_the_trainer_keeps_state_without_being_told(kind):
    net, _, run = trainer(kind)
    norm, first, last = net.layers[1], net.layers[3], net.layers[5]
    begun = [int(get_value(d.seed)) for d in (first, last)]
    assert begun[0] != begun[1]
    weight, bias = (get_value(p) for p in net.layers[0].parameters())
    run.fit([(X,)], 1)
    before = X @ weight.T + bias
    np.testing.assert_allclose(get_value(norm.running_mean), 0.1 * before.mean(0), rtol=1e-4, atol=1e-6)
    assert [int(get_value(d.seed)) for d in (first, last)] == [n + 1 for n in begun]


@pytest.mark.parametrize("kind", [InterpretedTrainer, pytest.param(nf.Trainer, marks=pytest.mark.tvm)])
def test_evaluation_is_in_inference_form_and_changes_nothing(kind):
    net, y, run = trainer(kind)
    run.fit([(X,)], 3)
    kept = [get_value(p) for p in run.all_parameters]
    feeds = {p: get_value(p) for p in (*net.parameters(), *net.state())} | {run.inputs[0]: X}
    (expected,) = nf.evaluate([net(run.inputs[0], training=False)], feeds)
    assert run.evaluate([(X,)])["loss"] == pytest.approx((expected**2).mean(), rel=1e-4)
    assert run.evaluate([(X,)]) == run.evaluate([(X,)])
    (written,) = nf.evaluate([run.loss], feeds)
    assert run.evaluate([(X,)], training=True)["loss"] == pytest.approx(float(written), rel=1e-4)
    assert float(written) != pytest.approx((expected**2).mean(), rel=1e-2)
    np.testing.assert_allclose(run.predict(y, X), expected, rtol=1e-4, atol=1e-6)
    for p, value in zip(run.all_parameters, kept, strict=True):
        np.testing.assert_array_equal(get_value(p), value)


def test_dropout_by_itself_drops_anew_at_each_step_and_in_each_place():
    drop, x = nn.Dropout(0.5), nf.placeholder((64,), name="x")
    a, b = drop(x), drop(x)
    (step,) = drop.state()
    masks = []
    for n in (5, 6):
        feeds = {x: np.ones(64, np.float32), step: np.int64(n)}
        masks += [tuple(v > 0) for v in nf.evaluate([a, b], feeds)]
    assert len(set(masks)) == 4 and all(12 < sum(m) < 52 for m in masks)
    assert nf.nn.Dropout(0.0)(x) is x


def test_two_networks_of_one_seed_are_dropped_alike():
    losses = [trainer(seed=s)[2].fit([(X,)], 4).losses for s in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_resuming_goes_on_with_the_masks_of_the_run(tmp_path):
    whole = trainer()[2].fit([(X,)] * 3, 3).losses
    first = trainer(checkpoint=tmp_path)[2].fit([(X,)] * 3, 3, steps=4).losses
    again = trainer(checkpoint=tmp_path)[2]
    again.resume()
    assert first + again.fit([(X,)] * 3, 3).losses == whole


def test_a_compiled_step_that_forgets_state_is_told():
    net, x, _, loss = network()
    gradients = nf.grad(loss, net.parameters())
    updates = nf.optim.SGD().updates(net.parameters(), gradients)
    message = "norm.running_mean, norm.running_variance, dropout.step, dropout2.step.*nf.nn.state"
    with pytest.warns(UserWarning, match=message):
        nf.compile([loss], [x], updates)
    step = nf.compile([loss], [x], {**updates, **nn.state(loss)})
    before = get_value(net.layers[1].running_mean)
    assert step(X)[0] != step(X)[0] and (get_value(net.layers[1].running_mean) != before).all()
    nf.compile([nn.inference(loss)], [x])


def test_a_form_of_another_shape_is_refused():
    x = nf.placeholder((4,), name="x")
    y = nn.training_form(x * 2.0, lambda: nf.sum(x))
    with pytest.raises(
        nf.ExpressionError, match=r"mul\w*\[4\] of float32 cannot be sum\w*\[\] of float32 in inference"
    ):
        nn.inference(y)

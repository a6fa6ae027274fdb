"""Optimizers against torch.optim over several steps in float64; state, schedules, clipping."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import ExpressionError
from neoflow.nn import init

OPTIMIZERS = {
    "SGD": [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.8, "weight_decay": 0.01, "nesterov": True},
    ],
    "Adam": [{}, {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}],
    "RMSprop": [{}, {"alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1}],
    "AdamW": [{}, {"betas": (0.8, 0.95), "weight_decay": 0.1}],
}


def problem():
    """A small loss of two parameters: mean((tanh(x w) b)^2)."""
    rng = np.random.default_rng(3)
    values = [rng.standard_normal((4, 3)), rng.standard_normal((3,))]
    x = rng.standard_normal((5, 4))
    w, b = nf.parameter((4, 3), name="w"), nf.parameter((3,), name="b")
    xs = nf.placeholder((5, 4), name="x")
    y = nf.tanh(nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=xs, w=w)) * b
    return [w, b], values, xs, x, nf.mean(y * y)


def train(optimizer, steps, lr=None):
    """Parameter values after each step, evaluated in float64."""
    parameters, values, xs, x, loss = problem()
    updates = optimizer.updates(parameters, nf.grad(loss, parameters))
    state = {**dict(zip(parameters, values, strict=True)), **{p: init.initial_value(p) for p in optimizer.state}}
    assert set(updates) == set(state)
    history = []
    for n in range(steps):
        feeds = {**state, xs: x, **({} if lr is None else {optimizer.inputs[0]: np.array(lr(n), "float32")})}
        state = dict(zip(updates, nf.evaluate(list(updates.values()), feeds, dtype="float64"), strict=True))
        history.append([state[p] for p in parameters])
    return history


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), [(n, o) for n, many in OPTIMIZERS.items() for o in many])
def test_agrees_with_torch(name, options):
    torch = pytest.importorskip("torch")
    _, values, _, x, _ = problem()
    w, b = (torch.tensor(v, requires_grad=True) for v in values)
    other = getattr(torch.optim, name)([w, b], lr=0.05, **options)
    for ours in train(getattr(nf.optim, name)(lr=0.05, **options), 4):
        other.zero_grad()
        ((torch.tanh(torch.tensor(x) @ w) * b) ** 2).mean().backward()
        other.step()
        np.testing.assert_allclose(ours[0], w.detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(ours[1], b.detach().numpy(), rtol=1e-9)


@pytest.mark.torch
@pytest.mark.parametrize("limit", [0.05, 100.0])
def test_clipping_agrees_with_torch(limit):
    torch = pytest.importorskip("torch")
    _, values, _, x, _ = problem()
    w, b = (torch.tensor(v, requires_grad=True) for v in values)
    ((torch.tanh(torch.tensor(x) @ w) * b) ** 2).mean().backward()
    torch.nn.utils.clip_grad_norm_([w, b], limit)
    (step,) = train(nf.optim.SGD(lr=1.0, clip=limit), 1)
    np.testing.assert_allclose(values[0] - step[0], w.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(values[1] - step[1], b.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize("make", [nf.optim.SGD, nf.optim.Adam, nf.optim.AdamW, nf.optim.RMSprop])
def test_the_rate_may_be_fed(make):
    """A schedule by a placeholder: constant rates agree with the number, and rate 0 changes nothing."""
    lr = nf.placeholder((), name="lr")
    fed = train(make(lr=lr), 3, lambda n: 0.5)
    for ours, other in zip(fed, train(make(lr=0.5), 3), strict=True):
        np.testing.assert_allclose(ours[0], other[0], rtol=1e-12)
    still = train(make(lr=lr), 1, lambda n: 0.0)
    np.testing.assert_array_equal(still[0][0], problem()[1][0])
    assert make(lr=lr).inputs == (lr,) and make(lr=0.5).inputs == ()


def test_states_are_parameters_with_names():
    w = nf.parameter((2,), name="w")
    optimizer = nf.optim.Adam()
    optimizer.updates([w], nf.grad(nf.sum(w * w), [w]))
    assert [s.name for s in optimizer.state] == ["adam.step", "w.m", "w.v"]
    assert all(not init.initial_value(s).any() for s in optimizer.state)


def test_refusals():
    w, v = nf.parameter((2,), name="w"), nf.parameter((3,), name="v")
    with pytest.raises(ExpressionError, match=r"parameter w is float32\[2\], its gradient float32\[3\]"):
        nf.optim.SGD().updates([w], [v])
    with pytest.raises(ExpressionError, match="2 parameters and 1 gradients"):
        nf.optim.SGD().updates([w, v], [w])
    with pytest.raises(ExpressionError, match="nesterov needs a momentum"):
        nf.optim.SGD(nesterov=True)
    with pytest.raises(ExpressionError, match="the learning rate is -1"):
        nf.optim.Adam(lr=-1)
    with pytest.raises(ExpressionError, match=r"the learning rate w has shape \(2,\)"):
        nf.optim.SGD(lr=w)

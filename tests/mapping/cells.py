"""Recurrences that another library has, as users write them."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.nn import functional as F

KINDS = ("lstm", "lstm, one bias", "lstm, no bias", "lstm, iofg", "lstm, backwards", "gru", "tanh", "relu")


def weights(gates, inputs, hidden, biases, prefix=""):
    shapes = [(gates * hidden, inputs), (gates * hidden, hidden), *[(gates * hidden,)] * biases]
    return [nf.parameter(s, name=f"{prefix}{n}") for s, n in zip(shapes, "wuba", strict=False)]


def lstm(x, hidden, biases=2, order="ifgo", reverse=False, prefix=""):
    """(all h, last h, last c, weights) of one layer over x [T, B, I]"""
    zeros = nf.constant(np.zeros((x.shape[1], hidden), np.float32))
    own = weights(4, x.shape[2], hidden, biases, prefix)

    def step(state, row):
        then = F.lstm_cell(row, *state, *own[:2], *[*own[2:], None, None][:2], gates=order)
        return then, then[0]

    (h, c), ys = nf.scan(step, (zeros, zeros), x, reverse=reverse)
    return ys, h, c, own


def gru(x, hidden, biases=2):
    own = weights(3, x.shape[2], hidden, biases)
    zeros = nf.constant(np.zeros((x.shape[1], hidden), np.float32))
    h, ys = nf.scan(lambda h, row: (t := F.gru_cell(row, h, *own), t), zeros, x)
    return ys, h, own


def rnn(x, hidden, function):
    w, u, b = weights(1, x.shape[2], hidden, 1)
    zeros = nf.constant(np.zeros((x.shape[1], hidden), np.float32))
    h, ys = nf.scan(lambda h, row: (t := function(F.linear(row, w, b) + F.linear(h, u)), t), zeros, x)
    return ys, h, [w, u, b]


def case(kind, steps, batch, inputs, hidden):
    """(input, outputs with gradients)"""
    x = nf.placeholder((steps, batch, inputs), name="x")
    if kind.startswith("lstm"):
        options = {
            "lstm": {},
            "lstm, one bias": {"biases": 1},
            "lstm, no bias": {"biases": 0},
            "lstm, iofg": {"order": "iofg"},
            "lstm, backwards": {"reverse": True, "order": "iofg"},
        }[kind]
        ys, h, c, own = lstm(x, hidden, **options)
        loss = nf.mean(ys * ys) + nf.mean(h * c)
    elif kind == "gru":
        ys, h, own = gru(x, hidden)
        loss = nf.mean(ys * ys) + nf.mean(h)
    else:
        ys, h, own = rnn(x, hidden, {"tanh": nf.tanh, "relu": nf.relu}[kind])
        loss = nf.mean(ys * ys) + nf.mean(h)
    return x, own, [loss, ys, *nf.grad(loss, [x, *own])]


def values(tensors, seed=0):
    rng = np.random.default_rng(seed)
    return {t: (0.4 * rng.standard_normal(t.shape)).astype(t.dtype) for t in tensors}


def two_layers():
    x = nf.placeholder((6, 3, 4), name="x")
    below, *_, first = lstm(x, 5, prefix="first ")
    above, h, _, second = lstm(below, 7, prefix="second ")
    loss = nf.mean(above * above) + nf.mean(h)
    own = [*first, *second]
    gradients = nf.grad(loss, own)
    return x, own, loss, {p: p - 0.5 * g for p, g in zip(own, gradients, strict=True)}


def trained(steps, x, own, loss, updates, target="cpu"):
    """(program, losses) of so many steps from the same start"""
    f = nf.compile([loss], [x], updates=updates, target=target)
    feeds = values([x, *own])
    for p in own:
        nf.set_value(p, feeds[p])
    return f, [float(f(feeds[x])[0]) for _ in range(steps)]


def interrupt_once(monkeypatch, f, x, own):
    """An exception from outside, in the first of a step's foreign calls, comes when the step is done."""
    from neoflow.runtime import torch_cells  # imported here: it imports PyTorch

    forward, calls = torch_cells._forward, []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return forward(*given)

    monkeypatch.setattr(torch_cells, "_forward", interrupted)
    old = [nf.get_value(p).copy() for p in own]
    with pytest.raises(KeyboardInterrupt):
        f(values([x])[x])
    assert f.runs == 2 and len(calls) == 3
    assert all((nf.get_value(p) != a).any() for p, a in zip(own, old, strict=True))

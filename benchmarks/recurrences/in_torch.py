"""The recurrences in PyTorch, as its users write them: a step, and a loop in Python around it.

torch.compile is given the step: of the whole loop it takes minutes for some hundred steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.recurrences.ours import FAR, NEVER
from benchmarks.rows.cases import Row

NAME = "torch"
Run = Callable[[], Sequence[torch.Tensor]]


def _loop(step, fixed, state, rows, steps):
    """The last state, and the rows of results where there are any."""
    columns = [x.unbind(0) for x in rows]  # its gradient is one stack, not a sum of T padded rows
    found = []
    for n in range(steps):
        state, y = step(fixed, state, tuple(c[n] for c in columns))
        found.append(y)
    return state, None if found[0] is None else torch.stack(found)


def lstm_step(fixed, state, row):
    (h, c), (wx, wh, bias) = state, fixed
    i, f, g, o = (F.linear(row[0], wx, bias) + F.linear(h, wh)).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h, c), h


def lstm(step, x, wx, wh, bias):
    start = x.new_zeros(x.shape[1], wh.shape[1])
    return _loop(step, (wx, wh, bias), (start, start), (x,), len(x))[1]


def mi_lstm_step(fixed, state, row):
    (h, c), (wx, wh, bx, bh, alpha, beta1, beta2) = state, fixed
    u, g = F.linear(row[0], wx, bx), F.linear(h, wh, bh)
    i, f, o, z = (alpha * u * g + beta1 * u + beta2 * g).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h, c), h


def mi_lstm(step, x, *fixed):
    start = x.new_zeros(x.shape[1], fixed[1].shape[1])
    return _loop(step, fixed, (start, start), (x,), len(x))[1]


def selective_scan_step(fixed, h, row):
    (keep, d), (x, delta, b, c) = fixed, row
    h = torch.exp(delta[..., None] * keep) * h + (delta * x)[..., None] * b[:, None]
    return h, torch.einsum("sin,sn->si", h, c) + d * x


def selective_scan(step, x, wd, bd, wb, wc, a, d):
    delta = F.softplus(x @ wd + bd)
    start = x.new_zeros(x.shape[1], *a.shape)
    return _loop(step, (-torch.exp(a), d), start, (x, delta, x @ wb, x @ wc), len(x))[1]


def rwkv_step(fixed, state, row):
    (slower, bonus), (a, b, p), (k, v) = fixed, state, row
    most = torch.maximum(p, bonus + k)
    old, new = torch.exp(p - most), torch.exp(bonus + k - most)
    mixed = (old * a + new * v) / (old * b + new)
    most = torch.maximum(p - slower, k)
    old, new = torch.exp(p - slower - most), torch.exp(k - most)
    return (old * a + new * v, old * b + new, most), mixed


def rwkv(step, x, mix_k, mix_v, mix_r, wk, wv, wr, wo, decay, bonus):
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    k, v, r = ((x * m + before * (1 - m)) @ w for m, w in ((mix_k, wk), (mix_v, wv), (mix_r, wr)))
    start = x.new_zeros(x.shape[1:])
    state = (start, start, start - 1e30)
    mixed = _loop(step, (torch.exp(decay), bonus), state, (k, v), len(x))[1]
    return (torch.sigmoid(r) * mixed) @ wo


def soft_dtw_step(gamma, state, row):
    two, one = state
    near = torch.stack([two[:, :-1], one[:, :-1], one[:, 1:]])
    least = near.detach().amin(0)  # torch.logsumexp loses digits here, a little in every step of its gradient
    soft = least - gamma * torch.exp((least - near) / gamma).sum(0).log()
    return (one, F.pad(row[0] + soft, (1, 0), value=FAR)), None


def soft_dtw(step, x, y, gamma):
    t, batch, _ = x.shape
    cost = ((x[:, None] - y[None]) ** 2).sum(3)
    i = torch.arange(t)
    j = torch.arange(2 * t - 1)[:, None] - i
    rows = cost[i, j.clamp(0, t - 1)].movedim(2, 1)
    rows = torch.where(((j >= 0) & (j < t))[:, None], rows, FAR)
    far = torch.full((batch, t + 1), FAR)
    first = far.clone()
    first[:, 0] = 0
    return _loop(step, gamma, (first, far), (rows,), 2 * t - 1)[0][1][:, t]


def ctc_step(fixed, state, row):
    """Nothing: PyTorch has the whole as one operator."""
    return state, None


def ctc(step, logits, labels):
    t, (batch, s) = len(logits), labels.shape
    lengths = (torch.full((batch,), t), torch.full((batch,), s))
    return F.ctc_loss(F.log_softmax(logits, -1), labels, *lengths, blank=logits.shape[2] - 1, reduction="none")


def _field(h, w1, b1, w2, b2):
    return torch.tanh(h @ w1 + b1) @ w2 + b2


def euler_step(fixed, h, row):
    size, *given = fixed
    return h + _field(h, *given) * size, None


def euler(step, h, *given, steps):
    return _loop(step, (1 / steps, *given), h, (), steps)[0]


def rk4_step(fixed, h, row):
    size, *given = fixed
    k1 = _field(h, *given)
    k2 = _field(h + size / 2 * k1, *given)
    k3 = _field(h + size / 2 * k2, *given)
    k4 = _field(h + size * k3, *given)
    return h + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None


def rk4(step, h, *given, steps):
    return _loop(step, (1 / steps, *given), h, (), steps)[0]


def decoder_step(fixed, state, row):
    (words, wq, wk, wv, wo, w1, w2), (word, keys, values, number), (place,) = fixed, state, row
    width = words.shape[1]
    x = words[word] + place
    normed = F.layer_norm(x, (width,))
    here = torch.arange(len(keys)) == number
    keys = torch.where(here[:, None, None], normed @ wk, keys)
    values = torch.where(here[:, None, None], normed @ wv, values)
    scores = torch.einsum("bi,tbi->bt", normed @ wq, keys) * width**-0.5
    scores = torch.softmax(scores.masked_fill(torch.arange(len(keys)) > number, NEVER), -1)
    x = x + torch.einsum("bt,tbi->bi", scores, values) @ wo
    x = x + F.gelu(F.layer_norm(x, (width,)) @ w1) @ w2
    chances = F.log_softmax(F.layer_norm(x, (width,)) @ words.t(), -1)
    best, word = chances.max(1)
    return (word, keys, values, number + 1), best


def decoder(step, words, places, wq, wk, wv, wo, w1, w2, first):
    kept = places.new_zeros(len(places), len(first), places.shape[1])
    state = (first, kept, kept, torch.tensor(0))
    return _loop(step, (words, wq, wk, wv, wo, w1, w2), state, (places,), len(places))[1]


FORMS = {
    f.__name__: (f, step)
    for f, step in (
        (lstm, lstm_step),
        (mi_lstm, mi_lstm_step),
        (selective_scan, selective_scan_step),
        (rwkv, rwkv_step),
        (soft_dtw, soft_dtw_step),
        (ctc, ctc_step),
        (euler, euler_step),
        (rk4, rk4_step),
        (decoder, decoder_step),
    )
}
"""By name: what takes the step and the inputs of a row, and the step."""


def prepared(row: Row, arrays: Sequence[np.ndarray], is_compiled: bool = False) -> Run:
    """What a call computes: the value and the gradients."""
    tensors = [torch.from_numpy(a) for a in arrays]
    given, cotangents = tensors[: len(row.shapes)], tensors[len(row.shapes) :]
    wrt = [given[n].requires_grad_() for n in row.wrt]
    form, step = FORMS[row.form]
    if is_compiled:
        torch._dynamo.reset()  # of the rows before
        step = torch.compile(step)

    def both() -> Sequence[torch.Tensor]:
        value = form(step, *given, **row.options)
        return (value, *torch.autograd.grad(value, wrt, cotangents)) if wrt else (value,)

    return both

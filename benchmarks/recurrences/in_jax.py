"""The recurrences in JAX: `jax.lax.scan`, each row one function that is compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax, nn

from benchmarks.recurrences.ours import FAR, NEVER
from benchmarks.rows.cases import Row
from benchmarks.rows.in_jax import prepared as prepared_of

NAME = "jax"
Run = Callable[[], Sequence[Array]]


def _gates(i, f, g, o, c):
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    h = nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def lstm(x, wx, wh, bias):
    start = jnp.zeros((x.shape[1], wh.shape[1]))

    def step(state, row):
        i, f, g, o = jnp.split(row + state[0] @ wh.T, 4, axis=1)
        return _gates(i, f, g, o, state[1])

    return lax.scan(step, (start, start), x @ wx.T + bias)[1]


def mi_lstm(x, wx, wh, bx, bh, alpha, beta1, beta2):
    start = jnp.zeros((x.shape[1], wh.shape[1]))

    def step(state, u):
        g = state[0] @ wh.T + bh
        i, f, o, z = jnp.split(alpha * u * g + beta1 * u + beta2 * g, 4, axis=1)
        return _gates(i, f, z, o, state[1])

    return lax.scan(step, (start, start), x @ wx.T + bx)[1]


def selective_scan(x, wd, bd, wb, wc, a, d):
    keep = -jnp.exp(a)

    def step(h, row):
        x, delta, b, c = row
        h = jnp.exp(delta[..., None] * keep) * h + (delta * x)[..., None] * b[:, None]
        return h, jnp.einsum("sin,sn->si", h, c) + d * x

    rows = (x, nn.softplus(x @ wd + bd), x @ wb, x @ wc)
    return lax.scan(step, jnp.zeros((x.shape[1], *a.shape)), rows)[1]


def rwkv(x, mix_k, mix_v, mix_r, wk, wv, wr, wo, decay, bonus):
    before = jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    k, v, r = ((x * m + before * (1 - m)) @ w for m, w in ((mix_k, wk), (mix_v, wv), (mix_r, wr)))
    slower = jnp.exp(decay)

    def step(state, row):
        (a, b, p), (k, v) = state, row
        most = jnp.maximum(p, bonus + k)
        old, new = jnp.exp(p - most), jnp.exp(bonus + k - most)
        mixed = (old * a + new * v) / (old * b + new)
        most = jnp.maximum(p - slower, k)
        old, new = jnp.exp(p - slower - most), jnp.exp(k - most)
        return (old * a + new * v, old * b + new, most), mixed

    start = jnp.zeros(x.shape[1:])
    mixed = lax.scan(step, (start, start, start - 1e30), (k, v))[1]
    return (nn.sigmoid(r) * mixed) @ wo


def soft_dtw(x, y, gamma):
    t, batch, _ = x.shape
    cost = ((x[:, None] - y[None]) ** 2).sum(3)
    i = jnp.arange(t)
    j = jnp.arange(2 * t - 1)[:, None] - i
    rows = jnp.moveaxis(cost[i, j.clip(0, t - 1)], 2, 1)
    rows = jnp.where(((j >= 0) & (j < t))[:, None], rows, FAR)

    def step(state, row):
        two, one = state
        near = jnp.stack([two[:, :-1], one[:, :-1], one[:, 1:]])
        soft = -gamma * nn.logsumexp(-near / gamma, 0)
        return (one, jnp.pad(row + soft, ((0, 0), (1, 0)), constant_values=FAR)), None

    far = jnp.full((batch, t + 1), FAR)
    return lax.scan(step, (far.at[:, 0].set(0), far), rows)[0][1][:, t]


def ctc(logits, labels):
    batch, s = labels.shape
    wanted = jnp.full((batch, 2 * s + 1), logits.shape[2] - 1, labels.dtype).at[:, 1::2].set(labels)
    may_skip = jnp.pad(wanted[:, 2:] != wanted[:, :-2], ((0, 0), (2, 0)))
    rows = jnp.take_along_axis(nn.log_softmax(logits), jnp.broadcast_to(wanted, (len(logits), *wanted.shape)), 2)

    def step(alpha, row):
        one, two = (jnp.pad(alpha, ((0, 0), (n, 0)), constant_values=NEVER)[:, :-n] for n in (1, 2))
        return nn.logsumexp(jnp.stack([alpha, one, jnp.where(may_skip, two, NEVER)]), 0) + row, None

    start = jnp.full(wanted.shape, NEVER).at[:, 0].set(0)
    last, _ = lax.scan(step, start, rows)
    return -nn.logsumexp(last[:, -2:], 1)


def _field(h, w1, b1, w2, b2):
    return jnp.tanh(h @ w1 + b1) @ w2 + b2


def euler(h, *given, steps):
    return lax.scan(lambda h, _: (h + _field(h, *given) / steps, None), h, None, steps)[0]


def rk4(h, *given, steps):
    size = 1 / steps

    def step(h, _):
        k1 = _field(h, *given)
        k2 = _field(h + size / 2 * k1, *given)
        k3 = _field(h + size / 2 * k2, *given)
        k4 = _field(h + size * k3, *given)
        return h + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return lax.scan(step, h, None, steps)[0]


def _normed(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def decoder(words, places, wq, wk, wv, wo, w1, w2, first):
    steps, width = places.shape
    kept = jnp.zeros((steps, len(first), width))

    def step(state, row):
        (word, keys, values), (n, place) = state, row
        x = words[word] + place
        keys = lax.dynamic_update_slice(keys, (_normed(x) @ wk)[None], (n, 0, 0))
        values = lax.dynamic_update_slice(values, (_normed(x) @ wv)[None], (n, 0, 0))
        scores = jnp.einsum("bi,tbi->bt", _normed(x) @ wq, keys) * width**-0.5
        scores = nn.softmax(jnp.where(jnp.arange(steps) <= n, scores, NEVER))
        x = x + jnp.einsum("bt,tbi->bi", scores, values) @ wo
        x = x + nn.gelu(_normed(x) @ w1, approximate=False) @ w2
        chances = nn.log_softmax(_normed(x) @ words.T)
        return (chances.argmax(1).astype(first.dtype), keys, values), chances.max(1)

    return lax.scan(step, (first, kept, kept), (jnp.arange(steps), places))[1]


FORMS = {f.__name__: f for f in (lstm, mi_lstm, selective_scan, rwkv, soft_dtw, ctc, euler, rk4, decoder)}


def prepared(row: Row, arrays: Sequence[np.ndarray], is_compiled: bool = True) -> Run:
    """What a call computes, all of it done on return."""
    return prepared_of(row, arrays, is_compiled, FORMS)

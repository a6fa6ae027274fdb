"""The recurrences in neoflow: each takes the inputs of a row and its options; time is the first axis."""

from __future__ import annotations

from functools import reduce

import neoflow as nf
from benchmarks.rows.cases import Row
from benchmarks.rows.ours import program as program_of
from neoflow.nn import functional as F

FAR = 1e8
"""More than any cost of a path, so that no minimum takes it."""
NEVER = -1e8
"""Less than the logarithm of any probability there is."""


def _logaddexp(*terms):
    """log(exp(a) + exp(b) + ...); what the terms are made relative to has no part in the derivative."""
    most = nf.stop_gradient(reduce(nf.maximum, terms))
    return most + nf.log(reduce(lambda a, b: a + b, (nf.exp(t - most) for t in terms)))


def lstm(x, wx, wh, bias):
    """x [T, B, I]; the gates' rows are in the order i, f, g, o. Hochreiter and Schmidhuber, 1997."""
    start = nf.zeros((x.shape[1], wh.shape[1]))

    def step(state, row):
        h, c = F.lstm_cell(row, *state, wx, wh, bias)
        return (h, c), h

    return nf.scan(step, (start, start), x)[1]


def mi_lstm(x, wx, wh, bx, bh, alpha, beta1, beta2):
    """x [T, B, I]; the gates' rows are in the order i, f, o, z. Wu et al., 2016."""
    size = wh.shape[1]
    start = nf.zeros((x.shape[1], size))

    def step(state, row):
        h, c = state
        u, g = F.linear(row, wx, bx), F.linear(h, wh, bh)
        pre = alpha * u * g + beta1 * u + beta2 * g
        h, c = F.lstm_gates(pre, c, {"i": 0, "f": size, "o": 2 * size, "g": 3 * size})
        return (h, c), h

    return nf.scan(step, (start, start), x)[1]


def selective_scan(x, wd, bd, wb, wc, a, d):
    """x [T, B, D], a [D, N]: the state of a channel is N numbers. Gu and Dao, Mamba, 2023, algorithm 2."""
    delta = F.softplus(x @ wd + bd)
    keep, enter, leave = -nf.exp(a), x @ wb, x @ wc

    def step(h, row):
        x, delta, b, c = row
        h = nf.expr(
            "h[s,i,n] = exp(delta[s,i] * keep[i,n]) * old[s,i,n] + delta[s,i] * x[s,i] * b[s,n]",
            delta=delta, keep=keep, old=h, x=x, b=b,
        )  # fmt: skip
        return h, nf.expr("y[s,i] = sum[n](h[s,i,n] * c[s,n])", h=h, c=c) + d * x

    return nf.scan(step, nf.zeros((x.shape[1], *a.shape)), (x, delta, enter, leave))[1]


def rwkv(x, mix_k, mix_v, mix_r, wk, wv, wr, wo, decay, bonus):
    """The time mixing: x [T, B, D]. Peng et al., RWKV, 2023, section 3.1, its sums kept relative to the largest."""
    before = nf.concat([nf.zeros((1, *x.shape[1:])), x[:-1]])
    k, v, r = ((x * m + before * (1 - m)) @ w for m, w in ((mix_k, wk), (mix_v, wv), (mix_r, wr)))
    slower = nf.exp(decay)

    def step(state, row):
        (a, b, p), (k, v) = state, row
        most = nf.maximum(p, bonus + k)
        old, new = nf.exp(p - most), nf.exp(bonus + k - most)
        mixed = (old * a + new * v) / (old * b + new)
        most = nf.maximum(p - slower, k)
        old, new = nf.exp(p - slower - most), nf.exp(k - most)
        return (old * a + new * v, old * b + new, most), mixed

    start = nf.zeros(x.shape[1:])
    _, mixed = nf.scan(step, (start, start, nf.full(x.shape[1:], -1e30)), (k, v))
    return (nf.sigmoid(r) * mixed) @ wo


def soft_dtw(x, y, gamma):
    """The cost of aligning x [T, B, D] and y [T, B, D], a number of each of B pairs, diagonal by diagonal.

    Cuturi and Blondel, Soft-DTW, 2017, algorithm 1.
    """
    t, batch, _ = x.shape
    cost = nf.expr("cost[i,j,b] = sum[d]((x[i,b,d] - y[j,b,d]) ** 2)", x=x, y=y)
    given = {"cost": cost, "t": t, "far": FAR}
    diagonals = "c[k,b,i] = select(k >= i and k - i < t, cost[i,k-i,b], far)"
    rows = nf.expr(diagonals, extents={"k": 2 * t - 1}, **given)

    def step(state, row):
        two, one = state
        least = -gamma * _logaddexp(*(-v / gamma for v in (two[:, :-1], one[:, :-1], one[:, 1:])))
        return (one, nf.pad(row + least, ((0, 0), (1, 0)), value=FAR)), None

    first = nf.compute((batch, t + 1), lambda b, i: nf.select(i == 0, 0.0, FAR))
    (_, last), _ = nf.scan(step, (first, nf.full((batch, t + 1), FAR)), rows)
    return last[:, t]


def ctc(logits, labels):
    """The loss of logits [T, B, C] for labels [B, S]; the last class is the blank. Graves et al., 2006, section 4.1."""
    (batch, s), blank = labels.shape, logits.shape[2] - 1
    pairs = nf.pad(labels[:, :, None], ((0, 0), (0, 0), (1, 0)), value=blank)
    wanted = nf.pad(nf.reshape(pairs, (batch, 2 * s)), ((0, 0), (0, 1)), value=blank)
    may_skip = nf.pad(wanted[:, 2:] != wanted[:, :-2], ((0, 0), (2, 0)))
    rows = nf.expr("e[t,b,i] = p[t,b,wanted[b,i]]", p=F.log_softmax(logits), wanted=wanted)

    def step(alpha, row):
        one, two = (nf.pad(alpha[:, :-n], ((0, 0), (n, 0)), value=NEVER) for n in (1, 2))
        return _logaddexp(alpha, one, nf.select(may_skip, two, NEVER)) + row, None

    start = nf.compute((batch, 2 * s + 1), lambda b, i: nf.select(i == 0, 0.0, NEVER))
    last, _ = nf.scan(step, start, rows)
    return -_logaddexp(last[:, 2 * s - 1], last[:, 2 * s])


def _field(h, w1, b1, w2, b2):
    return nf.tanh(h @ w1 + b1) @ w2 + b2


def euler(h, w1, b1, w2, b2, steps):
    """dh/dt = f(h) over one unit of time. Chen et al., Neural ordinary differential equations, 2018."""

    def step(h, _):
        return h + _field(h, w1, b1, w2, b2) / steps, None

    return nf.scan(step, h, length=steps)[0]


def rk4(h, w1, b1, w2, b2, steps):
    """The same by the method of Runge and Kutta of order 4."""
    size = 1.0 / steps

    def step(h, _):
        k1 = _field(h, w1, b1, w2, b2)
        k2 = _field(h + size / 2 * k1, w1, b1, w2, b2)
        k3 = _field(h + size / 2 * k2, w1, b1, w2, b2)
        k4 = _field(h + size * k3, w1, b1, w2, b2)
        return h + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return nf.scan(step, h, length=steps)[0]


def decoder(words, places, wq, wk, wv, wo, w1, w2, first):
    """Words that follow `first` [B], each the likeliest, as their log-probabilities [T, B]; T are the places.

    One layer with keys and values kept of all steps. Radford et al., Language models are unsupervised multitask
    learners, 2019, section 2.3.
    """
    steps, width = places.shape
    kept = nf.zeros((steps, first.shape[0], width))

    def step(state, row):
        word, keys, values = state
        n, place = row
        x = F.embedding(words, word) + place
        normed = F.layer_norm(x)
        keys, values = (
            nf.expr("kept[t,b,i] = select(t == n, new[b,i], old[t,b,i])", n=n, new=normed @ w, old=old)
            for w, old in ((wk, keys), (wv, values))
        )
        scores = nf.einsum("bi,tbi->bt", normed @ wq, keys) * width**-0.5
        scores = F.softmax(nf.select(nf.arange(steps) <= n, scores, NEVER))
        x = x + nf.einsum("bt,tbi->bi", scores, values) @ wo
        x = x + F.gelu(F.layer_norm(x) @ w1) @ w2
        chances = F.log_softmax(F.layer_norm(x) @ nf.transpose(words))
        return (nf.argmax(chances, axis=1), keys, values), nf.max(chances, axis=1)

    return nf.scan(step, (first, kept, kept), (nf.arange(steps), places))[1]


FORMS = {f.__name__: f for f in (lstm, mi_lstm, selective_scan, rwkv, soft_dtw, ctc, euler, rk4, decoder)}


def program(row: Row) -> tuple[list[nf.Tensor], list[nf.Tensor], list[nf.Tensor]]:
    """Roots, all inputs of the row, and the value alone."""
    return program_of(row, FORMS)

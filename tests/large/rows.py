"""Lookups, attention, normalisations, recurrences and rearrangements."""

from __future__ import annotations

import math

import neoflow as nf
from neoflow.expr.tensor import Tensor
from neoflow.nn import functional as F
from tests.large.inputs import ELEMENTS, WORK, Inputs


class Rows(Inputs):
    """Blocks of models that go through rows, and that move elements."""

    # ------------------------------------------------------------------------------------------------- lookups

    def embedding(self) -> Tensor:
        rows, width = self.pick((2, 31, 257, 1000)), self.extent(100)
        table = self.fresh((rows, width))
        return F.embedding(table, self.ids(self.shape(self.between(1, 2), ELEMENTS // width), rows))

    def gathered(self) -> Tensor:
        x = self.tensor(2, 20_000)
        axis = self.between(0, 1)
        if self.chance(0.5):
            return nf.take(x, self.ids((self.extent(ELEMENTS // x.size + 1),), x.shape[axis]), axis)
        return nf.take_along_axis(x, self.ids(x.shape, x.shape[axis]), axis)

    def scattered(self) -> Tensor:
        x = self.tensor(2, 50_000)
        rows = self.pick((1, 17, 257))
        ids, (i, j) = self.ids((x.shape[0],), rows), (nf.axis(n) for n in x.shape)
        return nf.scatter((rows, x.shape[1]), [i, j], (ids[i], j), x[i, j])

    # ---------------------------------------------------------------------------------- rows and normalisation

    def attention(self) -> Tensor:
        batch = self.shape(self.between(0, 2), 8)
        s, t, d, e = (self.extent(n) for n in (65, 129, 64, 64))
        if math.prod(batch) * s * t > ELEMENTS:
            s, t = 17, 31
        q, k, v = self.fresh((*batch, s, d)), self.fresh((*batch, t, d)), self.fresh((*batch, t, e))
        kind = self.between(0, 3)
        mask = None
        if kind == 1:
            mask = nf.placeholder((s, t), "bool", name=f"m{len(self.feeds)}")
            self.feeds[mask] = self.rng.random((s, t)) < 0.7
        elif kind == 2:
            mask = self.fresh((s, t))
        return F.scaled_dot_product_attention(q, k, v, mask, causal=kind == 3)

    def self_attention(self) -> Tensor:
        heads, depth = self.pick((1, 3, 4)), self.pick((5, 8, 16))
        width = heads * depth
        x = self.known(lambda t: t.rank == 3 and t.shape[2] == width and t.shape[1] <= 65)
        x = self.fresh((self.between(1, 3), self.pick((5, 17, 64)), width)) if x is None else x
        w, o = self.fresh((3 * width, width), width**-0.5), self.fresh((width, width), width**-0.5)
        y = F.multi_head_attention(
            x, w, self.fresh((3 * width,)), o, self.fresh((width,)), heads, causal=self.chance(0.5)
        )
        return F.layer_norm(x + y, self.fresh((width,)), self.fresh((width,)))

    def normalised(self) -> Tensor:
        x = self.tensor(self.between(1, 4), least=2)
        axis = self.between(0, x.rank - 1)
        match self.between(0, 5):
            case 0:
                return F.softmax(x, axis)
            case 1:
                return F.log_softmax(x, axis)
            case 2:
                return F.layer_norm(x, self.fresh(x.shape[-1:]), self.fresh(x.shape[-1:]), eps=1e-2)
            case 3:
                return F.squash(x, axis, eps=1e-2)
            case 4:
                return F.logsumexp(x, axis, keepdims=self.chance(0.5))
        dims = [d for d in range(x.rank) if self.chance(0.5)] or [axis]
        mean = nf.mean(x, axis=dims, keepdims=True)
        z = x - mean
        return z * nf.rsqrt(nf.mean(z * z, axis=dims, keepdims=True) + 0.01)

    def routing(self) -> Tensor:
        """Capsules that agree, by two rounds of routing."""
        b, n, m, d = self.between(1, 3), self.extent(129), self.pick((2, 5, 10)), self.pick((4, 8, 16))
        u = self.fresh((b, n, m, d))
        logits = nf.zeros((b, n, m))
        for turn in range(2):
            c = F.softmax(logits, 2)
            s = nf.expr("s[b,m,d] = sum(c[b,n,m] * u[b,n,m,d])", c=c, u=u)
            v = F.squash(s * (1 / math.sqrt(n)), eps=1e-2)
            if turn == 0:
                logits = logits + nf.expr("a[b,n,m] = sum(u[b,n,m,d] * v[b,m,d])", u=u, v=v)
        return v

    def reduced(self) -> Tensor:
        """A reduction over any subset of axes."""
        x = self.tensor(self.between(1, 5))
        dims = [d for d in range(x.rank) if self.chance(0.5)] or [self.between(0, x.rank - 1)]
        count = math.prod(x.shape[d] for d in dims)
        keep = self.chance(0.3)
        match self.between(0, 4):
            case 0:
                return nf.max(self.fresh(x.shape), axis=dims, keepdims=keep)
            case 1:
                return nf.sum(x * x, axis=dims, keepdims=keep) * (1 / count)
            case 2:
                return nf.sum(nf.exp(nf.tanh(x)), axis=dims, keepdims=keep) * (1 / count)
            case 3:
                return nf.prod(1.0 + nf.tanh(x) * (0.5 / count), axis=dims, keepdims=keep)
        return nf.sum(x, axis=dims, keepdims=keep) * (1 / math.sqrt(count))

    def cumulative(self) -> Tensor:
        """Sums over a triangle: running, or of a masked product."""
        x = self.tensor(2, 30_000)
        n, m = x.shape
        if n * m * m > WORK:
            x = self.fresh((17, 100))
            n, m = x.shape
        k, scale = nf.axis(m), 1 / math.sqrt(m)
        if self.chance(0.5):
            return nf.compute((n, m), lambda i, j: nf.sum(nf.select(k <= j, x[i, k], 0.0), axis=[k]) * scale)
        w = self.fresh((m, m), scale)
        return nf.compute((n, m), lambda i, j: nf.sum(nf.select(k >= j, x[i, k] * w[k, j], 0.0), axis=[k]))

    # ---------------------------------------------------------------------------------------------- recurrence

    def recurrence(self) -> Tensor:
        """Two to five steps with shared weights."""
        steps, b, n, h = self.between(2, 5), self.pick((1, 5, 16)), self.pick((3, 17, 64)), self.pick((5, 16, 31, 64))
        x = self.fresh((steps, b, n))
        gates = self.pick((1, 3, 4))
        wx, wh = self.fresh((gates * h, n), n**-0.5), self.fresh((gates * h, h), h**-0.5)
        bias = self.fresh((gates * h,), 0.5)
        state, cell, seen = nf.zeros((b, h)) if self.chance(0.5) else self.fresh((b, h)), self.fresh((b, h)), []
        for t in range(steps):
            if gates == 1:
                state = nf.tanh(F.linear(x[t], wx, bias) + F.linear(state, wh))
            elif gates == 3:
                state = F.gru_cell(x[t], state, wx, wh, bias)
            else:
                state, cell = F.lstm_cell(x[t], state, cell, wx, wh, bias)
            seen.append(state)
        return nf.stack(seen, self.between(0, 2)) if self.chance(0.5) else state

    # ------------------------------------------------------------------------------------------- rearrangements

    def rearranged(self) -> Tensor:
        x = self.tensor(self.between(2, 4), 50_000)
        axis = self.between(0, x.rank - 1)
        n = x.shape[axis]
        match self.between(0, 8):
            case 0:
                return nf.transpose(x, self.shuffled(range(x.rank)))
            case 1:
                return nf.reshape(x, self.refolded(x.size, self.between(1, 4)))
            case 2:
                return nf.concat(
                    [x, nf.tanh(x), self.fresh((*x.shape[:axis], self.between(1, 5), *x.shape[axis + 1 :]))], axis
                )
            case 3:
                return (
                    nf.pad(x, [(self.between(0, 3), self.between(0, 3)) for _ in x.shape]) if x.size < 5000 else x * 0.5
                )
            case 4:
                return nf.flip(x, axis)
            case 5:
                return nf.roll(x, self.between(1, n), axis)
            case 6:
                return nf.repeat(x, 2, axis) + 0.0 * nf.tile(x[(slice(None),) * axis + (slice(0, 1),)], 1)
            case 7:
                return nf.stack([x, x * x * 0.5], axis)
        start = self.between(0, n - 1)
        return x[(slice(None),) * axis + (slice(start, None, self.between(1, 3)),)]

    def elementwise(self) -> Tensor | list[Tensor]:
        """A chain with several readers."""
        x = self.tensor(self.between(1, 4))
        y = self.fresh(tuple(1 if self.chance(0.2) else n for n in x.shape[self.between(0, x.rank - 1) :]))
        t = nf.sin(x) * y + 0.5
        u = nf.exp(nf.tanh(t)) / (1.0 + t * t)
        if self.chance(0.3):
            return [t * u, nf.sigmoid(u - t)]
        if self.chance(0.3):
            return nf.relu(y) * u + nf.maximum(y, 0.1)
        return u + t * nf.erf(x) if self.chance(0.5) else nf.sqrt(u * u + 1.0) - nf.cos(t)

    def crossed(self) -> Tensor:
        """A tensor and its transpose in one expression."""
        x = self.tensor(2, 20_000)
        n, m = x.shape
        z = self.fresh((m, n))
        return nf.compute((n, m), lambda i, j: nf.tanh(x[i, j]) * z[j, i] + nf.select(i >= j, x[i, j], 0.25))

"""Random programs of the size of small models, the same for the same seed: what `strategies` is too small to reach.

Blocks that models are made of, in any order and with any reader of any tensor before: contractions with several axes
on a side, convolutions, attention, normalisations, lookups, recurrences, rearrangements. A tensor has up to 100,000
elements, so loops are parallel, operands packed, sums split and rows long.

Values stay near 1 in size. Functions with kinks are applied to inputs alone: those have the same bits however the
program is computed, so no rounding takes an element to the other side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

import neoflow as nf
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import Compute, Parameter, Tensor, topological
from neoflow.nn import functional as F
from tests.chance import Chance

EXTENTS = (1, 2, 3, 5, 8, 16, 17, 31, 64, 65, 100, 129, 257, 1000)
ELEMENTS, WORK = 100_000, 20_000_000
"""Most elements of a tensor; most points of a contraction."""


@dataclass
class Large:
    """Outputs, a scalar loss over all of them, and an array for each input."""

    seed: int
    outputs: list[Tensor]
    loss: Tensor
    feeds: dict[Tensor, np.ndarray] = field(default_factory=dict)

    @property
    def float_inputs(self) -> list[Tensor]:
        """The placeholders and parameters one can differentiate by."""
        return [t for t in self.feeds if t.dtype == "float32"]

    @property
    def parameters(self) -> list[Parameter]:
        return [t for t in self.feeds if isinstance(t, Parameter)]

    def __str__(self) -> str:
        return f"# seed {self.seed}\n{print_program(topological([*self.outputs, self.loss]))}"


def large_program(seed: int, training: bool = False) -> Large:
    """The program of a seed; with `training` some of its inputs are parameters."""
    return _Builder(seed, training).program()


class _Builder(Chance):
    def __init__(self, seed: int, training: bool):
        super().__init__(np.random.default_rng((seed, training)))
        self.seed, self.training = seed, training
        self.feeds: dict[Tensor, np.ndarray] = {}
        self.made: list[Tensor] = []
        """float tensors to read, the latest last"""

    # ------------------------------------------------------------------------------------------------- shapes

    def extent(self, most: int) -> int:
        """An extent up to `most`, large ones as often as small ones."""
        return self.pick([n for n in EXTENTS if n <= max(most, 1)])

    def shape(self, rank: int, points: int = ELEMENTS) -> tuple[int, ...]:
        dims: list[int] = []
        for _ in range(rank):
            dims.append(self.extent(points // math.prod(dims)))
        self.rng.shuffle(dims)
        return tuple(dims)

    # ------------------------------------------------------------------------------------------------- tensors

    def fresh(self, shape: Sequence[int], size: float = 1.0) -> Tensor:
        """A new input of the standard deviation `size`: a parameter now and then, when training."""
        make, kind = (nf.parameter, "w") if self.training and self.chance(0.7) else (nf.placeholder, "x")
        t = make(tuple(shape), name=f"{kind}{len(self.feeds)}")
        self.feeds[t] = (size * self.rng.standard_normal(tuple(shape))).astype(np.float32)
        return t

    def ids(self, shape: Sequence[int], below: int) -> Tensor:
        """New indices in [0, below)."""
        t = nf.placeholder(tuple(shape), self.pick(("int64", "int32")), name=f"n{len(self.feeds)}")
        self.feeds[t] = self.rng.integers(0, below, tuple(shape)).astype(t.dtype)
        return t

    def known(self, fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        """A tensor made before, often the latest."""
        found = [t for t in self.made if fits(t)]
        if not found:
            return None
        return found[-1] if self.chance(0.6) else self.pick(found)

    def tensor(self, rank: int, points: int = ELEMENTS, least: int = 1) -> Tensor:
        """A tensor of `rank` and at most `points` elements: made before, perhaps under another shape, or new."""
        if self.chance(0.75):
            t = self.known(lambda t: t.rank == rank and t.size <= points and min(t.shape, default=1) >= least)
            if t is not None:
                return t
            t = self.known(lambda t: t.size <= points)
            if t is not None:
                shape = self.refolded(t.size, rank)
                if min(shape, default=1) >= least:
                    return nf.reshape(t, shape)
        shape = self.shape(rank, points)
        return self.fresh(tuple(max(n, least) for n in shape))

    def refolded(self, size: int, rank: int) -> tuple[int, ...]:
        """`size` as a product of `rank` extents."""
        dims = []
        for _ in range(rank - 1):
            divisors = [d for d in range(1, min(size, 300) + 1) if size % d == 0]
            dims.append(self.pick(divisors))
            size //= dims[-1]
        return (*self.shuffled([*dims, size]),)

    # ------------------------------------------------------------------------------------------------- program

    def program(self) -> Large:
        for _ in range(self.between(2, 6)):
            y = self.pick(BLOCKS)(self)
            self.made += y if isinstance(y, list) else [y]
        read = {s for t in topological(self.made) if isinstance(t, Compute) for s in t.inputs}
        outputs = [t for t in self.made if isinstance(t, Compute) and t not in read]
        loss = None
        for y in outputs:
            kind, scale = self.between(0, 2), 1.0 / math.sqrt(y.size)
            if kind == 0:
                term = nf.sum(y * self.fresh(y.shape)) * scale
            elif kind == 1:
                term = nf.mean(y * y)
            else:
                term = nf.mean(nf.tanh(y))
            loss = term if loss is None else loss + term
        needed = topological([loss, *outputs])
        return Large(self.seed, outputs, loss, {t: a for t, a in self.feeds.items() if any(t is n for n in needed)})

    # -------------------------------------------------------------------------------------------- contractions

    def matmul(self) -> Tensor:
        """One operand as it is, each of the two transposed or not, the result transposed or not."""
        a = self.tensor(2)
        m, k = a.shape
        n = self.extent(min(ELEMENTS // max(m, k), WORK // (m * k)))
        left, right = "ik", self.pick(("kj", "jk"))
        if self.chance(0.4):
            left, (k, m) = "ki", (m, k)
            n = self.extent(min(ELEMENTS // max(m, k), WORK // (m * k)))
        b = self.fresh((k, n) if right == "kj" else (n, k), 1 / math.sqrt(k))
        out = self.pick(("i,j", "j,i"))
        y = nf.expr(f"y[{out}] = sum(a[{','.join(left)}] * b[{','.join(right)}])", a=a, b=b)
        return self.finished(y)

    def contraction(self) -> Tensor:
        """Several axes in each group, in any order in either operand and in the result; a third factor now and then."""
        groups = {"b": self.between(0, 2), "m": self.between(0, 3), "n": self.between(0, 3), "k": self.between(1, 3)}
        names = {g: [f"{g}{n}" for n in range(count)] for g, count in groups.items()}
        extents: dict[str, int] = {}
        limits = {"m": names["b"] + names["m"] + names["k"], "n": names["b"] + names["n"] + names["k"]}
        for name in self.shuffled([n for ns in names.values() for n in ns]):
            extents[name] = 1
            most = WORK // math.prod(extents.values())
            for side in (limits["m"], limits["n"], names["b"] + names["m"] + names["n"]):
                if name in side:
                    most = min(most, ELEMENTS // math.prod(extents.get(s, 1) for s in side))
            extents[name] = self.extent(min(most, 129))
        inner = math.prod(extents[k] for k in names["k"])
        left, right = self.shuffled(limits["m"]), self.shuffled(limits["n"])
        out = self.shuffled(names["b"] + names["m"] + names["n"])
        a = self.fresh([extents[n] for n in left])
        b = self.fresh([extents[n] for n in right], 1 / math.sqrt(inner))
        factors, operands = [f"a[{','.join(left)}]", f"b[{','.join(right)}]"], {"a": a, "b": b}
        if self.chance(0.25):
            some = self.pick((left, right, names["k"]))
            operands["c"] = self.fresh([extents[n] for n in some])
            factors.insert(self.between(0, 2), f"c[{','.join(some)}]")
        if self.chance(0.3):
            changed = self.between(0, len(factors) - 1)
            factors[changed] = f"tanh({factors[changed]})"
        target = f"y[{','.join(out)}]" if out else "y"
        return self.finished(nf.expr(f"{target} = sum[{','.join(names['k'])}]({' * '.join(factors)})", **operands))

    def deep(self) -> Tensor:
        """A long sum for few results, or a large matrix: K in parts, operands packed, rows by blocks."""
        if self.chance(0.5):
            m, n, k = (
                self.between(3, 65),
                self.between(3, 65),
                self.pick(((1000,), (1537,), (8, 129), (3, 17, 31), (40, 33))),
            )
        else:
            m, n, k = self.between(100, 300), self.between(100, 300), ((self.between(31, 257)),)
        names = [f"k{d}" for d in range(len(k))]
        left, right = self.shuffled(["m", *names]), self.shuffled(["n", *names])
        extents = {"m": m, "n": n, **dict(zip(names, k, strict=True))}
        a, b = self.fresh([extents[x] for x in left]), self.fresh([extents[x] for x in right], math.prod(k) ** -0.5)
        a = self.pick((a, a, nf.sin(a), nf.exp(nf.tanh(a) * 0.5)))
        b = self.pick((b, b, nf.tanh(b)))
        out = self.pick(("m,n", "n,m"))
        return self.finished(nf.expr(f"y[{out}] = sum(a[{','.join(left)}] * b[{','.join(right)}])", a=a, b=b))

    def batched(self) -> Tensor:
        """A batch of products; either side may be one matrix for all."""
        a = self.tensor(3)
        batch, m, k = a.shape
        n = self.extent(min(ELEMENTS // (batch * max(m, k)), WORK // a.size))
        shared = self.chance(0.4)
        b = self.fresh((k, n) if shared else (batch, k, n), 1 / math.sqrt(k))
        if shared:
            return self.finished(nf.expr("y[n,i,j] = sum(a[n,i,k] * b[k,j])", a=a, b=b))
        return self.finished(F.matmul(a, b))

    def windows(self) -> Tensor:
        """A product over overlapping windows of two axes, of a plain and of a blocked tensor: what has no name."""
        c, r, p, o = self.extent(17), self.between(2, 5), self.extent(64), self.extent(17)
        step, gap = self.between(1, 2), self.between(1, 2)
        x = self.fresh((c, step * (p - 1) + gap * (r - 1) + 1, self.extent(17)))
        w = self.fresh((o, c, r, x.shape[2]), 1 / math.sqrt(c * r * x.shape[2]))
        body = f"x[c,{step}*p+{gap}*r,d] * w[o,c,r,d]"
        kept = self.chance(0.5)
        return self.finished(nf.expr(f"y[o,p{',d' * kept}] = sum[c,r{'' if kept else ',d'}]({body})", x=x, w=w))

    def capsules(self) -> Tensor:
        i, k, j = (self.pick((1, 2, 4, 5)) for _ in range(3))
        size = self.between(5, 11)
        x = self.fresh((self.between(1, 3), self.pick((3, 8)), size, size, i, k))
        w = self.fresh((self.pick((3, 16)), x.shape[1], 3, 3, k, j), 1 / math.sqrt(9 * k * x.shape[1]))
        return self.finished(F.capsule_conv(x, w, stride=self.between(1, 2), padding=self.between(0, 1)))

    def finished(self, y: Tensor) -> Tensor:
        """What may follow a product in the same kernel."""
        match self.between(0, 5):
            case 0 if y.rank:
                return nf.tanh(y + self.fresh(y.shape[-1:]))
            case 1:
                return F.gelu(y)
            case 2:
                return y * self.fresh(y.shape)
            case 3 if self.chance(0.4):
                return y + nf.take(self.fresh((31,)), self.ids(y.shape, 31), 0)
            case 4 if y.rank > 1 and self.chance(0.4):
                return y + F.embedding(self.fresh((31, y.shape[-1])), self.ids(y.shape[:-1], 31))
        return y

    # -------------------------------------------------------------------------------------------- convolutions

    def conv1d(self) -> Tensor:
        x = self.tensor(3, 30_000, least=3)
        groups = self.pick([g for g in (1, 1, 2, 3, x.shape[1]) if x.shape[1] % g == 0 and g <= 64])
        kernel, dilation, padding = self.between(1, 3), self.between(1, 2), self.between(0, 2)
        if x.shape[2] + 2 * padding <= dilation * (kernel - 1):
            kernel = 1
        most = max(1, min(ELEMENTS // (x.shape[0] * (x.shape[2] + 4) * groups), 64 // groups, WORK // (3 * x.size)))
        outputs, inner = groups * self.extent(most), x.shape[1] // groups
        w = self.fresh((outputs, inner, kernel), 1 / math.sqrt(inner * kernel))
        bias = self.fresh((outputs,)) if self.chance(0.5) else None
        return self.acted(F.conv1d(x, w, bias, self.between(1, 3), padding, dilation, groups))

    def image(self, channels: int | None = None) -> Tensor:
        n, c = self.pick((1, 2, 5)), channels or self.pick((1, 3, 8, 17))
        x = self.known(lambda t: t.rank == 4 and min(t.shape[2:]) >= 5 and channels in (None, t.shape[1]))
        if x is not None and self.chance(0.6):
            return x
        return self.fresh((n, c, self.between(5, 20), self.pick((5, 16, 17, 28))))

    def conv2d(self) -> Tensor:
        x = self.image()
        c, (h, w) = x.shape[1], x.shape[2:]
        groups = self.pick([g for g in (1, 1, 1, 2, c) if c % g == 0])
        r, s = self.pick(((1, 1), (3, 3), (3, 3), (2, 3), (5, 1)))
        most = max(
            1, min(ELEMENTS // (x.shape[0] * (h + 2) * (w + 2) * groups), WORK // (r * s * x.size), 32 // groups)
        )
        outputs = groups * self.extent(most)
        weight = self.fresh((outputs, c // groups, r, s), 1 / math.sqrt(c // groups * r * s))
        stride, padding = self.pick((1, 1, 2, (2, 1))), self.between(0, 2)
        dilation = self.between(1, 2) if min(h, w) > 10 else 1
        bias = self.fresh((outputs,)) if self.chance(0.5) else None
        return self.acted(F.conv2d(x, weight, bias, stride, padding, dilation, groups))

    def depthwise(self) -> Tensor:
        x = self.image()
        w = self.fresh((self.between(1, 2) * x.shape[1], 1, 3, 3), 1 / 3)
        return self.acted(F.depthwise_conv2d(x, w, None, self.between(1, 2), self.between(0, 1)))

    def conv_transpose(self) -> Tensor:
        if self.chance(0.5):
            x = self.fresh((self.between(1, 3), self.pick((3, 8)), self.pick((5, 31, 64))))
            w = self.fresh((x.shape[1], self.pick((1, 5, 16)), self.between(1, 4)), 0.3)
            return self.acted(F.conv_transpose1d(x, w, None, self.between(1, 3), 0))
        x = self.image()
        if x.size > 20_000:
            x = self.fresh((1, 3, 7, 9))
        w = self.fresh((x.shape[1], self.pick((1, 3, 8)), 3, 3), 0.3)
        return self.acted(F.conv_transpose2d(x, w, None, self.between(1, 2), self.between(0, 1)))

    def pool(self) -> Tensor:
        x = self.image()
        if self.chance(0.5):
            return F.avg_pool(x, self.between(2, 3), self.between(1, 3), self.between(0, 1))
        return F.max_pool(self.fresh(x.shape), self.between(2, 3), self.between(1, 3), self.between(0, 1))

    def acted(self, y: Tensor) -> Tensor:
        match self.between(0, 3):
            case 0:
                return F.silu(y)
            case 1 if y.rank == 4 and y.size // y.shape[1] > 8:
                c = (y.shape[1],)
                return F.batch_norm(y, self.fresh(c), self.fresh(c), nf.zeros(c), nf.ones(c)).y
        return y

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


BLOCKS = (
    [_Builder.matmul] * 3
    + [_Builder.contraction] * 4
    + [_Builder.deep] * 3
    + [_Builder.batched] * 2
    + [_Builder.windows, _Builder.capsules, _Builder.conv1d, _Builder.conv1d]
    + [_Builder.conv2d] * 3
    + [_Builder.depthwise, _Builder.conv_transpose, _Builder.pool]
    + [_Builder.embedding, _Builder.gathered, _Builder.scattered]
    + [_Builder.attention, _Builder.self_attention, _Builder.routing, _Builder.cumulative]
    + [_Builder.normalised] * 3
    + [_Builder.reduced] * 3
    + [_Builder.recurrence] * 2
    + [_Builder.rearranged] * 4
    + [_Builder.elementwise] * 3
    + [_Builder.crossed]
)

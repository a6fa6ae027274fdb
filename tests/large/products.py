"""Contractions with several axes on a side, and convolutions, with what may follow them in a kernel."""

from __future__ import annotations

import math

import neoflow as nf
from neoflow.expr.tensor import Tensor
from neoflow.nn import functional as F
from tests.large.inputs import ELEMENTS, WORK, Inputs


class Products(Inputs):
    """Blocks of models that are sums of products."""

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

"""Random scalar expressions, indices among them, over tensors made before and new inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from neoflow.expr import affine, dsl, typed
from neoflow.expr.ir import Axis, Expr
from neoflow.expr.tensor import Tensor
from tests.chance import Chance
from tests.strategies.limits import JUMPS, STOPS, Limits

Value = tuple[Expr, float]
"""An expression and a bound on its absolute value."""


class Scalars(Chance):
    """Draws scalar expressions, and the inputs they read."""

    def __init__(self, seed: int, limits: Limits):
        super().__init__(np.random.default_rng(seed))
        self.seed, self.limits = seed, limits
        self.feeds: dict[Tensor, np.ndarray] = {}
        self.floats: list[tuple[Tensor, float]] = []
        self.ints: list[tuple[Tensor, int, int]] = []
        """integer tensors with the least and greatest value they hold"""
        self.consumed: set[Tensor] = set()
        self.budget = 0
        self.reductions = 0
        self.latest: tuple[Tensor, float] | None = None

    def known(self) -> tuple[Tensor, float]:
        """A float tensor made before with its bound; often the latest, so that programs get deep."""
        if self.latest is not None and self.chance(0.6):
            return self.latest
        return self.pick(self.floats)

    def axis(self, extent: int) -> Axis:
        """A reduction axis, named by its place in this program."""
        self.reductions += 1
        return dsl.axis(extent, f"k{self.reductions}")

    def shape(self, rank: int, points: int) -> tuple[int, ...]:
        dims = []
        for _ in range(rank):
            n = self.between(1, max(1, min(self.limits.extent, points)))
            dims.append(n)
            points //= n
        self.rng.shuffle(dims)
        return tuple(dims)

    def fresh(self, shape: tuple[int, ...]) -> tuple[Tensor, float]:
        """A new float input, values in (-1.5, 1.5)."""
        t = dsl.placeholder(shape, self.limits.dtype, name=f"x{len(self.feeds)}")
        self.feeds[t] = self.rng.uniform(-1.5, 1.5, shape).astype(_numpy(self.limits.dtype))
        self.floats.append((t, 1.5))
        return t, 1.5

    def fresh_ids(self, shape: tuple[int, ...], high: int) -> Tensor:
        """A new integer input with values in [0, high]."""
        dtype = self.pick(("int64", "int32"))
        t = dsl.placeholder(shape, dtype, name=f"n{len(self.feeds)}")
        self.feeds[t] = self.rng.integers(0, high + 1, shape).astype(dtype)
        self.ints.append((t, 0, high))
        return t

    # ------------------------------------------------------------------------------------------- index arithmetic

    def index(self, axes: list[Axis]) -> Expr:
        """A quasi-affine expression of some axes."""
        i: Expr = self.pick(axes) if axes else affine.integer(self.between(0, 3))
        j: Expr = self.pick(axes) if axes else affine.integer(1)
        a, b, c = self.between(1, 3), self.between(1, 3), self.between(2, 4)
        return self.pick(
            (
                lambda: i,
                lambda: i,
                lambda: i,
                lambda: a * i,
                lambda: a * i + b * j,
                lambda: i + b * j,
                lambda: i - j,
                lambda: -i,
                lambda: affine.integer(self.between(0, 2)),
                lambda: i // c,
                lambda: i % c,
                lambda: (a * i + j) // c,
                lambda: (a * i + b * j) % c,
                lambda: i // c * c + j,
                lambda: (i + b) % 2 * 2 + j // 2,
            )
        )()

    def fitted(self, e: Expr | _Known, extent: int) -> Expr:
        """`e` moved or folded into [0, extent)."""
        if isinstance(e, _Known):
            e, (low, high) = e.e, e.range
        else:
            low, high = affine.bounds(affine.simplify(e))
        if high - low < extent:
            return e + (self.between(0, extent - 1 - (high - low)) - low)
        if low == 0 and self.chance(0.4):
            return e // -(-(high + 1) // extent)
        return e % extent

    def indices(self, t: Tensor, axes: list[Axis]) -> list[Expr]:
        """Indices inside `t`, some of them read from integer tensors."""
        return [self.fitted(self.data_index(axes) or self.index(axes), n) for n in t.shape]

    def data_index(self, axes: list[Axis]) -> _Known | None:
        """An index that depends on data, now and then."""
        if not self.limits.gathers or not self.chance(0.12):
            return None
        if self.limits.integers and self.limits.jumps and self.budget > 1 and self.chance(0.2):
            k = self.axis(self.between(1, min(4, self.budget)))
            x, _ = self.known() if self.floats else self.fresh((4,))
            element = dsl.read(x, [self.fitted(self.index([*axes, k]), n) for n in x.shape])
            return _Known(dsl.argmax(element, axis=[k]), 0, k.extent - 1)
        if self.ints and self.chance(0.5):
            t, low, high = self.pick(self.ints)
        else:
            low, high = 0, self.between(0, 6)
            t = self.fresh_ids(self.shape(self.between(1, 2), 49), high)
        e = dsl.cast(dsl.read(t, [self.fitted(self.index(axes), n) for n in t.shape]), "int64")
        return _Known(e, low, high)

    # ------------------------------------------------------------------------------------------------ expressions

    def expression(self, axes: list[Axis], depth: int) -> Value:
        if depth == 0:
            return self.leaf(axes)
        kind = self.rng.random()
        if kind < 0.25:
            return self.unary(axes, depth)
        if kind < 0.50:
            return self.binary(axes, depth)
        if kind < 0.62:
            a, x = self.expression(axes, depth - 1)
            b, y = self.expression(axes, depth - 1)
            return dsl.select(self.condition(axes), a, b), max(x, y)
        if kind < 0.88 and self.budget > 1:
            return self.reduce(axes, depth)
        if kind < 0.94:
            return self.repeated(axes)
        return self.leaf(axes)

    def leaf(self, axes: list[Axis]) -> Value:
        kind = self.rng.random()
        if kind < 0.08:
            c = round(float(self.rng.uniform(-2, 2)), 2)
            return typed.as_expr(c, self.limits.dtype), abs(c)
        if kind < 0.16 and axes:
            e = self.index(axes)
            low, high = affine.bounds(affine.simplify(e))
            return dsl.cast(e, self.limits.dtype) * 0.125, max(abs(low), abs(high)) * 0.125
        return self.read(axes)

    def read(self, axes: list[Axis]) -> Value:
        if self.floats and self.chance(0.6):
            t, bound = self.known()
            return self.guarded(t, bound, axes) if self.chance(0.25) else (dsl.read(t, self.indices(t, axes)), bound)
        indices = []
        size = 1
        for _ in range(self.between(1, self.limits.rank)):
            e = self.data_index(axes)
            if e is None:
                plain = self.index(axes)
                e = _Known(plain, *affine.bounds(affine.simplify(plain)))
            low, high = e.range
            if size * (high - low + 1) > 2000:
                e, low, high = _Known(affine.integer(0), 0, 0), 0, 0
            size *= high - low + 2
            indices.append((e.e - low if low else e.e, high - low + 1 + self.between(0, 1)))
        t, bound = self.fresh(tuple(n for _, n in indices))
        return dsl.read(t, [e for e, _ in indices]), bound

    def guarded(self, t: Tensor, bound: float, axes: list[Axis]) -> Value:
        """A read that would leave its tensor, under a condition that keeps it in: padding."""
        indices = self.indices(t, axes)
        cond = None
        for n in range(t.rank):
            if not self.chance(0.5):
                continue
            e = self.index(axes) - self.between(0, 3)
            indices[n] = e
            inside = (e >= 0) & (e < t.shape[n])
            cond = inside if cond is None else cond & inside
        element = dsl.read(t, indices)
        if cond is None:
            return element, bound
        fill = self.pick((0.0, 0.0, -1.25))
        if self.chance(0.2):
            return dsl.select(~cond, typed.as_expr(fill, self.limits.dtype), element), max(bound, 1.25)
        return dsl.select(cond, element, fill), max(bound, 1.25)

    def repeated(self, axes: list[Axis]) -> Value:
        """The same tensor read twice in one product, or one read used twice."""
        t, bound = self.known() if self.floats else self.fresh(self.shape(2, 49))
        first = dsl.read(t, self.indices(t, axes))
        second = first if self.chance(0.3) else dsl.read(t, self.indices(t, axes))
        return self.settled((first * second, bound * bound))

    def condition(self, axes: list[Axis]) -> Expr:
        if self.limits.jumps and self.chance(0.25):
            (a, _), (b, _) = self.leaf(axes), self.leaf(axes)
            return self.pick((lambda: a < b, lambda: a >= b))()
        e, f = self.index(axes), self.index(axes)
        k = self.between(0, 4)
        cond = self.pick(
            (
                lambda: e < f,
                lambda: e <= k,
                lambda: e >= k,
                lambda: (e + f) % 2 == k % 2,
                lambda: e != f,
                lambda: (e > f) | (f == k),
                lambda: ~((e > k) & (f < 3)),
            )
        )()
        return cond & (f >= 1) if self.chance(0.2) else cond

    def settled(self, value: Value) -> Value:
        """Brought down when it may be large."""
        e, bound = value
        if bound <= 8:
            return e, bound
        if bound <= 64:
            factor = 4 / bound
            return e * round(factor, 4), bound * factor * 1.01
        return (dsl.tanh if self.chance(0.5) else dsl.sin)(e * float(f"{8 / bound:.2g}")), 1.0

    def unary(self, axes: list[Axis], depth: int) -> Value:
        fn = self.pick(self.limits.unary + (JUMPS + STOPS * self.limits.stops if self.limits.jumps else ()))
        x, bound = self.settled(self.expression(axes, depth - 1))
        if fn == "exp":
            x, bound = (x, bound) if bound <= 2 else (dsl.tanh(x), 1.0)
            return dsl.exp(x), math.exp(bound)
        if fn == "expm1":
            x, bound = (x, bound) if bound <= 2 else (dsl.tanh(x), 1.0)
            return dsl.expm1(x), math.exp(bound)
        if fn == "log1p":
            return dsl.log1p(dsl.tanh(x) * 0.75), 1.4
        if fn == "log":
            return dsl.log(x * x + 0.5), math.log(bound * bound + 1.7)
        if fn == "sqrt":
            return dsl.sqrt(x * x + 0.5), bound + 1
        if fn == "rsqrt":
            return dsl.rsqrt(x * x + 0.5), 1.5
        grows = fn in ("neg", "abs", "relu", "floor", "ceil", "round", "stop_gradient")
        return typed.scalar(fn, x), (bound + 1 if grows else 1.0)

    def binary(self, axes: list[Axis], depth: int) -> Value:
        fn = self.pick(self.limits.binary)
        a, x = self.settled(self.expression(axes, depth - 1))
        b, y = self.settled(self.expression(axes, depth - 1))
        if fn == "div":
            return a / (b * b + 0.5), x * 2
        if fn == "pow":
            exponent = self.pick((0.5, 1.5, 2.0, -1.0, None))
            base, high = dsl.tanh(a) * 0.5 + 1.0, 1.5
            power = dsl.tanh(b) if exponent is None else typed.as_expr(exponent, self.limits.dtype)
            return dsl.pow(base, power), high * high + 1
        return self.settled((typed.scalar(fn, a, b), {"mul": x * y}.get(fn, x + y)))

    def reduce(self, axes: list[Axis], depth: int) -> Value:
        op = self.pick(self.limits.reducers)
        bound_axes = []
        for _ in range(self.between(1, 3)):
            n = self.between(1, max(1, min(self.limits.extent, self.budget)))
            self.budget //= n
            bound_axes.append(self.axis(n))
        trips = math.prod(a.extent for a in bound_axes)
        inner = [*axes, *bound_axes]
        if op == "sum" and self.chance(0.5):  # a contraction
            (a, x), (b, y) = self.read(inner), self.read(inner)
            e, bound = a * b, x * y
            if self.chance(0.2):
                c, z = self.read(inner)
                e, bound = e * c, bound * z
            if self.chance(0.25):
                e = dsl.select(self.condition(inner), e, 0.0)
        else:
            e, bound = self.expression(inner, depth - 1)
        if op == "prod":
            e, bound = 1.0 + e * round(0.3 / max(bound, 0.3), 3), 1.3
        powers = 1.3 ** min(trips, 1000)  # of more factors a float64 has no bound
        bound = powers if op == "prod" else bound * trips if op == "sum" else bound
        return self.settled((dsl.reduction(op, e, bound_axes), bound))


@dataclass(frozen=True)
class _Known:
    """An index with the range it is known to have, also where its data decide."""

    e: Expr
    low: int
    high: int

    @property
    def range(self) -> tuple[int, int]:
        return self.low, self.high


def _numpy(dtype: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)

"""Random well-formed programs, the same for the same seed. Every stage proves its laws on these.

Reads stay inside their tensors by construction: the tensor read is made large enough, or the index is folded with
`//` or `%`, or a select guards it. Values stay small enough that no function leaves its domain and no sum overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import neoflow as nf
from neoflow.expr import affine, dsl, typed
from neoflow.expr.ir import Axis, Expr
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import Compute, Tensor, topological
from tests.chance import Chance

UNARY = ("neg", "abs", "relu", "exp", "log", "log1p", "expm1", "tanh", "sigmoid", "sqrt", "rsqrt", "erf", "sin", "cos")
JUMPS = ("floor", "ceil", "round", "sign")
STOPS = ("stop_gradient",)
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum")
REDUCERS = ("sum", "prod", "max", "min")


@dataclass(frozen=True)
class Program:
    """Roots of a random program and an array for each placeholder they need."""

    seed: int
    outputs: list[Tensor]
    feeds: dict[Tensor, np.ndarray]

    @property
    def float_inputs(self) -> list[Tensor]:
        """The placeholders one can differentiate by."""
        return [t for t in self.feeds if t.dtype.startswith(("float", "bfloat"))]

    def with_gradients(self) -> list[Tensor]:
        """The outputs, and of every float one the gradients by all float inputs."""
        roots, wrt = list(self.outputs), self.float_inputs
        for t in self.outputs:
            if wrt and t.dtype.startswith(("float", "bfloat")):
                roots += nf.vjp(t, wrt, allow_unused=True)
        return roots

    def __str__(self) -> str:
        return f"# seed {self.seed}\n{print_program(topological(self.outputs))}"


@dataclass(frozen=True)
class Limits:
    """What a program may contain. `points`: most evaluations of one compute's innermost body."""

    tensors: tuple[int, int] = (2, 6)
    rank: int = 5
    extent: int = 7
    points: int = 600
    dtype: str = "float32"
    gathers: bool = True
    integers: bool = True
    """integer computes among the tensors, and comparisons and argmax of data"""
    jumps: bool = True
    """discontinuous functions: floor, ceil, sign, comparisons of data, argmax as an index"""
    stops: bool = True
    """with these, what has no gradient by definition, and other differences"""
    unary: tuple[str, ...] = UNARY
    binary: tuple[str, ...] = BINARY
    reducers: tuple[str, ...] = REDUCERS


def random_program(seed: int, **limits: Any) -> Program:
    """The program of a seed under `Limits(**limits)`."""
    return _Maker(seed, Limits(**limits)).program()


Value = tuple[Expr, float]
"""An expression and a bound on its absolute value."""


class _Maker(Chance):
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

    # ------------------------------------------------------------------------------------------------- chance

    def known(self) -> tuple[Tensor, float]:
        """A float tensor made before with its bound; often the latest, so that programs get deep."""
        if self.latest is not None and self.chance(0.6):
            return self.latest
        return self.pick(self.floats)

    def axis(self, extent: int) -> Axis:
        """A reduction axis, named by its place in this program."""
        self.reductions += 1
        return dsl.axis(extent, f"k{self.reductions}")

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def shape(self, rank: int, points: int) -> tuple[int, ...]:
        dims = []
        for _ in range(rank):
            n = self.between(1, max(1, min(self.limits.extent, points)))
            dims.append(n)
            points //= n
        self.rng.shuffle(dims)
        return tuple(dims)

    # ------------------------------------------------------------------------------------------------ program

    def program(self) -> Program:
        low, high = self.limits.tensors
        makers = [self.general] * 6 + [self.elementwise] * 2 + [self.reduced, self.sliced, self.reshaped, self.concat]
        if self.limits.integers and self.limits.gathers:
            makers += [self.integer]
        made: list[Tensor] = []
        for _ in range(self.between(low, high)):
            maker = self.general if not self.floats else self.pick(makers)
            made.append(maker())
        if made[-1].dtype != self.limits.dtype:
            made.append(self.general())
        outputs = [t for t in made if t not in self.consumed] or made[-1:]
        needed = set(topological(outputs))
        feeds = {t: a for t, a in self.feeds.items() if t in needed}
        return Program(self.seed, outputs, feeds)

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

    def named(self) -> str:
        return f"t{len(self.floats) + len(self.ints)}"

    def compute(self, shape: tuple[int, ...], body: Callable[[tuple[Axis, ...]], Expr]) -> Compute:
        t = dsl.compute(shape, lambda *axes: body(axes), name=self.named())
        self.consumed.update(t.inputs)
        return t

    def keep(self, t: Tensor, bound: float) -> Tensor:
        self.floats.append((t, bound))
        self.latest = (t, bound)
        if isinstance(t, Compute):
            stack = [t]
            while stack:  # what lifting and shape functions made on the way is consumed as well
                for s in stack.pop().inputs:
                    if s not in self.consumed:
                        self.consumed.add(s)
                        if isinstance(s, Compute):
                            stack.append(s)
        return t

    # ------------------------------------------------------------------------------------------ kinds of tensors

    def general(self) -> Tensor:
        """Any shape, any body."""
        rank = self.between(0 if self.chance(0.1) else 1, self.limits.rank)
        shape = self.shape(rank, max(1, self.limits.points // self.between(1, 12)))
        self.budget = self.limits.points // math.prod(shape)
        bound = 0.0

        def body(axes: tuple[Axis, ...]) -> Expr:
            nonlocal bound
            e, bound = self.settled(self.expression(list(axes), self.between(1, 3)))
            return e

        return self.keep(self.compute(shape, body), bound)

    def elementwise(self) -> Tensor:
        """Operators and functions on whole tensors, with broadcasting."""
        a, bound = self.known()
        shape = tuple(1 if self.chance(0.3) else n for n in a.shape[self.between(0, a.rank) :])
        b, other = self.fresh(shape)
        if self.chance(0.5):
            a, b, bound, other = b, a, other, bound
        match self.between(0, 4):
            case 0:
                return self.keep(dsl.tanh(a) * b + 0.5, other + 0.5)
            case 1:
                return self.keep(dsl.select(dsl.cast(b * 0.0 + 1.0, "bool"), a, b) - b, bound + 2 * other)
            case 2:
                return self.keep(dsl.maximum(a, b), max(bound, other))
            case 3:
                return self.keep(a / (b * b + 0.5), bound * 2)
        return self.keep(dsl.sigmoid(a - b), 1.0)

    def reduced(self) -> Tensor:
        """A reduction of a whole tensor over some dimensions."""
        x, bound = self.known()
        if not x.rank:
            return self.general()
        dims = [d for d in range(x.rank) if self.chance(0.5)] or [self.between(0, x.rank - 1)]
        keepdims = self.chance(0.5)
        op = self.pick(("sum", "max", "min", "mean"))
        if op == "mean":
            return self.keep(dsl.mean(x, axis=dims, keepdims=keepdims), bound)
        t = dsl.reduction(op, x, dims, keepdims)
        return self.keep(t, bound * (math.prod(x.shape[d] for d in dims) if op == "sum" else 1))

    def sliced(self) -> Tensor:
        """NumPy's basic indexing."""
        x, bound = self.known()
        keys: list[object] = []
        for n in x.shape:
            kind = self.between(0, 4)
            start = self.between(0, n - 1)
            key: object = slice(start, None, self.between(1, 3))
            if kind == 0:
                key = slice(None, None, -1)
            elif kind == 1:
                key = start
            elif kind == 2:
                key = slice(None)
            keys.append(key)
        if x.rank < self.limits.rank and self.chance(0.3):
            keys.insert(self.between(0, len(keys)), None)
        return self.keep(x[tuple(keys)] if keys else x * 2.0, bound if keys else 2 * bound)

    def reshaped(self) -> Tensor:
        """Row-major reshape to a random factorisation, written with nested // and %."""
        x, bound = self.known()
        rest, dims = math.prod(x.shape), []
        while rest > 1 and len(dims) < self.limits.rank - 1:
            dims.append(self.pick([d for d in range(1, rest + 1) if rest % d == 0]))
            rest //= dims[-1]
        shape = (*dims, rest)

        def body(axes: tuple[Axis, ...]) -> Expr:
            flat: Expr = affine.integer(0)
            for a in axes:
                flat = flat * a.extent + a
            indices = []
            for d, n in enumerate(x.shape):
                stride = math.prod(x.shape[d + 1 :])
                indices.append(flat // stride % n)
            return dsl.read(x, indices)

        return self.keep(self.compute(shape, body), bound)

    def concat(self) -> Tensor:
        """Two to four tensors along one dimension, by nested selects."""
        x, bound = self.known()
        if not x.rank:
            return self.general()
        d = self.between(0, x.rank - 1)
        parts = [x]
        for _ in range(self.between(1, 3)):
            t, b = self.fresh((*x.shape[:d], self.between(1, 3), *x.shape[d + 1 :]))
            parts, bound = [*parts, t], max(bound, b)
        total = sum(t.shape[d] for t in parts)

        def body(axes: tuple[Axis, ...]) -> Expr:
            start, result = total, None
            for t in reversed(parts):
                start -= t.shape[d]
                element = dsl.read(t, [a - start if n == d else a for n, a in enumerate(axes)])
                result = element if result is None else dsl.select(axes[d] < start + t.shape[d], element, result)
            assert result is not None
            return result

        return self.keep(self.compute((*x.shape[:d], total, *x.shape[d + 1 :]), body), bound)

    def integer(self) -> Tensor:
        """Integer arithmetic on axes and integer tensors, of any width, or positions of extremes."""
        shape = self.shape(self.between(1, 3), self.limits.points)
        if self.limits.jumps and self.chance(0.4):
            self.budget = self.limits.points // math.prod(shape)
            k = self.axis(self.between(1, max(1, min(self.limits.extent, self.budget))))
            op = self.pick((dsl.argmax, dsl.argmin))
            t = self.compute(shape, lambda axes: op(self.expression([*axes, k], 1)[0], axis=[k]))
            self.ints.append((t, 0, k.extent - 1))
            return t
        m = self.between(1, 6)
        width = self.pick(("int8", "int16", "int32", "int64"))

        def body(axes: tuple[Axis, ...]) -> Expr:
            e = dsl.cast(self.index(list(axes)), width)
            if self.ints and self.chance(0.7):
                t, *_ = self.pick(self.ints)
                e = e * self.pick((3, -5, 7)) - dsl.cast(dsl.read(t, self.indices(t, list(axes))), width)
            e = self.pick((lambda: e // self.pick((2, -3)), lambda: dsl.maximum(e, -2), lambda: e, lambda: -e))()
            if self.seed % 2:
                e = self.bits(e)
            if self.chance(0.3):
                k = self.axis(3)
                e = dsl.sum(e * 41 + dsl.cast(k, width), axis=[k])
            return e % m

        t = self.compute(shape, body)
        self.ints.append((t, 0, m - 1))
        return t

    def bits(self, e: Expr) -> Expr:
        """Arithmetic of the bits of an integer; it draws nothing."""
        n = self.seed // 2 + len(self.ints)
        return (lambda: e & 5 | 2, lambda: (e ^ -3) >> (e & 3), lambda: ~e << (n % 7))[n % 3]()

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
        bound = bound**trips if op == "prod" else bound * trips if op == "sum" else bound
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

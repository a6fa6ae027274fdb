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
from neoflow.expr import affine, dsl
from neoflow.expr.ir import Axis, Expr
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import Compute, Tensor, topological
from tests.strategies.limits import Limits
from tests.strategies.scalars import Scalars


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


def random_program(seed: int, **limits: Any) -> Program:
    """The program of a seed under `Limits(**limits)`."""
    return _Maker(seed, Limits(**limits)).program()


class _Maker(Scalars):
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

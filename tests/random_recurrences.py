"""Random recurrences, as scans and unrolled: what the two give is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import neoflow as nf


@dataclass(frozen=True)
class Drawn:
    """inputs: placeholders and parameters with arrays. scanned, unrolled: the same outputs, twice. wrt: what they are
    differentiated by."""

    feeds: dict[nf.Tensor, np.ndarray]
    scanned: list[nf.Tensor]
    unrolled: list[nf.Tensor]
    wrt: list[nf.Tensor]


def unroll(step: Any, init: Any, xs: Any, length: int, reverse: bool) -> tuple[Any, list[Any]]:
    """The meaning of a scan, step by step."""
    rows: list[Any] = [None] * length
    state = init
    for n in range(length - 1, -1, -1) if reverse else range(length):
        state, rows[n] = step(state, [x[n] for x in xs])
    return state, [nf.stack([row[k] for row in rows]) for k in range(len(rows[0]))]


class _Maker:
    """Steps made of random operations on tensors of shape (batch, width)."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.batch, self.width = (int(n) for n in rng.integers(1, 5, 2))
        self.feeds: dict[nf.Tensor, np.ndarray] = {}
        self.wrt: list[nf.Tensor] = []

    def given(self, shape: tuple[int, ...], kind: Any = nf.placeholder) -> nf.Tensor:
        t = kind(shape, name=f"v{len(self.feeds)}")
        self.feeds[t] = self.rng.standard_normal(shape).astype(np.float32)
        self.wrt.append(t)
        return t

    def pick(self, pool: list[Any]) -> Any:
        return pool[int(self.rng.integers(len(pool)))]

    def plan(self, count: int) -> list[tuple[Any, ...]]:
        """Operations to be applied to a growing pool, by number."""
        return [(int(self.rng.integers(11)), *(int(n) for n in self.rng.integers(0, 1 << 16, 3))) for _ in range(count)]

    def apply(
        self, pool: list[nf.Tensor], weights: list[nf.Tensor], vectors: list[nf.Tensor], op: tuple[Any, ...]
    ) -> nf.Tensor:
        kind, i, j, k = op
        a, b = pool[i % len(pool)], pool[j % len(pool)]
        w, v = weights[k % len(weights)], vectors[k % len(vectors)]
        match kind:
            case 0 | 1:
                return nf.tanh(a @ w)
            case 2:
                return nf.tanh(a @ w + b * v)
            case 3:
                return 0.5 * a + 0.25 * b
            case 4:
                return nf.sigmoid(a) * b
            case 5:
                return nf.select(a > 0, a * 0.5, nf.tanh(b))
            case 6:
                return nf.roll(a, 1, axis=1) * 0.5 + v
            case 7:
                return a - nf.mean(a, axis=1, keepdims=True) + nf.max(b, axis=0, keepdims=True) * 0.1
            case 8:
                return nf.tanh(nf.transpose(w @ nf.transpose(a)))
            case 9:
                return nf.sin(v) * a
            case _:
                return nf.nn.functional.softmax(a, axis=1)


def draw(seed: int, depth: int = 1, lengths: tuple[int, int] = (1, 6)) -> Drawn:
    """A recurrence of a seed; its steps are of that range."""
    rng = np.random.default_rng(seed)
    make = _Maker(rng)
    shape = (make.batch, make.width)
    length, reverse = int(rng.integers(*lengths)), bool(rng.integers(2))
    weights = [make.given((make.width, make.width), nf.parameter) for _ in range(2)]
    vectors = [make.given((make.width,)) for _ in range(2)]
    init = [make.given(shape) for _ in range(int(rng.integers(1, 4)))]
    xs = [make.given((length, *shape)) for _ in range(int(rng.integers(0, 3)))]
    ops = make.plan(int(rng.integers(1, 7)))
    ends = [int(n) for n in rng.integers(0, 1 << 16, len(init))]
    rows = [int(n) for n in rng.integers(0, 1 << 16, int(rng.integers(1, 4)))]
    nested = depth > 0 and rng.random() < 0.25
    inner = make.plan(2), int(rng.integers(1, 4))

    def step(state: list[nf.Tensor], x: list[nf.Tensor], scan: Any) -> tuple[list[nf.Tensor], list[nf.Tensor]]:
        pool = [*state, *x]
        for op in ops:
            pool.append(make.apply(pool, weights, vectors, op))
        if nested:

            def within(h: list[nf.Tensor], z: list[nf.Tensor]) -> tuple[list[nf.Tensor], list[nf.Tensor]]:
                own = [*h, pool[0]]
                for op in inner[0]:
                    own.append(make.apply(own, weights, vectors, op))
                return [own[-1]], [own[-2]]

            (h,), (ys,) = scan(within, [pool[-1]], [], inner[1], False)
            pool += [h, nf.sum(ys, axis=0)]
        return [pool[-1 - n % len(pool)] for n in ends], [pool[-1 - n % len(pool)] for n in rows]

    def scanned(s: Any, a: Any, b: Any, n: int, back: bool) -> Any:
        return nf.scan(s, a, b, length=n, reverse=back)

    last, ys = nf.scan(lambda h, x: step(h, x, scanned), init, xs, length=length, reverse=reverse)
    want, rows_want = unroll(lambda h, x: step(h, x, unroll), init, xs, length, reverse)
    return Drawn(make.feeds, [*last, *ys], [*want, *rows_want], make.wrt)


def gradients(drawn: Drawn, outputs: list[nf.Tensor]) -> list[nf.Tensor]:
    """Of a weighted sum of the outputs."""
    loss = sum(nf.sum(nf.sin(t) * (0.3 + 0.1 * n)) for n, t in enumerate(outputs))
    return nf.grad(loss, drawn.wrt, allow_unused=True)

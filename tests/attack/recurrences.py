"""Recurrences written out step by step, with gradients: what inlining, left alone, multiplies from step to step.

Each is a builder over its number of steps. The first returned tensor is a scalar loss, the others its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import neoflow as nf

FAR = 60.0
"""Stands for infinity in a table of small costs: exp(-FAR) is nothing beside them."""


@dataclass(frozen=True)
class Unrolled:
    """outputs: the loss and its gradients by `parameters`. inputs: what a call is given, with values for one."""

    outputs: list[nf.Tensor]
    inputs: dict[nf.Tensor, Any]
    parameters: dict[nf.Tensor, Any]

    @property
    def feeds(self) -> dict[nf.Tensor, Any]:
        return {**self.inputs, **self.parameters}


def _unrolled(loss: nf.Tensor, inputs: Mapping[nf.Tensor, Any], parameters: Mapping[nf.Tensor, Any]) -> Unrolled:
    return Unrolled([loss, *nf.grad(loss, list(parameters))], dict(inputs), dict(parameters))


def _input(rng: np.random.Generator, shape: tuple[int, ...], scale: float, name: str, shift: float = 0.0) -> Any:
    values = (shift + scale * rng.standard_normal(shape)).astype(np.float32)
    return nf.placeholder(shape, name=name), values


def pairs(steps: int, width: int = 8, seed: int = 0) -> Unrolled:
    """Each step takes neighbours of the last one together: r[i] = D[k,i] + log(exp(p[i]) + exp(p[i+1]))."""
    rng = np.random.default_rng(seed)
    p0, start = _input(rng, (width,), 0.1, "p0")
    table, costs = _input(rng, (steps, width - 1), 0.05, "D", -np.log(2.0))
    p = p0
    for k in range(steps):

        def row(i: Any, k: int = k, p: nf.Tensor = p) -> Any:
            return table[k, i] + nf.log(nf.exp(p[i]) + nf.exp(p[i + 1]))

        p = nf.concat([p0[:1], nf.compute((width - 1,), row, name="r")])
    return _unrolled(nf.sum(p), {p0: start}, {table: costs})


def soft_dtw(steps: int, rows: int = 6, seed: int = 0) -> Unrolled:
    """Soft dynamic time warping over a table of `rows` rows, diagonal by diagonal; the first one reads the table, too.

    r[i,j] = D[i,j] - log(exp(-r[i-1,j]) + exp(-r[i,j-1]) + exp(-r[i-1,j-1])). The diagonals of the table are laid out
    as rows first. Source: Cuturi and Blondel, Soft-DTW, 2017.
    """
    table, costs = _table(steps, rows, seed)
    rows, columns = table.shape

    def skewed(k: Any, i: Any) -> Any:
        return nf.select((k - i >= 0) & (k - i < columns), table[i, k - i], FAR)

    diagonals = nf.compute((steps, rows), skewed, name="diagonals")
    return _warped(steps, table, costs, lambda k, i, along: nf.minimum(diagonals[k, i] + along, FAR))


def soft_dtw_in_place(steps: int, rows: int = 6, seed: int = 0) -> Unrolled:
    """The same, each step reading its diagonal where it lies in the table: steps differ in where they read."""
    table, costs = _table(steps, rows, seed)
    columns = table.shape[1]

    def diagonal(k: int, i: Any, along: Any) -> Any:
        return nf.select((k - i >= 0) & (k - i < columns), nf.minimum(table[i, k - i] + along, FAR), FAR)

    return _warped(steps, table, costs, diagonal)


def soft_dtw_square(steps: int, seed: int = 0) -> Unrolled:
    """The same over a table of as many rows as columns: steps differ in their conditions, too."""
    return soft_dtw_in_place(steps, (steps + 1) // 2, seed)


def _table(steps: int, rows: int, seed: int) -> Any:
    rows = min(rows, steps)
    return _input(np.random.default_rng(seed), (rows, steps - rows + 1), 0.05, "D", 0.3)


def _warped(steps: int, table: nf.Tensor, costs: Any, cost: Callable[[int, Any, Any], Any]) -> Unrolled:
    """`cost` of step, row and what the way so far costs."""
    rows = table.shape[0]
    before = nf.full((rows,), FAR)
    last = nf.compute((rows,), lambda i: nf.select(i < 1, table[0, 0], FAR), name="first")
    for k in range(1, steps):

        def diagonal(i: Any, k: int = k, a: nf.Tensor = before, b: nf.Tensor = last) -> Any:
            above = nf.select(i >= 1, nf.exp(-b[i - 1]) + nf.exp(-a[i - 1]), 0.0)
            return cost(k, i, -nf.log(nf.exp(-b[i]) + above))

        before, last = last, nf.compute((rows,), diagonal, name="r")
    return _unrolled(nf.sum(last[rows - 1 :]), {}, {table: costs})


def soft_dtw_cells(steps: int, columns: int = 8, seed: int = 0) -> Unrolled:
    """The same, a tensor for each cell: `steps` of them, in rows of `columns`."""
    rows = -(-steps // columns)
    table, costs = _input(np.random.default_rng(seed), (rows, columns), 0.05, "D", 0.3)
    r: dict[tuple[int, int], nf.Tensor] = {(0, 0): nf.compute((), lambda: table[0, 0], name="r")}
    for n in range(1, steps):
        i, j = divmod(n, columns)
        found = [r[p] for p in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if p in r]

        def cell(i: int = i, j: int = j, found: list[nf.Tensor] = found) -> Any:
            total = nf.exp(-found[0][()])
            for t in found[1:]:
                total = total + nf.exp(-t[()])
            return table[i, j] - nf.log(total)

        r[i, j] = nf.compute((), cell, name="r")
    return _unrolled(r[divmod(steps - 1, columns)], {}, {table: costs})


def heat(steps: int, width: int = 32, seed: int = 0) -> Unrolled:
    """The heat equation in one dimension with a conductivity for each place, explicit steps, zero at the ends."""
    rng = np.random.default_rng(seed)
    u0, start = _input(rng, (width,), 1.0, "u0")
    c, conductivity = _input(rng, (width,), 0.02, "c", 0.2)
    wanted, values = _input(rng, (width,), 0.1, "wanted")
    u = u0
    for _ in range(steps):

        def step(i: Any, u: nf.Tensor = u) -> Any:
            left = nf.select(i >= 1, u[i - 1], 0.0)
            right = nf.select(i < width - 1, u[i + 1], 0.0)
            return u[i] + c[i] * (left - 2.0 * u[i] + right)

        u = nf.compute((width,), step, name="u")
    return _unrolled(nf.sum((u - wanted) * (u - wanted)), {wanted: values}, {u0: start, c: conductivity})


def scan(steps: int, width: int = 8, states: int = 4, seed: int = 0) -> Unrolled:
    """A selective state space: h = exp(d[t] * a) * h + d[t] * b[t] * x[t], y[t] = sum of c[t] * h.

    Source: Gu and Dao, Mamba, 2023.
    """
    rng = np.random.default_rng(seed)
    x, xs = _input(rng, (steps, width), 1.0, "x")
    d, ds = _input(rng, (steps, width), 0.01, "d", 0.1)
    a, decay = _input(rng, (width, states), 0.1, "a", -1.0)
    b, bs = _input(rng, (steps, states), 1.0, "b")
    c, cs = _input(rng, (steps, states), 1.0, "c")
    n = nf.axis(states, "n")
    h, ys = nf.zeros((width, states)), []
    for t in range(steps):

        def state(i: Any, j: Any, t: int = t, h: nf.Tensor = h) -> Any:
            return nf.exp(d[t, i] * a[i, j]) * h[i, j] + d[t, i] * b[t, j] * x[t, i]

        h = nf.compute((width, states), state, name="h")
        ys.append(nf.compute((width,), lambda i, t=t, h=h: nf.sum(h[i, n] * c[t, n], axis=[n]), name="y"))
    y = nf.stack(ys)
    return _unrolled(nf.mean(y * y), {x: xs}, {a: decay, d: ds, b: bs, c: cs})


PROGRAMS: dict[str, Callable[[int], Unrolled]] = {
    "pairs": pairs,
    "soft_dtw": soft_dtw,
    "soft_dtw_in_place": soft_dtw_in_place,
    "soft_dtw_square": soft_dtw_square,
    "soft_dtw_cells": soft_dtw_cells,
    "heat": heat,
    "scan": scan,
}

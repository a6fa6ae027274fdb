"""A sum of products as a chain of matrix products: its factors, the order to multiply them in, and one such product."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neoflow.expr.interp.analysis import Analysis, Guards
from neoflow.expr.ir import Apply, Const, Expr, Select

LONG = 1 << 14
"""Terms from which float32 products are summed in float64: the library adds its blocks one after the other."""


@dataclass(frozen=True)
class Product:
    """sign * the product of `factors`, zero where a mask's condition does not have the value given with it."""

    sign: int
    factors: list[tuple[Expr, Guards]]
    masks: list[tuple[Expr, bool, Guards]]


def as_product(body: Expr, guards: Guards, analysis: Analysis) -> Product:
    """`body` as a product of factors, some of them zero outside a condition."""
    factors: list[tuple[Expr, Guards]] = []
    masks: list[tuple[Expr, bool, Guards]] = []

    sign = 1
    stack = [(body, guards)]
    while stack:
        e, inside = stack.pop()
        match e:
            case Expr() if analysis.uses.get(e, 0) > 1:
                factors.append((e, inside))
            case Apply(fn="mul"):
                stack += [(e.args[1], inside), (e.args[0], inside)]
            case Apply(fn="neg"):
                sign = -sign
                stack.append((e.args[0], inside))
            case Select(other=Const(value=0)):
                masks.extend((c, p, inside) for c, p in _conjuncts(e.cond, True, analysis))
                stack.append((e.then, (*inside, (e.cond, True))))
            case Select(then=Const(value=0)):
                masks.extend((c, p, inside) for c, p in _conjuncts(e.cond, False, analysis))
                stack.append((e.other, (*inside, (e.cond, False))))
            case _:
                factors.append((e, inside))
    return Product(sign, factors, masks)


def _conjuncts(cond: Expr, positive: bool, analysis: Analysis) -> list[tuple[Expr, bool]]:
    """A condition as independent ones; one that can fault stays whole, for the order in it matters."""
    found: list[tuple[Expr, bool]] = []
    stack = [(cond, positive)]
    while stack:
        cond, positive = stack.pop()
        fn = cond.fn if isinstance(cond, Apply) and cond not in analysis.faulty else ""
        if fn == "not":
            stack.append((cond.children[0], not positive))
        elif fn == ("and" if positive else "or"):
            stack += [(c, positive) for c in reversed(cond.children)]
        else:
            found.append((cond, positive))
    return found


def pairing(
    sets: list[frozenset[int]], dims: frozenset[int], size: Callable[[frozenset[int]], int]
) -> tuple[list[tuple[int, int]], frozenset[int]]:
    """Which two factors to multiply next, cheapest first, and the axes of the largest array on the way."""
    sets = list(sets)
    steps = []
    peak = max(sets, key=size)
    while len(sets) > 1:
        pairs = [(i, j) for j in range(len(sets)) for i in range(j)]
        i, j = min(pairs, key=lambda p: size(sets[p[0]] | sets[p[1]]))
        steps.append((i, j))
        both = sets.pop(j) | sets.pop(i)
        sets.append(both - (dims - frozenset().union(*sets)))
        peak = max(peak, sets[-1], key=size)
    return steps, peak


def total(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The sum over `dims`, which stay with extent 1; float32 accumulates in float64."""
    wide = np.float64 if array.dtype == np.float32 else array.dtype
    return np.add.reduce(array, axis=dims, keepdims=True, dtype=wide).astype(array.dtype, copy=False)


def contract(a: np.ndarray, b: np.ndarray, dropped: list[int]) -> np.ndarray:
    """a * b summed over the dimensions `dropped`, as one batched matrix product; operands have one rank and broadcast.

    a: [batch, left, inner] and b: [batch, inner, right] after a transposition, each a group of dimensions.
    """
    a, b = (
        total(x, own) if (own := tuple(d for d in dropped if x.shape[d] > 1 and y.shape[d] == 1)) else x
        for x, y in ((a, b), (b, a))
    )
    both = [d for d in range(a.ndim) if a.shape[d] > 1 and b.shape[d] > 1]
    inner = [d for d in both if d in dropped]
    if not inner:
        return a * b
    batch = [d for d in both if d not in dropped]
    left = [d for d in range(a.ndim) if a.shape[d] > 1 and d not in both]
    right = [d for d in range(a.ndim) if b.shape[d] > 1 and d not in both]

    def grouped(x: np.ndarray, *groups: list[int]) -> np.ndarray:
        rest = [d for d in range(x.ndim) if all(d not in g for g in groups)]
        shape = [math.prod(x.shape[d] for d in g) for g in groups]
        return x.transpose([d for g in groups for d in g] + rest).reshape(shape)

    x, y = grouped(a, batch, left, inner), grouped(b, batch, inner, right)
    if x.dtype == np.float32 and x.shape[-1] > LONG:
        product = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    else:
        product = np.matmul(x, y)
    kept = batch + left + right
    shape = [max(a.shape[d], b.shape[d]) for d in kept]
    order = kept + [d for d in range(a.ndim) if d not in kept]
    return product.reshape(shape + [1] * (a.ndim - len(kept))).transpose(np.argsort(order))

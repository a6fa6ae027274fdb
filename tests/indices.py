"""Random integer expressions over axes, and their values at every point by plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neoflow.expr.ir import Apply, Axis, Const, Expr, Select, postorder

NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}


def integer(value: int) -> Const:
    return Const(value, "int64")


def random_axes(rng: np.random.Generator, most: int = 4, extent: int = 9) -> tuple[Axis, ...]:
    return tuple(Axis(n, int(rng.integers(1, extent + 1))) for n in range(rng.integers(1, most + 1)))


def random_index(rng: np.random.Generator, axes: Sequence[Axis], depth: int = 4) -> Expr:
    """An expression in + - * // % min max of axes and constants, `*`, `//` and `%` by constants."""
    if depth == 0 or rng.random() < 0.15:
        return integer(int(rng.integers(-9, 13))) if rng.random() < 0.2 else axes[rng.integers(len(axes))]
    a = random_index(rng, axes, depth - 1)
    fn = rng.choice(["add", "sub", "mul", "floordiv", "mod", "neg", "maximum", "minimum"], p=_WEIGHTS)
    if fn == "neg":
        return Apply("neg", (a,))
    if fn == "mul":
        factors = (integer(int(rng.integers(-4, 7))), a)
        return Apply("mul", factors if rng.random() < 0.5 else factors[::-1])
    if fn in ("floordiv", "mod"):
        divisor = int(rng.integers(1, 13)) if rng.random() < 0.9 else -int(rng.integers(1, 7))
        return Apply(fn, (a, integer(divisor)))
    return Apply(str(fn), (a, random_index(rng, axes, depth - 1)))


_WEIGHTS = [0.25, 0.12, 0.15, 0.17, 0.17, 0.04, 0.05, 0.05]


def random_condition(rng: np.random.Generator, axes: Sequence[Axis], depth: int = 2) -> Expr:
    """Comparisons of index expressions, joined by and, or, not."""
    kind = rng.random()
    if depth and kind < 0.3:
        args = (random_condition(rng, axes, depth - 1), random_condition(rng, axes, depth - 1))
        return Apply("and" if kind < 0.2 else "or", args)
    if depth and kind < 0.36:
        return Apply("not", (random_condition(rng, axes, depth - 1),))
    fn = str(rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]))
    right = integer(int(rng.integers(-4, 12))) if rng.random() < 0.6 else random_index(rng, axes, 1)
    return Apply(fn, (random_index(rng, axes, 2), right))


def grid(axes: Sequence[Axis]) -> dict[Expr, np.ndarray]:
    """Every axis's value at every point, flattened."""
    points = np.indices([a.extent for a in axes]).reshape(len(axes), -1)
    return dict(zip(axes, points, strict=True))


def values(e: Expr, at: dict[Expr, np.ndarray]) -> np.ndarray:
    """The value of `e` at every point of a grid."""
    size = next(iter(at.values())).size
    known = dict(at)
    for node in postorder(e):
        if isinstance(node, Const):
            known[node] = np.full(size, node.value)
        elif isinstance(node, Apply):
            known[node] = NUMPY[node.fn](*(known[a] for a in node.args))
        elif isinstance(node, Select):
            known[node] = np.where(*(known[c] for c in node.children))
    return known[e]

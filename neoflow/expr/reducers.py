"""Reductions made of those of the grammar: any, all, var, std; of scalar expressions over axes and of tensors."""

from __future__ import annotations

from typing import Any

from neoflow.expr.dsl import apply, cast, mean, points_over, reduction, renamed_axes, sqrt
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, dtype_of, fail, operand


def any(x: Operand, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether any of them holds; of numbers, whether any is not 0. `axis` as for `sum`."""
    return apply("ne", reduction("max", _flags(x), axis, keepdims), 0)


def all(x: Operand, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all of them hold; of numbers, whether none is 0. `axis` as for `sum`."""
    return apply("ne", reduction("min", _flags(x), axis, keepdims), 0)


def _flags(x: Operand) -> Any:
    """0 and 1 for conditions and for numbers."""
    x = operand(x)
    return cast(x if dtype_of(x) == "bool" else apply("ne", x, 0), "int32")


def var(x: Operand, axis: Any = None, keepdims: bool = False, ddof: int = 0) -> Any:
    """Variance: the mean square of x - mean(x), over n - ddof. `axis` as for `sum`.

    Two passes over the elements, so that it does not cancel for a mean far from 0.
    """
    x = operand(x)
    if not isinstance(x, Tensor):
        reduction("sum", x, axis, keepdims)  # which says what is wrong with the axes
    count = points_over(x, axis)
    if count <= ddof:
        raise fail(f"var over {count} elements with ddof={ddof} divides by {count - ddof}")
    centred = apply("sub", x, mean(x, axis, True) if isinstance(x, Tensor) else mean(*renamed_axes(x, axis)))
    total = reduction("sum", apply("mul", centred, centred), axis, keepdims)
    return apply("mul", total, 1.0 / (count - ddof))


def std(x: Operand, axis: Any = None, keepdims: bool = False, ddof: int = 0) -> Any:
    """Standard deviation, the root of `var`; where that is 0 its gradient is not finite."""
    return sqrt(var(x, axis, keepdims, ddof))

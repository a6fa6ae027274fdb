"""What the operators share: computes of any rank with named axes, sizes of windows, checks with clear messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import numpy as np

from neoflow.caller import caller
from neoflow.errors import ExpressionError
from neoflow.expr import dsl
from neoflow.expr.ir import Expr
from neoflow.expr.tensor import Compute, Tensor

Size = int | Sequence[int]
SPACE = ("p", "q", "t")
WINDOW = ("r", "s", "u")


def fail(message: str) -> ExpressionError:
    return ExpressionError(message, caller())


def compute(shape: Sequence[int], names: Sequence[str], body: Callable[[tuple[Expr, ...]], Expr], name: str) -> Compute:
    """`dsl.compute` for a rank that is not known when the code is written: `body` takes the tuple of axes."""

    def over(*ix: Expr) -> Expr:
        return body(ix)

    kind = inspect.Parameter.POSITIONAL_ONLY
    vars(over)["__signature__"] = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    return dsl.compute(tuple(shape), over, name)


def leading(rank: int) -> tuple[str, ...]:
    """Names of `rank` batch axes."""
    return ("b",) if rank == 1 else tuple(f"b{n}" for n in range(rank))


def sizes(value: Size, rank: int, what: str) -> tuple[int, ...]:
    """One integer for each of `rank` dimensions; a single one stands for all."""
    result = (value,) * rank if isinstance(value, (int, np.integer)) else tuple(value)
    if len(result) != rank or not all(isinstance(n, (int, np.integer)) for n in result):
        raise fail(f"{what} is {value!r}; give an integer or {rank} of them")
    return tuple(map(int, result))


def expect(condition: bool, message: str) -> None:
    """Raise `ExpressionError` with `message` unless the condition holds."""
    if not condition:
        raise fail(message)


def describe(*tensors: Tensor) -> str:
    """`name[shape]` of each, for messages."""
    return ", ".join(f"{t.name}{list(t.shape)}" for t in tensors)

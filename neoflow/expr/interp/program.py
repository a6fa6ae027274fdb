"""The values of a program: its tensors in turn, each let go after its last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import ExpressionError, shown
from neoflow.expr.interp.body import Body
from neoflow.expr.interp.types import Types
from neoflow.expr.tensor import Compute, Constant, Parameter, Tensor, topological


def evaluate(
    tensors: Tensor | Sequence[Tensor], feeds: Mapping[Tensor, Any], dtype: str | None = None
) -> list[np.ndarray]:
    """The values of `tensors` as C-contiguous arrays of their own, given an array for every placeholder they need.

    feeds: arrays of the placeholders' shapes and dtypes; a parameter that is not fed takes its `init` when that is an
    array. dtype: "float64" evaluates every float tensor in float64 (then feeds of any float type will do).

    Raises `ExpressionError` for a missing or unfit feed, `RuntimeFault` for a data-dependent index that leaves its
    tensor, where the program really gets there.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if dtype not in (None, "float64"):
        raise ExpressionError(f"evaluate takes dtype=None (each tensor's own) or 'float64', not {dtype!r}")
    types = Types(dtype == "float64")
    for fed in feeds:
        if isinstance(feeds, Mapping) and not isinstance(fed, Tensor):
            raise ExpressionError(f"feeds has the key {shown(fed)}; its keys are tensors: feeds={{x: array}}")
        if isinstance(fed, Compute):
            raise ExpressionError(f"{fed.name} is computed, not fed; feed the placeholders it reads", fed.where)
        if isinstance(fed, Constant):
            raise ExpressionError(
                f"{fed.name} is a constant and keeps its value; what changes is a placeholder", fed.where
            )
    order = topological(roots)
    pending = dict.fromkeys(order, 0)
    for user in order:
        for t in user.inputs if isinstance(user, Compute) else ():
            pending[t] += 1
    for t in roots:
        pending[t] += 1
    values: dict[Tensor, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for t in order:
            if not isinstance(t, Compute):
                values[t] = _fed(t, feeds, types)
                continue
            values[t] = Body(t, [values[s] for s in t.inputs], types).run()
            for s in t.inputs:
                pending[s] -= 1
                if not pending[s]:
                    del values[s]
        return [np.array(values[t], dtype=types.stored(t.dtype), order="C") for t in roots]


def _fed(t: Tensor, feeds: Mapping[Tensor, Any], types: Types) -> np.ndarray:
    if isinstance(t, Constant):
        return t.value.astype(types.stored(t.dtype), copy=False).astype(types.work(t.dtype), copy=False)
    given = feeds.get(t)
    if given is None and isinstance(t, Parameter) and hasattr(t.init, "dtype"):
        given = np.asarray(t.init).astype(types.stored(t.dtype))
    if given is None:
        kind = type(t).__name__.lower()
        raise ExpressionError(
            f"{kind} {t.name} ({t.dtype}{list(t.shape)}) is not fed; pass feeds={{{t.name}: array}}", t.where
        )
    array = np.asarray(given)
    if array.shape != t.shape:
        raise ExpressionError(f"{t.name} has shape {t.shape}, the array fed for it {array.shape}", t.where)
    stored = types.stored(t.dtype)
    any_float = types.float64 and dt.is_float(t.dtype) and array.dtype in [dt.NUMPY[d] for d in dt.FLOATS]
    is_plain = not hasattr(given, "dtype") and np.can_cast(array.dtype, stored, "same_kind")
    if array.dtype != stored and not any_float and not is_plain:
        raise ExpressionError(
            f"{t.name} is {t.dtype}, the array fed for it {array.dtype}; convert it: array.astype('{t.dtype}')", t.where
        )
    return array.astype(stored, copy=False).astype(types.work(t.dtype), copy=False)

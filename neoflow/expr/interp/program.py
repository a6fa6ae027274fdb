"""The values of a program: its tensors in turn, each let go after its last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import ExpressionError, shown
from neoflow.expr.foreign import Given, inlined
from neoflow.expr.interp.body import Body
from neoflow.expr.interp.types import Types
from neoflow.expr.recurrence import Last, Looped, Run, Stacked
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
        if isinstance(fed, (Compute, Looped, Given)):
            raise ExpressionError(f"{fed.name} is computed, not fed; feed the placeholders it reads", fed.where)
        if isinstance(fed, Constant):
            raise ExpressionError(
                f"{fed.name} is a constant and keeps its value; what changes is a placeholder", fed.where
            )
    with np.errstate(all="ignore"):
        given: list[np.ndarray] = []

        def leaf(t: Tensor) -> np.ndarray:
            given.append(_fed(t, feeds, types))
            return given[-1]

        found = _values(inlined(roots), leaf, types)
        results: list[np.ndarray] = []
        for t, v in zip(roots, found, strict=True):
            results.append(_own(v, types.stored(t.dtype), [*given, *results]))
        return results


def _own(array: np.ndarray, dtype: np.dtype, others: Sequence[np.ndarray]) -> np.ndarray:
    """The array, C-contiguous, in memory that none of the others has: copied only where it would not be so."""
    memory = array if array.base is None else array.base
    is_all = array.flags.c_contiguous and array.flags.writeable and getattr(memory, "nbytes", 0) == array.nbytes
    if array.dtype != dtype or not is_all or any(np.may_share_memory(array, other) for other in others):
        return np.array(array, dtype=dtype, order="C")
    return array


def _values(roots: Sequence[Tensor], leaf: Callable[[Tensor], np.ndarray], types: Types) -> list[np.ndarray]:
    """The values of tensors, as they are worked with."""
    order = topological(list(roots))
    pending = dict.fromkeys(order, 0)
    for user in order:
        for t in user.inputs:
            pending[t] += 1
    for t in roots:
        pending[t] += 1
    wanted: dict[Run, list[Looped]] = {}
    for t in order:
        if isinstance(t, Looped):
            wanted.setdefault(t.run, []).append(t)
    values: dict[Tensor, np.ndarray] = {}
    for t in order:
        if isinstance(t, Looped):
            if t not in values:
                values.update(_looped(wanted[t.run], [values[s] for s in t.inputs], types))
        elif isinstance(t, Compute):
            values[t] = Body(t, [values[s] for s in t.inputs], types).run()
        else:
            values[t] = leaf(t)
        for s in t.inputs:
            pending[s] -= 1
            if not pending[s]:
                del values[s]
    return [values[t] for t in roots]


def _looped(wanted: Sequence[Looped], inputs: Sequence[np.ndarray], types: Types) -> dict[Tensor, np.ndarray]:
    """What leads out of a run: step by step."""
    recurrence = wanted[0].run.recurrence
    n, m = len(recurrence.carried), len(recurrence.slices)
    carried, rows = list(inputs[:n]), inputs[n : n + m]
    known: dict[Tensor, np.ndarray] = dict(zip(recurrence.fixed, inputs[n + m :], strict=True))
    stacks = {t: np.empty(t.shape, types.work(t.dtype)) for t in wanted if isinstance(t, Stacked)}
    roots = [*recurrence.then, *(t.of for t in stacks)]
    for at in recurrence.order:
        known.update(zip(recurrence.carried, carried, strict=True))
        known.update(zip(recurrence.slices, (row[at] for row in rows), strict=True))
        found = _values(roots, lambda t: _within(t, known, types), types)
        carried = found[:n]
        for stack, value in zip(stacks.values(), found[n:], strict=True):
            stack[at] = value
    return {t: stacks[t] if isinstance(t, Stacked) else carried[_number(t)] for t in wanted}


def _number(t: Looped) -> int:
    assert isinstance(t, Last)
    return t.number


def _within(t: Tensor, known: Mapping[Tensor, np.ndarray], types: Types) -> np.ndarray:
    """A leaf of a body."""
    return known[t] if t in known else _fed(t, {}, types)


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

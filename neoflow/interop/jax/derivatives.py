"""Derivatives of cases, forward and backward, as JAX asks for them.

JAX asks for tangents, and turns what is linear in them round for gradients. Here that is one primitive: it knows the
backward pass of a case, of which it is the transpose. Turned round it is that pass; as it is, in forward mode, it is
the backward pass of the backward pass, which is linear in its cotangents.

    dy = J dx        dx' = J^T dy', the backward pass        dy = (J^T)^T dx, its backward pass

`jax.custom_vjp` would not do: what a backward pass needs depends on which gradients are asked for, and there a program
that JAX has traced once keeps, for all of them, what the last one needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from neoflow import dtype as dt
from neoflow.interop.family import Case


class Known(Protocol):
    """An operator, as far as its derivatives need it."""

    def call(self, case: Case) -> Callable[..., list[Any]]: ...

    def found(self, text: str) -> Callable[..., list[Any]]: ...

    def case(self, text: str) -> Case: ...


@dataclass(frozen=True)
class _Transposed:
    """back: a backward pass, that takes `count` values and then cotangents. of: which case it is of and which inputs'
    gradients it gives, where it may be told to leave some cotangents out."""

    operator: Known
    back: Case
    count: int
    of: tuple[Case, tuple[bool, ...], tuple[bool, ...]] | None = None


_primitive = Primitive("neoflow_tangents")
_primitive.multiple_results = True


def derivative(
    operator: Known, case: Case, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Values of a case, with what its backward pass would be slow to compute again, and their tangents."""
    needed = tuple(not isinstance(t, ad.Zero) for t in tangents)
    keeping = _keeping(case, needed)
    found = operator.call(keeping)(*primals)
    values = found[: len(case.outputs)]
    changes: list[Any] = [ad.Zero(jax.typeof(y).to_tangent_aval()) for y in values]
    given = tuple(n < len(values) for n in range(len(found)))
    backward = keeping.backward(needed, given)
    if backward.wanted:
        every = (*primals, *found)
        saved = [every[n] for n in backward.sources]
        transposed = _Transposed(operator, operator.case(backward.text), len(saved), (keeping, needed, given))
        moved = _primitive.bind(*saved, *(tangents[n] for n in backward.wanted), of=transposed)
        for n, change in zip(backward.given, moved, strict=True):
            changes[n] = change
    return values, changes


def _keeping(case: Case, needed: tuple[bool, ...]) -> Case:
    """The case with what its backward pass would be slow to compute again, where there is any."""
    if case.steps or not case.program.has_inner:
        return case
    found = case.saving(tuple(n for n, is_needed in enumerate(needed) if is_needed))
    return found if len(found.outputs) > len(case.outputs) else case


def _forward(*values: Any, of: _Transposed) -> list[Any]:
    """Tangents of outputs, in forward mode."""
    inputs = of.back.program.inputs
    saved, tangents = values[: of.count], values[of.count :]
    found = [jax.numpy.zeros(t.shape, dt.NUMPY[t.dtype]) for t in inputs[of.count :]]
    backward = of.back.backward(tuple(n >= of.count for n in range(len(inputs))))
    if backward.wanted:
        given = [*saved, *found, *tangents]  # linear in its cotangents, so that their values count for nothing
        taken = [given[n] for n in backward.sources] + [tangents[n] for n in backward.given]
        for n, change in zip(backward.wanted, of.operator.found(backward.text)(*taken), strict=True):
            found[n - of.count] = change
    return found


def _turned(cotangents: Sequence[Any], *values: Any, of: _Transposed) -> list[Any]:
    """Gradients, in reverse mode, of the cotangents that there are."""
    saved = values[: of.count]
    found: list[Any] = [None] * len(values)
    there = iter(cotangents)
    if of.of is None:
        full = [ad.instantiate_zeros(g) for g in there]
        found[of.count :] = of.operator.call(of.back)(*saved, *full)
        return found
    case, needed, given = of.of
    whole = case.backward(needed, given)
    by_output = dict(zip(whole.given, there, strict=True))
    is_there = tuple(n in by_output and not isinstance(by_output[n], ad.Zero) for n in range(len(given)))
    backward = case.backward(needed, is_there)
    if backward.wanted:
        taken = [saved[whole.sources.index(n)] for n in backward.sources] + [by_output[n] for n in backward.given]
        for n, g in zip(backward.wanted, of.operator.found(backward.text)(*taken), strict=True):
            found[of.count + whole.wanted.index(n)] = g
    return found


def _batched(values: Sequence[Any], dims: Sequence[Any], *, of: _Transposed) -> tuple[list[Any], list[Any]]:
    """Tangents all have the axis of the batch, the saved values where they have it."""
    size = next(v.shape[d] for v, d in zip(values, dims, strict=True) if d is not None)
    moved = [v if d is None else jax.numpy.moveaxis(v, d, 0) for v, d in zip(values, dims, strict=True)]
    for n in range(of.count, len(values)):
        if dims[n] is None:
            moved[n] = jax.numpy.broadcast_to(moved[n], (size, *moved[n].shape))
    which = [n for n in range(of.count) if dims[n] is not None]
    back = of.back.batched((*which, *range(of.count, len(of.back.program.inputs))), size)
    found = _primitive.bind(*moved, of=_Transposed(of.operator, back, of.count))
    return found, [0] * len(found)


def _derived(primals: Sequence[Any], tangents: Sequence[Any], *, of: _Transposed) -> Any:
    full = [ad.instantiate_zeros(t) for t in tangents]
    return jax.jvp(lambda *values: _forward(*values, of=of), tuple(primals), tuple(full))


@_primitive.def_abstract_eval
def _abstract(*avals: Any, of: _Transposed) -> list[Any]:
    return [jax.core.ShapedArray(t.shape, dt.NUMPY[t.dtype]) for t in of.back.program.inputs[of.count :]]


_primitive.def_impl(_forward)
mlir.register_lowering(_primitive, mlir.lower_fun(_forward, multiple_results=True))
ad.primitive_jvps[_primitive] = _derived
ad.primitive_transposes[_primitive] = _turned
batching.primitive_batchers[_primitive] = _batched

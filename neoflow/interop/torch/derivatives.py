"""What PyTorch asks of an operator beside its values: what its backward pass keeps and gives, and batches of it.

`run(values, text)` computes a case by its text: in PyTorch's graph as the operator `NAME_derived`, and under
`torch.func` as `Transformed`, since an operator of `torch.library` has no gradient there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from neoflow.interop.family import Case

Run = Callable[[list[Any], str], Sequence[Any]]


class Known(Protocol):
    """An operator, as far as its derivatives need it."""

    derived: Any

    def of(self, text: str) -> Case: ...


def keep(ctx: Any, case: Case, needed: tuple[bool, ...], values: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Save what the backward pass for the needed values reads, and nothing else."""
    ctx.set_materialize_grads(False)
    ctx.of, count = (case, needed), len(values)  # one attribute: each takes most of a microsecond
    sources = case.backward(needed).sources
    ctx.save_for_backward(*[values[n] if n < count else outputs[n - count] for n in sources])


def pulled(ctx: Any, needed: Sequence[bool], grads: Sequence[Any], run: Run) -> list[Any]:
    """A gradient for each value that needs one now, None for the others. grads: of each output, or None."""
    found: list[Any] = [None] * len(needed)
    case, kept = ctx.of
    backward = case.backward(tuple(needed), tuple([g is not None for g in grads]))
    if not backward.wanted:
        return found
    saved = ctx.saved_tensors
    if backward.sources == (every := case.backward(kept).sources):
        values = [*saved]
    else:
        values = [saved[every.index(n)] for n in backward.sources]
    values += [grads[n] for n in backward.given]
    for n, g in zip(backward.wanted, run(values, backward.text), strict=True):
        found[n] = g
    return found


def over(size: int, case: Case, values: Sequence[Any], dims: Sequence[Any], run: Run) -> tuple[list[Any], list[Any]]:
    """Results of a case over a batch, and the dimension of it in each. dims: that of each value, None where it has
    none."""
    which = tuple(n for n, d in enumerate(dims) if d is not None)
    moved = [v if d is None else v.movedim(d, 0) for v, d in zip(values, dims, strict=True)]
    found = run(moved, case.batched(which, size).text)
    return list(found), [0 if set(needs) & set(which) else None for needs in case.program.depends]


class Transformed(torch.autograd.Function):
    """A case under the transformations of `torch.func`."""

    @staticmethod
    def forward(operator: Known, text: str, *values: Any) -> tuple[Any, ...]:
        return tuple(operator.derived(list(values), text))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        operator, text, *values = inputs
        keep(ctx, operator.of(text), tuple(ctx.needs_input_grad[2:]), values, output)
        ctx.operator = operator

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        run = partial(_transformed, ctx.operator)
        return None, None, *pulled(ctx, ctx.needs_input_grad[2:], grads, run)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], operator: Known, text: str, *values: Any) -> Any:
        run = partial(_transformed, operator)
        found, dims = over(info.batch_size, operator.of(text), values, in_dims[2:], run)
        return tuple(found), tuple(dims)


def _transformed(operator: Known, values: list[Any], text: str) -> tuple[Any, ...]:
    return Transformed.apply(operator, text, *values)

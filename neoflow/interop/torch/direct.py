"""Calls that go past PyTorch's dispatcher, where it would do nothing but find the operator: on dense tensors of a CPU,
while nothing (a mode, a transformation, autocast, a profiler, a tracer) wants to see what is called.

What a call beside its kernels takes is most of what a small operator costs, and the dispatcher of an operator that is
written in Python the most of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch

from neoflow.interop.family import Case
from neoflow.interop.torch.derivatives import keep, pulled
from neoflow.interop.torch.tensors import Run

TYPES = (torch.Tensor, torch.nn.Parameter)
"""Of tensors that are what they seem: others may want to see what they are given to."""
_include, _exclude = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
_keys = torch._C._dispatch_keys


def _seen() -> tuple[int, int, int]:
    """What a thread includes and excludes, and what a tensor is."""
    return _include().raw_repr(), _exclude().raw_repr(), _keys(torch.empty(1)).raw_repr()


with ThreadPoolExecutor(1) as _new:  # which is in no mode, whatever this thread is in
    _INCLUDED, _EXCLUDED, DENSE = _new.submit(_seen).result()


def is_plain() -> bool:
    """Whether nothing but the operator itself would be called on this thread now."""
    return (
        _include().raw_repr() == _INCLUDED
        and _exclude().raw_repr() == _EXCLUDED
        and not torch.autograd._profiler_enabled()
        and not torch._C._is_torch_function_mode_enabled()
    )


def key_of(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a call is found by; None where a tensor is another than a dense one of a CPU."""
    found: list[Any] = []
    for a in args:
        if type(a) in TYPES:
            if _keys(a).raw_repr() != DENSE:
                return None
            found.append((a.dtype, a.shape))
        elif isinstance(a, torch.Tensor):
            return None
        else:
            found.append((type(a), a))
    return tuple(found)


class Known(Protocol):
    """An operator, as far as its direct calls need it."""

    derived: Any

    def derived_run(self, values: Sequence[torch.Tensor], of: str) -> list[torch.Tensor]: ...


class Direct(torch.autograd.Function):
    """A case with a backward pass."""

    @staticmethod
    def forward(
        ctx: Any, operator: Known, case: Case, run: Run, needed: tuple[bool, ...], *values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        outputs = run(values)
        keep(ctx, case, needed, values, outputs)
        ctx.operator = operator
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        operator = ctx.operator

        def run(values: list[torch.Tensor], of: str) -> Sequence[torch.Tensor]:
            if torch.is_grad_enabled() or not is_plain() or key_of(values) is None:
                return operator.derived(values, of)
            return operator.derived_run(values, of)

        return None, None, None, None, *pulled(ctx, ctx.needs_input_grad[4:], grads, run)

"""How a compiled program runs on PyTorch's tensors: where they lie on a CPU, on the current stream of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from neoflow.dtype import NUMPY
from neoflow.errors import RuntimeFault
from neoflow.interop.compiled import compiled
from neoflow.interop.family import Case, Spec
from neoflow.runtime.device import ALIGNMENT
from neoflow.runtime.executor import OutOfRange
from neoflow.runtime.function import Function
from neoflow.tune import Limits

Run = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NUMPY}
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}


def spec_of(t: torch.Tensor, name: str) -> Spec:
    """dtype and shape of an argument. Raises `RuntimeFault` for a dtype that the language lacks."""
    if t.dtype not in NAMES:
        raise RuntimeFault(f"argument {name} is {t.dtype}; there are {', '.join(NAMES.values())}: convert it")
    return NAMES[t.dtype], tuple(map(int, t.shape))  # a symbolic extent becomes the number that it has


def empty_results(case: Case, like: torch.Tensor) -> list[torch.Tensor]:
    """Tensors as the case gives them, without values."""
    return [torch.empty(shape, dtype=DTYPES[dtype], device=like.device) for dtype, shape in case.outputs]


def runner(case: Case, device: str, target: str | None, tune: float | Limits | None) -> Run:
    """What runs a case on tensors of a device, compiled now. target: another than that device's own, of it. Raises
    `RuntimeFault` for a device that neoflow has no code for."""
    if case.is_empty:
        case.check_empty()
        return lambda tensors: [t.zero_() for t in empty_results(case, tensors[0])]
    if device not in ("cpu", "cuda"):
        raise RuntimeFault(f"operator {case.family.signature.name}: tensors on {device}; there are cpu and cuda")
    function = compiled(case, device, target, tune)
    return _OnCpu(case, function) if device == "cpu" else _OnGpu(function)


class _OnCpu:
    """Tensors are used where they lie; what is not dense or aligned is copied."""

    def __init__(self, case: Case, function: Function):
        self._function, self._run_at = function, function.run_at
        self._like = [torch.empty((), dtype=DTYPES[dtype]).expand(shape) for dtype, shape in case.outputs]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        addresses = []
        copies = []
        for t in tensors:
            address = t.data_ptr()
            if address % ALIGNMENT or not t.is_contiguous():
                t = t.clone(memory_format=torch.contiguous_format)
                address = t.data_ptr()
                copies.append(t)  # until the run is over
            addresses.append(address)
        results = [torch.empty_like(t) for t in self._like]
        addresses += [t.data_ptr() for t in results]
        try:
            self._run_at(addresses)
        except OutOfRange:
            self._function(*(t.detach().contiguous() for t in tensors))  # says which value, and the user's line
            raise
        return results


class _OnGpu:
    """Tensors are lent by DLPack; the current stream and the step wait for each other, and the host for neither."""

    def __init__(self, function: Function):
        self._function = function

    def __call__(self, tensors: Sequence[Any]) -> list[torch.Tensor]:
        return [torch.from_dlpack(y) for y in self._function(*(t.detach().contiguous() for t in tensors))]

"""Narrow types of contractions: what may be asked for, and the tensors that then are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from neoflow import devices
from neoflow.architectures import has_tf32
from neoflow.errors import ConfigError
from neoflow.expr.tensor import Parameter, Placeholder, Tensor, topological
from neoflow.graph import MIXED, TF32, make_graph
from neoflow.rewriting import left_out, rewritten
from neoflow.trace import Trace

PRECISIONS = ("fp32", *MIXED)
"""fp32: as the program is written."""


def check_precision(precision: str, target: str | None) -> str:
    """The precision, if this target has it, or any (None). Raises `ConfigError`."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
    if precision == TF32 and target is not None and not has_tf32(devices.resolve_target(target)):
        others = ", ".join(p for p in PRECISIONS if p != TF32)
        raise ConfigError(
            f"precision 'tf32' is one of NVIDIA's tensor cores, sm_80 and newer, which target {target!r} "
            f"has not: choose among {others}, or a target like cuda:sm_80"
        )
    return precision


@overload
def mixed_precision(tensors: Tensor, precision: str) -> Tensor: ...
@overload
def mixed_precision(tensors: Sequence[Tensor], precision: str) -> list[Tensor]: ...
def mixed_precision(tensors: Tensor | Sequence[Tensor], precision: str) -> Tensor | list[Tensor]:
    """The same tensors with contractions in mixed precision: what `nf.compile(precision=...)` computes of them.

    precision: "bf16" or "fp16" ("fp32": as they are). Operands of contractions are rounded to the narrow type, products
    summed in float32; softmax, norms, losses, other reductions and what is given back stay float32, as do parameters
    (`graph/precision.py` has the table). "tf32": operands of contractions are rounded to TF32, 10 bits after the point
    and the range of float32, where they are multiplied; everything is stored as float32. To be used last, after
    `nf.grad`, `nn.state` and `nn.inference`, on all tensors of a program together. Raises `ConfigError`.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    check_precision(precision, None)
    if precision in MIXED:
        fed = [t for t in topological(roots) if isinstance(t, Placeholder) and not isinstance(t, Parameter)]
        roots = list(rewritten(make_graph(roots, fed), Trace(), precision, left_out()).outputs)
    return roots[0] if isinstance(tensors, Tensor) else roots

"""How large a kernel may be: what its integers count. Asked of the tensors of a program, before anything is lowered."""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.errors import CodegenError
from neoflow.expr.tensor import Compute, Tensor
from neoflow.partition import KernelCall

MOST = (1 << 31) - 1
"""Elements of a tensor in memory, and values of an axis: loops and addresses are int32."""


def check_sizes(calls: Sequence[KernelCall], outputs: Sequence[Tensor]) -> None:
    """Raise `CodegenError`, with the tensor and the user's line, for what is too large to be addressed."""
    for t in (*outputs, *(t for call in calls for t in (*call.inputs, *call.outputs))):
        if t.size > MOST:
            raise CodegenError(
                f"{t.name} of shape {t.shape} has {t.size} elements; one that is stored has at most 2^31 - 1: "
                "divide it, or use it where it need not be stored",
                t.where,
            )
    for call in calls:
        for node in call.subgraph.nodes:
            for a in (*node.definition.axes, *node.definition.reduction_axes):
                if a.extent > MOST:
                    written = next((t.where for t in call.outputs if isinstance(t, Compute) and t.where), None)
                    raise CodegenError(
                        f"an axis of kernel {call.name} has {a.extent} values; it has at most 2^31 - 1: go over two "
                        "axes, i * n + j",
                        written,
                    )

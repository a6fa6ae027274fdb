"""What the writers of sums, windows and boxes ask of the body that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from neoflow.expr.deep import Walk
from neoflow.expr.interp.analysis import Analysis
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.expr.tensor import Compute, Tensor
from neoflow.interop.onnx.writing.nodes import Nodes, Value


class Scope(Protocol):
    """A tensor's body while it is written, see `body`."""

    nodes: Nodes
    tensor: Compute
    analysis: Analysis

    def value(self, e: Expr, is_guarded: bool = False) -> Walk[Value]: ...
    def read(self, t: Tensor, e: Read, is_guarded: bool = False) -> Walk[Value]: ...
    def fits(self, axes: Sequence[Axis]) -> None: ...
    def chosen(self, cond: Value, then: Value, other: Value) -> Value: ...
    def applied(self, fn: str, args: Sequence[Value], dtype: str) -> Value: ...
    def reduced(self, op: str, value: Value, axes: Sequence[Axis]) -> Value: ...

"""ONNX's operators as expressions: `TABLE` has a row for each."""

from neoflow.interop.onnx.operators.row import Row
from neoflow.interop.onnx.operators.table import TABLE

__all__ = ["TABLE", "Row"]

"""The table of operators."""

from __future__ import annotations

from neoflow.interop.onnx.operators import arcs, elementwise, indexing, recurrent, reductions, sampling, shapes, windows
from neoflow.interop.onnx.operators.row import Row

TABLE: dict[str, Row] = {
    row.name: row
    for module in (elementwise, arcs, shapes, reductions, windows, indexing, recurrent, sampling)
    for row in module.ROWS
}
"""By name, for versions 13 to the newest that the installed `onnx` knows. What is not here and is defined by ONNX as a
function of others is written by these."""

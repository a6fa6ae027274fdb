"""What a name of an ONNX graph stands for while it is read: an expression, or an array that is known already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from neoflow import dtype as dt
from neoflow.errors import DataError
from neoflow.expr.constant import constant
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Constant, Parameter, Placeholder, Tensor, topological

Value = Tensor | np.ndarray
"""Arrays may be empty and of any type; tensors are what the language has."""
FOLDED = 1 << 16
"""Elements of what is computed while a graph is read: shapes, indices, small tables."""


def dtype_of(number: int) -> str:
    """The name of one of ONNX's element types. Raises `DataError` for what the language lacks."""
    try:
        found = onnx.helper.tensor_dtype_to_np_dtype(number).name
    except KeyError:
        raise DataError(f"element type {number} is none of ONNX's") from None
    if found not in dt.NUMPY:
        raise DataError(f"element type {found} is none of {', '.join(dt.NUMPY)}")
    return found


def number_of(dtype: str) -> int:
    """ONNX's number of an element type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dt.NUMPY[dtype]))


def array_of(proto: onnx.TensorProto) -> np.ndarray:
    """The elements of a tensor of the file. Raises `DataError` for what does not hold as many as its shape says."""
    try:
        return numpy_helper.to_array(proto)
    except Exception as error:  # what is raised depends on where the file is wrong
        raise DataError(f"tensor {proto.name!r} of shape {list(proto.dims)} cannot be read: {error}") from None


def tensor_of(value: Value) -> Tensor:
    """As what expressions are made of. Raises `DataError` for an array that the language has no tensor for."""
    if isinstance(value, Tensor):
        return value
    if value.dtype.name not in dt.NUMPY:
        raise DataError(f"element type {value.dtype} is none of {', '.join(dt.NUMPY)}")
    if not value.size:
        raise DataError(f"a tensor of shape {list(value.shape)} has no elements")
    return constant(value, value.dtype)


def known(value: Value) -> np.ndarray | None:
    """The elements, where they follow from the file alone; of parameters, those that they begin with."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Constant):
        return value.value
    if value.size > FOLDED:
        return None
    leaves = [t for t in topological([value]) if isinstance(t, Placeholder)]
    if any(not isinstance(t, Parameter) for t in leaves):
        return None
    return evaluate([value], {})[0]


def folded(values: Sequence[Value]) -> list[Value]:
    """Tensors of constants as their elements, where these are few."""
    few = [isinstance(v, Tensor) and v.size <= FOLDED for v in values]
    found = iter(evaluate([v for v, f in zip(values, few, strict=True) if f and isinstance(v, Tensor)], {}))
    return [next(found) if f else v for v, f in zip(values, few, strict=True)]


_OF_EMPTY = (
    "Cast", "Concat", "ConstantOfShape", "Equal", "Expand", "Gather", "Identity", "ReduceProd", "Reshape", "Shape",
    "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
"""What graphs compute shapes with: the shape of a scalar has no elements, and the language no such tensors."""


def of_reference(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], version: int) -> list[Value] | None:
    """What the `onnx` package's own evaluator gives for arrays of which one is empty, or which give an empty one; None
    for what is neither small nor of shapes."""
    if node.op_type not in _OF_EMPTY or sum(a.size for a in inputs if a is not None) > FOLDED:
        return None
    if node.op_type == "Expand" and inputs[0] is not None and inputs[0].size:
        return None
    if node.op_type == "ConstantOfShape" and inputs[0] is not None and np.prod(np.append(inputs[0], 1.0)) > FOLDED:
        return None
    from onnx.reference import ReferenceEvaluator  # imported here: slow, and seldom needed

    names = [n for n in node.input if n]
    feeds: dict[str, Any] = {n: a for n, a in zip(node.input, inputs, strict=True) if a is not None}
    infos = [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in dict.fromkeys(names)]
    outputs = [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in node.output]
    graph = onnx.helper.make_graph([node], "one", infos, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    try:
        found = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # it says less than what the row has said
        return None
    arrays: list[Value] = [np.asarray(a) for a in found]
    return arrays

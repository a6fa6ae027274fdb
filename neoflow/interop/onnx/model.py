"""`nf.onnx.load`: a model of a file, called with arrays and trained."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from neoflow import dtype as dt
from neoflow import pipeline
from neoflow.boundary import publish_methods
from neoflow.caller import caller
from neoflow.errors import ArgumentError, DataError, NeoflowError, shown
from neoflow.expr.given import checked_shape
from neoflow.expr.limits import unusable
from neoflow.expr.tensor import Parameter, Placeholder, Tensor, topological
from neoflow.interop.onnx.files import read
from neoflow.interop.onnx.reader import Extra, Reader, Scope
from neoflow.interop.onnx.values import Value, array_of, dtype_of, tensor_of
from neoflow.runtime.function import Function
from neoflow.tune import Limits

Shapes = Mapping[str, int | Sequence[int]]


class Model:
    """What `nf.onnx.load` makes. `inputs` and `outputs` are tensors in the graph's order, to be written on with, given
    to `nf.Trainer` and `nf.compile`; a call runs them.

    model(array, ...) -> [array, ...]    compiled at the first call, with the values that the parameters have then
    """

    def __init__(
        self, inputs: Sequence[Placeholder], outputs: Mapping[str, Tensor], parameters: Sequence[Parameter],
        target: str, tune: float | Limits | None,
    ):  # fmt: skip
        self.inputs, self.outputs = tuple(inputs), tuple(outputs.values())
        self.names = tuple(outputs)
        self._parameters = tuple(parameters)
        self._target, self._tune = target, tune

    def parameters(self) -> list[Parameter]:
        """The initializers that are floats and that an output depends on; statistics of batch norm are constants."""
        return list(self._parameters)

    @cached_property
    def function(self) -> Function:
        """The compiled outputs."""
        return pipeline.compile(list(self.outputs), list(self.inputs), target=self._target, tune=self._tune)

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """The outputs for arrays in the order of the inputs."""
        return list(self.function(*arrays))

    def __repr__(self) -> str:
        takes = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs)
        gives = ", ".join(f"{n}: {t.dtype}{list(t.shape)}" for n, t in zip(self.names, self.outputs, strict=True))
        return f"Model({takes}) -> {gives}, {len(self._parameters)} parameters"


def load(
    path: str | os.PathLike,
    shapes: Shapes | None = None,
    *,
    extra: Extra | None = None,
    target: str = "cpu",
    tune: float | Limits | None = None,
) -> Model:
    """The model of an ONNX file, its operators written as expressions.

    shapes: extents that the file leaves open, by their names there, {"batch": 8}, or whole shapes by the names of
    inputs, {"image": (8, 3, 224, 224)}. extra: functions for operators that ONNX lacks, by name: each takes the
    node's inputs as tensors and its attributes by name, and gives one tensor or several. target, tune: as in
    `nf.compile`.

    Raises `DataError` for a file that is no model, damaged, or has what is not known, and says which node that is.
    """
    proto = read(path)
    try:
        return _model(proto, _checked_shapes(shapes), _checked_extra(extra), target, tune)
    except DataError as error:
        raise DataError(f"{path}: {error.message}") from None


def _checked_shapes(shapes: Any) -> Shapes:
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping) or not all(isinstance(k, str) for k in shapes):
        raise ArgumentError(
            f"shapes is {shown(shapes)}; it maps names of dimensions to extents, or of inputs to shapes", caller()
        )
    for value in shapes.values():
        checked_shape(value)
    return shapes


def _checked_extra(extra: Any) -> Extra:
    if extra is None:
        return {}
    if not isinstance(extra, Mapping) or not all(isinstance(k, str) and callable(f) for k, f in extra.items()):
        raise ArgumentError(f"extra is {shown(extra)}; it maps names of operators to functions", caller())
    return extra


def _model(proto: onnx.ModelProto, shapes: Shapes, extra: Extra, target: str, tune: float | Limits | None) -> Model:
    graph = proto.graph
    held = {t.name: array_of(t) for t in graph.initializer}
    given = [i for i in graph.input if i.name not in held]
    inputs = _inputs(given, shapes)
    weights = {name: a for name, a in held.items() if a.dtype.name in dt.FLOATS}
    values: dict[str, Value] = {**held, **{i.name: t for i, t in zip(given, inputs, strict=True)}}
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    reader, scope = Reader(proto.functions, extra, weights), Scope(values, versions)
    reader.run(graph.node, scope)
    outputs = {}
    for o in graph.output:
        try:
            outputs[o.name] = tensor_of(reader.output(o.name, scope))
        except NeoflowError as error:
            raise DataError(f"output {o.name!r}: {error.message}") from None
    return Model(inputs, outputs, _reached(list(outputs.values()), reader.parameters), target, tune)


def _reached(outputs: list[Tensor], parameters: Mapping[str, Parameter]) -> list[Parameter]:
    there = set(topological(outputs))
    return [p for p in parameters.values() if p in there]


def _inputs(infos: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> list[Placeholder]:
    """A placeholder for each input, its extents those of the file or bound by `shapes`."""
    found, used, open_dims = [], set(), []
    for info in infos:
        if not info.type.HasField("tensor_type"):
            raise DataError(f"input {info.name!r} is no tensor")
        declared = info.type.tensor_type
        if info.name in shapes:
            used.add(info.name)
            shape = checked_shape(shapes[info.name])
            _fits(info.name, declared, shape)
        else:
            if not declared.HasField("shape"):
                raise DataError(f"input {info.name!r} has no shape: shapes={{{info.name!r}: (...)}}")
            extents: list[int] = []
            for n, d in enumerate(declared.shape.dim):
                if d.HasField("dim_value"):
                    extents.append(d.dim_value)
                elif isinstance(bound := shapes.get(d.dim_param), int):
                    used.add(d.dim_param)
                    extents.append(bound)
                else:
                    open_dims.append(f"{d.dim_param or n} of {info.name!r}")
                    extents.append(1)
            shape = tuple(extents)
        try:
            dtype = dtype_of(declared.elem_type)
            if (wrong := unusable(info.name)) is not None:
                raise DataError(wrong)
            found.append(Placeholder(checked_shape(shape), dtype, info.name, None))
        except NeoflowError as error:
            raise DataError(f"input {info.name!r}: {error.message}") from None
    if open_dims:
        raise DataError(
            f"the file leaves extents open: {', '.join(open_dims)}; give them by the dimension's name or the input's, "
            "shapes={'batch': 8} or {'x': (8, 3, 224, 224)}"
        )
    unused = [name for name in shapes if name not in used]
    if unused:
        raise DataError(f"shapes has {unused[0]!r}, which is neither an input nor an open extent of one")
    return found


def _fits(name: str, declared: onnx.TypeProto.Tensor, shape: tuple[int, ...]) -> None:
    """Raise `DataError` unless a shape is what the file says where it says something."""
    if not declared.HasField("shape"):
        return
    dims = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    if len(dims) != len(shape) or any(d is not None and d != n for d, n in zip(dims, shape, strict=True)):
        told = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in declared.shape.dim]
        raise DataError(f"input {name!r} has the shape {told} in the file, which {list(shape)} does not fit")


publish_methods(Model)

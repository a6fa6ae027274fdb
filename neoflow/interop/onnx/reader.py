"""From the nodes of an ONNX graph to expressions, one after the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import onnx

from neoflow.dtype import NUMPY
from neoflow.errors import DataError, NeoflowError, shown
from neoflow.expr.limits import excess, unsaved
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.interop.onnx.files import OLDEST
from neoflow.interop.onnx.operators import TABLE, Row
from neoflow.interop.onnx.values import Value, array_of, folded, known, of_reference, tensor_of

MOST_NODES = 1 << 17
"""Nodes that are read, those of functions each time they are called: a small file may call for more than there is time
for."""
DEEPEST = 64
"""Functions and branches inside each other."""
_NOTHING = np.zeros(0)
"""What stands for an output that nobody takes."""
_OWN = ("", "ai.onnx")
"""Names of ONNX's own domain."""
Extra = Mapping[str, Callable[..., Any]]


@dataclass
class Scope:
    """The names of a graph or of a function's body. Inside a branch, also those around it."""

    values: dict[str, Value]
    versions: dict[str, int]
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    depth: int = 0


class Reader:
    """extra: functions for operators by name, before the table's. weights: floats of the file that are parameters
    where they are read as tensors, by name."""

    def __init__(self, functions: Sequence[onnx.FunctionProto], extra: Extra, weights: Mapping[str, np.ndarray]):
        self.functions = {(f.domain, f.name): f for f in functions}
        self.extra, self.weights = extra, weights
        self._names = {id(array): name for name, array in weights.items()}
        self.parameters: dict[str, Parameter] = {}
        self.read = 0

    def run(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Give every output of the nodes its value. Raises `DataError`, which names the node."""
        for n, node in enumerate(nodes):
            self.read += 1
            if self.read > MOST_NODES:
                raise DataError(f"more than {MOST_NODES} nodes, those of functions counted each time they are called")
            name = f"node {node.name or n!r} ({node.op_type})"
            try:
                found = self.node(node, scope)
            except NeoflowError as error:
                raise DataError(f"{name}: {error.message}") from None
            except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
                raise DataError(f"{name} has inputs or attributes that the operator does not: {error}") from error
            if len(found) < len(node.output):
                raise DataError(f"{name} has {len(node.output)} outputs, and only {len(found)} of them are known")
            scope.values.update({o: v for o, v in zip(node.output, found, strict=False) if o})

    def node(self, node: onnx.NodeProto, scope: Scope) -> Sequence[Value]:
        attributes = {}
        for a in node.attribute:
            if not a.ref_attr_name:
                attributes[a.name] = a
            elif a.ref_attr_name in scope.attributes:
                attributes[a.name] = onnx.AttributeProto()
                attributes[a.name].CopyFrom(scope.attributes[a.ref_attr_name])
                attributes[a.name].name = a.name
        inputs = [self._input(n, scope) for n in node.input]
        if node.op_type in self.extra:
            return self._called(Row(node.op_type, self.extra[node.op_type]), node, inputs, attributes, scope)
        if (node.domain, node.op_type) in self.functions:
            return self._body(self.functions[node.domain, node.op_type], node, inputs, attributes, scope)
        if node.domain in _OWN and node.op_type == "Identity" and inputs and self.is_weight(inputs[0]):
            return [inputs[0]]  # exporters write one initializer of several that are equal
        if node.domain in _OWN and node.op_type == "If":
            return self._branch(inputs, attributes, scope)
        if node.domain in _OWN and node.op_type in TABLE:
            _check_version(node.op_type, scope.versions.get("", OLDEST))
            return self._called(TABLE[node.op_type], node, inputs, attributes, scope)
        defined = _defined(node, attributes, inputs, scope)
        if defined is not None:
            return self._body(defined[0], node, inputs, {**defined[1], **attributes}, scope)
        domain = f" of domain {node.domain!r}" if node.domain not in _OWN else ""
        raise DataError(
            f"operator {node.op_type}{domain} is not known: write it as an expression, "
            f"extra={{{node.op_type!r}: function}}, whose function takes its inputs and attributes"
        )

    def _input(self, name: str, scope: Scope) -> Value | None:
        if not name:
            return None
        if name not in scope.values:
            raise DataError(f"it reads {name!r}, which nothing before it gives")
        return scope.values[name]

    def is_weight(self, value: Value | None) -> TypeGuard[np.ndarray]:
        """Whether it is an initializer that may be trained, by whatever name."""
        return isinstance(value, np.ndarray) and id(value) in self._names

    def trained(self, array: np.ndarray) -> Parameter:
        """The parameter of an initializer."""
        name = self._names[id(array)]
        if name not in self.parameters:
            wrong = unsaved(name) or excess(array.shape)
            if wrong is not None or not array.size:
                raise DataError(f"initializer {name!r}: {wrong or 'it has no elements'}")
            self.parameters[name] = Parameter(array.shape, array.dtype.name, name, None, init=array)
        return self.parameters[name]

    def _called(
        self, row: Row, node: onnx.NodeProto, inputs: Sequence[Value | None],
        attributes: Mapping[str, onnx.AttributeProto], scope: Scope,
    ) -> Sequence[Value]:  # fmt: skip
        named = {name: _value(a) for name, a in attributes.items()}
        if row.counts:
            named["outputs"] = tuple(node.output)
        _check(row, inputs, named)
        args: list[Any] = []
        is_trained = False
        for n, value in enumerate(inputs):
            if value is not None and n in row.known:
                array = known(value)
                if array is None:
                    raise DataError(
                        f"input {n}, {node.input[n]!r}, is computed from inputs of the model, and has to be known when "
                        "the model is read, as shapes are: make it an initializer"
                    )
                args.append(array)
            elif self.is_weight(value) and n not in row.fixed:
                is_trained = True
                args.append(self.trained(value))
            else:
                args.append(value)
        arrays = [a if a is None or isinstance(a, np.ndarray) else None for a in args]
        is_known = not is_trained and all(a is not None or b is None for a, b in zip(arrays, args, strict=True))
        try:
            lifted = [a if a is None or n in row.known else tensor_of(a) for n, a in enumerate(args) if row.keeps(a)]
            found = row.function(*lifted, **named)
            results = list(found) if isinstance(found, (tuple, list)) else [found]
            if any(not isinstance(v, (Tensor, np.ndarray)) for v in results):
                raise DataError(f"the function of {row.name} gave {shown(found)}, which is no tensor")
            return folded(results) if is_known else results
        except NeoflowError:
            own = of_reference(node, arrays, scope.versions.get("", 0)) if is_known else None
            if own is None:
                raise
            return own

    def _body(
        self, function: onnx.FunctionProto, node: onnx.NodeProto, inputs: Sequence[Value | None],
        attributes: Mapping[str, onnx.AttributeProto], scope: Scope,
    ) -> Sequence[Value]:  # fmt: skip
        """What a function gives whose body is nodes."""
        if scope.depth >= DEEPEST:
            raise DataError(f"functions call each other more than {DEEPEST} deep")
        given = {a.name: a for a in function.attribute_proto} | dict(attributes)
        values = {name: v for name, v in zip(function.input, inputs, strict=False) if v is not None}
        versions = {o.domain: o.version for o in function.opset_import}
        inner = Scope(_Optional(values, function.input), versions, given, scope.depth + 1)
        self.run(function.node, inner)
        missing = [
            o for o, wanted in zip(function.output, node.output, strict=False) if wanted and o not in inner.values
        ]
        if missing:
            raise DataError(f"the function's output {missing[0]!r} is given by no node of it")
        return [inner.values.get(o, _NOTHING) for o in function.output]

    def _branch(
        self, inputs: Sequence[Value | None], attributes: Mapping[str, onnx.AttributeProto], scope: Scope
    ) -> Sequence[Value]:
        """The branch that a condition takes, which is known."""
        if scope.depth >= DEEPEST:
            raise DataError(f"branches are more than {DEEPEST} deep")
        condition = known(inputs[0]) if inputs and inputs[0] is not None else None
        if condition is None:
            raise DataError("the condition depends on inputs of the model; a branch has to be known when it is read")
        graph = attributes["then_branch" if condition.all() else "else_branch"].g
        values = dict(scope.values) | {t.name: array_of(t) for t in graph.initializer}
        inner = Scope(values, scope.versions, scope.attributes, scope.depth + 1)
        self.run(graph.node, inner)
        return [self.output(o.name, inner) for o in graph.output]

    def output(self, name: str, scope: Scope) -> Value:
        if name not in scope.values:
            raise DataError(f"output {name!r} is given by no node")
        value = scope.values[name]
        return self.trained(value) if self.is_weight(value) else value


class _Optional(dict):
    """Names of a function's body, whose inputs may be left out: these stand for nothing."""

    def __init__(self, values: Mapping[str, Value], inputs: Sequence[str]):
        super().__init__({name: values.get(name) for name in inputs} | dict(values))


def _value(a: onnx.AttributeProto) -> Any:
    """An attribute as Python has it: numbers, texts, arrays, lists of these."""
    if a.type == onnx.AttributeProto.TENSOR:
        return array_of(a.t)
    if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS, onnx.AttributeProto.SPARSE_TENSOR):
        raise DataError(f"attribute {a.name} is a graph or a sparse tensor, which is not known here")
    found = onnx.helper.get_attribute_value(a)
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    if a.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(found)
    return [v.decode("utf-8", "replace") for v in found] if a.type == onnx.AttributeProto.STRINGS else found


def _check(row: Row, inputs: Sequence[Value | None], named: Mapping[str, Any]) -> None:
    """Raise `DataError` unless the row's function takes these."""
    try:
        inspect.signature(row.function).bind(*inputs, **named)
    except TypeError as error:
        raise DataError(f"{error}, as {row.name} is known here") from None


def _check_version(name: str, version: int) -> None:
    """Raise `DataError` for an operator that meant something else in a version before `OLDEST`."""
    if version >= OLDEST:
        return
    try:
        own, known_one = (onnx.defs.get_schema(name, v) for v in (version, OLDEST))
    except onnx.defs.SchemaError:
        return
    if own.since_version != known_one.since_version:
        raise DataError(
            f"{name} is that of version {own.since_version}, and versions before {OLDEST} are not known: convert the "
            f"model, onnx.version_converter.convert_version(model, {OLDEST})"
        )


def _defined(
    node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto], inputs: Sequence[Value | None], scope: Scope
) -> tuple[onnx.FunctionProto, dict[str, onnx.AttributeProto]] | None:
    """The body of an operator that ONNX defines by others, and its attributes' defaults; None where there is none."""
    domain = "" if node.domain in _OWN else node.domain
    version = scope.versions.get(domain, 0)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        at = max((v for v in schema.function_opset_versions if v <= version), default=version)
        text = schema.get_function_with_opset_version(at)
    elif schema.has_context_dependent_function:
        written = onnx.NodeProto()
        written.CopyFrom(node)
        del written.attribute[:]
        written.attribute.extend(attributes.values())
        types = [_type(v).SerializeToString() for v in inputs]
        at = max((v for v in schema.context_dependent_function_opset_versions if v <= version), default=version)
        text = schema.get_context_dependent_function_with_opset_version(at, written.SerializeToString(), types)
    else:
        return None
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    return onnx.FunctionProto.FromString(text), defaults


def _type(value: Value | None) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    dtype = value.dtype if isinstance(value, np.ndarray) else NUMPY[value.dtype]
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(dtype), value.shape)

"""A program's tensors as an ONNX graph, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from neoflow.errors import DataError
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor, topological
from neoflow.interop.onnx.values import number_of
from neoflow.interop.onnx.writing.body import Body
from neoflow.interop.onnx.writing.nodes import Nodes
from neoflow.interop.onnx.writing.windows import padding
from neoflow.runtime.parameters import get_value

VERSION, FORMAT = 18, 8
"""Of the operators that are written, and of the file: what runtimes since 2023 read."""


class Program:
    """outputs: by the names that they have in the file."""

    def __init__(self, outputs: Mapping[str, Tensor], inputs: Sequence[Placeholder]):
        self.nodes = Nodes()
        self.outputs, self.inputs = outputs, inputs
        tensors = topological(list(outputs.values()))
        self.parameters = [t for t in tensors if isinstance(t, Parameter)]
        self.names = self._named(tensors)
        self._there: set[Tensor] = set()
        given = set(outputs.values())
        for t in tensors:
            if t in given or padding(t) is None:  # what is padded is padded by what reads it, where that can
                self.name_of(t)
        for name, t in outputs.items():
            if self.names[t] != name:
                self.nodes.named(name, "Identity", [self.names[t]])

    def _named(self, tensors: Sequence[Tensor]) -> dict[Tensor, str]:
        """Names of tensors, those first that a user of the file sees: these stay what they are."""
        found: dict[Tensor, str] = {}
        seen: set[str] = set()
        known: list[Placeholder] = [*self.inputs, *self.parameters]
        for p in known:
            if p.name in seen:
                raise DataError(
                    f"two inputs or parameters are named {p.name!r}, and a file knows them by their names: give one of "
                    "them another name",
                    p.where,
                )
            seen.add(p.name)
            found[p] = self.nodes.unique(p.name)
        for name, t in self.outputs.items():
            if name in seen:
                raise DataError(
                    f"output {name!r} has the name of an input or a parameter: give outputs as {{name: tensor}}",
                    t.where,
                )
            self.nodes.unique(name)
            if isinstance(t, Compute):
                found.setdefault(t, name)
        for t in tensors:
            if t not in found:
                found[t] = self.nodes.unique(t.name or "t")
        return found

    def name_of(self, t: Tensor) -> str:
        """What the tensor is called in the graph, which has its nodes then."""
        name = self.names[t]
        if t in self._there or isinstance(t, Placeholder):
            return name
        self._there.add(t)
        before, self.nodes.prefix = self.nodes.prefix, name
        if isinstance(t, Constant):
            self.nodes.named(name, "Constant", [], value=numpy_helper.from_array(_dense(t.value), name))
        else:
            assert isinstance(t, Compute)
            made = Body(self.nodes, t, self.name_of).write()
            self.nodes.named(name, "Identity", [made])
            self.nodes.same_as(name, made)
        self.nodes.prefix = before
        return name

    def model(self) -> onnx.ModelProto:
        """All of it, with the present values of the parameters."""
        held = [numpy_helper.from_array(_dense(get_value(p)), self.names[p]) for p in self.parameters]
        nodes = merged(_needed(self.nodes.nodes, self.outputs), set(self.outputs))
        used = {i for n in nodes for i in n.input}
        graph = helper.make_graph(
            nodes,
            "neoflow",
            [_info(t.name, t) for t in self.inputs],
            [_info(name, t) for name, t in self.outputs.items()],
            [*held, *(i for i in self.nodes.initializers if i.name in used)],
        )
        versions = [helper.make_opsetid("", VERSION)]
        return helper.make_model(graph, opset_imports=versions, ir_version=FORMAT, producer_name="neoflow")


def _dense(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(array.shape)


def _info(name: str, t: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, number_of(t.dtype), t.shape)


def _needed(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that an output depends on."""
    wanted, found = set(outputs), []
    for n in reversed(nodes):
        if n.output[0] in wanted:
            wanted.update(n.input)
            found.append(n)
    return found[::-1]


def merged(nodes: Sequence[onnx.NodeProto], outputs: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes without those that only give a name to what one other node, which nothing else reads, has made."""
    uses: dict[str, int] = {}
    for n in nodes:
        for i in n.input:
            uses[i] = uses.get(i, 0) + 1
    made: dict[str, onnx.NodeProto] = {}
    found = []
    for n in nodes:
        before = made.get(n.input[0]) if n.op_type == "Identity" else None
        if before is not None and uses[n.input[0]] == 1 and n.input[0] not in outputs:
            before.output[0] = before.name = n.output[0]
            made[n.output[0]] = before
            continue
        made[n.output[0]] = n
        found.append(n)
    return found

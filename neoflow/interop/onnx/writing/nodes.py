"""Nodes and initializers of an ONNX graph, as they are written one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from neoflow import dtype as dt
from neoflow.expr.ir import Axis, same
from neoflow.interop.onnx.values import number_of

HELD = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32"}
"""Types that values have inside of a tensor's nodes, where these are not their own: few runtimes compute in narrow
ones, and the language does not either."""


def held(dtype: str) -> str:
    return HELD.get(dtype, dtype)


@dataclass(frozen=True)
class Value:
    """A name of the graph with a dimension for each axis, of more than one element, that it depends on. `dtype` is the
    language's; what the graph holds is `held` of it."""

    name: str
    axes: tuple[Axis, ...]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)


class Nodes:
    """A graph that grows. Names that a user gave stay as they are, as long as each is there once."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.tables: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.nonzero: set[str] = set()
        """tables of integers none of which is 0"""
        self.prefix = "t"
        self._taken: dict[str, int] = {}
        self._reshaped: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._transposed: dict[str, tuple[str, tuple[int, ...]]] = {}

    def unique(self, wished: str) -> str:
        """A name that nothing has yet."""
        count = self._taken.get(wished, 0)
        self._taken[wished] = count + 1
        if not count:
            return wished
        found = f"{wished}_{count}"
        return self.unique(found) if found in self._taken else self._mark(found)

    def _mark(self, name: str) -> str:
        self._taken[name] = 1
        return name

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The output of one more node, named after the tensor that it is for."""
        return self.named(self.unique(f"{self.prefix}/{op}"), op, inputs, **attributes)

    def named(self, output: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The same, with a name that is its own already."""
        node = helper.make_node(op, list(inputs), [output], name=output, **attributes)
        self.nodes.append(node)
        return output

    def ints(self, values: Sequence[int]) -> str:
        """An initializer of integers: a shape, axes."""
        return self.table(np.array(values, np.int64))

    def table(self, array: np.ndarray) -> str:
        """Elements that follow from the program: initializers where they are no floats, since floats among these are a
        model's parameters; equal ones once."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self.tables:
            name = self.unique("constant")
            proto = numpy_helper.from_array(array, name)
            if array.dtype.name in dt.FLOATS:
                self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=proto))
            else:
                self.initializers.append(proto)
                if array.all():
                    self.nonzero.add(name)
            self.tables[key] = name
        return self.tables[key]

    # ------------------------------------------------------------------------------------------------- of values

    def cast(self, name: str, before: str, after: str) -> str:
        """Of the types that the graph holds."""
        return name if before == after else self.add("Cast", [name], to=number_of(after))

    def reshape(self, name: str, before: Sequence[int], after: Sequence[int]) -> str:
        """In another shape; of what was reshaped already, that itself."""
        name, before = self._reshaped.get(name, (name, tuple(before)))
        if before == tuple(after):
            return name
        found = self.add("Reshape", [name, self.ints(after)])
        self._reshaped[found] = (name, before)
        return found

    def same_as(self, name: str, other: str) -> None:
        """What another name is a reshaped or transposed form of, this one is as well."""
        for found in (self._reshaped, self._transposed):
            if other in found:
                found[name] = found[other]

    def transpose(self, name: str, perm: Sequence[int]) -> str:
        """With its dimensions in another order; of what was transposed already, that itself."""
        name, first = self._transposed.get(name, (name, tuple(range(len(perm)))))
        whole = tuple(first[p] for p in perm)
        if whole == tuple(range(len(perm))):
            return name
        found = self.add("Transpose", [name], perm=list(whole))
        self._transposed[found] = (name, whole)
        return found

    def sorted(self, value: Value) -> Value:
        """The value with its dimensions in the order of the axes' numbers."""
        axes = joined([value])
        return Value(self.arranged(value, axes), axes, value.dtype)

    def arranged(self, value: Value, axes: Sequence[Axis]) -> str:
        """Its dimensions in the order of `axes`, which are all of its own."""
        return self.transpose(value.name, [position(value.axes, a) for a in axes])

    def aligned(self, values: Sequence[Value]) -> tuple[list[str], tuple[Axis, ...]]:
        """Names that broadcast against each other, and the axes of what comes out."""
        most = max(values, key=lambda v: len(v.axes)).axes
        if all(not v.axes or same(v.axes, most) for v in values):
            return [v.name for v in values], most
        union = joined(values)
        names = []
        for v in map(self.sorted, values):
            if not v.axes:
                names.append(v.name)
                continue
            first = position(union, v.axes[0])
            missing = [position(union, a) - first for a in without(union[first:], v.axes)]
            names.append(self.add("Unsqueeze", [v.name, self.ints(missing)]) if missing else v.name)
        return names, union

    def expanded(self, value: Value, axes: Sequence[Axis]) -> Value:
        """The value with a dimension for each of `axes` too, in the order of their numbers."""
        value = self.sorted(value)
        union = joined([value, Value("", tuple(axes), value.dtype)])
        missing = [position(union, a) for a in without(union, value.axes)]
        if not missing:
            return value
        name = self.add("Unsqueeze", [value.name, self.ints(missing)]) if value.axes else value.name
        return Value(self.add("Expand", [name, self.ints([a.extent for a in union])]), union, value.dtype)

    def whole(self, value: Value, shape: Sequence[int], axes: Sequence[Axis]) -> str:
        """The elements of a tensor of `shape`, a dimension of which that has elements is of each of `axes`."""
        value = self.expanded(value, [a for a in axes if a.extent > 1])
        return self.reshape(value.name, value.shape, shape)


def position(axes: Sequence[Axis], axis: Axis) -> int:
    """Where an axis is among others: `==` of axes is an expression."""
    return next(n for n, a in enumerate(axes) if a is axis)


def among(axes: Sequence[Axis], others: Iterable[Axis]) -> list[Axis]:
    """Those of `axes` that are others too."""
    found = set(others)
    return [a for a in axes if a in found]


def without(axes: Sequence[Axis], others: Iterable[Axis]) -> list[Axis]:
    """Those of `axes` that are none of the others."""
    found = set(others)
    return [a for a in axes if a not in found]


def joined(values: Sequence[Value]) -> tuple[Axis, ...]:
    """The axes of all of them."""
    found = {a for v in values for a in v.axes}
    return tuple(sorted(found, key=lambda a: a.ident))

"""Definitions and tensors, the upper half of the grammar in `ir`; a program is its tensors and what they read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import ExpressionError, Location
from neoflow.expr.ir import (
    Apply,
    Axis,
    Binder,
    Cast,
    Const,
    Expr,
    Node,
    Read,
    Reduce,
    Scatter,
    Select,
    Slot,
    Source,
    intern,
    postorder,
    uids,
)
from neoflow.text import html


class Definition(Node):
    """What a compute computes, apart from names: `body` for every point of `shape`. Closed, see `ir`.

    slots: one per distinct tensor read, in the order of first occurrence.
    """

    __slots__ = ("__dict__", "body", "shape", "slots")
    shape: tuple[int, ...]
    body: Expr
    slots: tuple[Slot, ...]

    def __new__(cls, shape: tuple[int, ...], body: Expr, slots: tuple[Slot, ...]) -> Definition:
        return intern((cls, shape, body, slots), shape=shape, body=body, slots=slots, where=None)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The output's axes."""
        return tuple(Axis(i, n) for i, n in enumerate(self.shape))

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every distinct node of the body, children first."""
        return tuple(postorder(self.body))

    @cached_property
    def reduction_axes(self) -> tuple[Axis, ...]:
        """Every axis bound inside the body, in the order of binding."""
        bound = {a for n in self.nodes if isinstance(n, Binder) for a in n.axes}
        return tuple(sorted(bound, key=lambda a: a.ident))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """Every distinct read."""
        return tuple(n for n in self.nodes if isinstance(n, Read))

    @cached_property
    def has_reduction(self) -> bool:
        """Whether anything is summed, multiplied, compared or scattered over bound axes."""
        return any(isinstance(n, Binder) for n in self.nodes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure, the same in every process: 64 hex digits."""
        return hashlib.sha256(serialize(self).encode()).hexdigest()


def serialize(definition: Definition) -> str:
    """A canonical text of a definition: nodes in post-order, each naming its children by number."""
    number: dict[Expr, int] = {}
    lines = [f"shape {definition.shape}"]
    lines += [f"slot {s.position} {s.shape} {s.dtype}" for s in definition.slots]
    for node in definition.nodes:
        number[node] = len(number)
        match node:
            case Const():
                text = f"const {node.value!r} {node.dtype}"
            case Axis():
                text = f"axis {node.ident} {node.extent}"
            case Read():
                text = f"read {node.slot}"
            case Apply():
                text = node.fn
            case Select():
                text = "select"
            case Cast():
                text = f"cast {node.dtype}"
            case Reduce():
                text = f"reduce {node.op} {[(a.ident, a.extent) for a in node.axes]}"
            case Scatter():
                text = f"scatter {[(a.ident, a.extent) for a in node.axes]}"
        lines.append(f"{text} {[number[c] for c in node.children]}")
    return "\n".join(lines)


class Tensor(Source):
    """A value of the program: `shape` (static, every extent > 0), `dtype`, `name`. Identity is equality."""

    __slots__ = ("__dict__", "name")
    name: str
    truth: bool
    """of a comparison by `==`, which is there for `in` of a list: whether both are the same tensor"""
    choice: tuple[Any, Callable[[str], Tensor]]
    """of a tensor that is weak: the numbers it chooses among, and how it is made of another dtype"""

    def __init__(self, shape: tuple[int, ...], dtype: str, name: str, where: Location | None, **fields: Any):
        named = {"shape": shape, "dtype": dtype, "name": name, "where": where, "uid": next(uids), **fields}
        for key, value in named.items():
            object.__setattr__(self, key, value)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What it is computed from: nothing, of what is given."""
        return ()

    def over(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The same of other inputs, in their order."""
        return self

    @property
    def structure(self) -> str:
        """What it is apart from its name and its inputs, as a text that is the same in every process."""
        return f"{type(self).__name__} {self.shape} {self.dtype}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, densely stored."""
        return self.size * dt.itemsize(self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.dtype}{list(self.shape)}>"

    def _repr_html_(self) -> str:
        """As notebooks show it: its definition."""
        return html.code(str(self))

    def __bool__(self) -> bool:
        if "truth" in self.__dict__:
            return self.truth
        raise ExpressionError(
            f"tensor {self.name} has no value while the program is written; use nf.select(cond, a, b)", caller()
        )


class Placeholder(Tensor):
    """An input, given at every call."""

    __slots__ = ()


class Parameter(Placeholder):
    """A trained input: keeps its value on the device between calls. `init` is an array, or gives one."""

    __slots__ = ("init",)
    init: Any


class Constant(Tensor):
    """A tensor of known elements, `value`, which nothing writes. `digest`: of dtype, shape and elements.

    `is_weak`: a read of it takes the dtype of what it meets.
    """

    __slots__ = ("is_weak", "value")
    value: np.ndarray
    is_weak: bool

    def __init__(self, value: np.ndarray, name: str, where: Location | None = None, is_weak: bool = False):
        value.flags.writeable = False
        super().__init__(value.shape, dt.canonical(value.dtype), name, where, value=value, is_weak=is_weak)

    @property
    def weak(self) -> bool:
        return self.is_weak

    @cached_property
    def digest(self) -> str:
        """SHA-256: 64 hex digits."""
        found = hashlib.sha256(f"{self.dtype} {self.shape} ".encode())
        found.update(self.value.tobytes())
        return found.hexdigest()

    @property
    def structure(self) -> str:
        return f"Constant {self.digest}"


class Compute(Tensor):
    """A tensor given by a definition over other tensors. `axis_names` names the axes for printing, by ident."""

    __slots__ = ("axis_names", "definition", "inputs")
    definition: Definition
    inputs: tuple[Tensor, ...]
    axis_names: tuple[str, ...]

    def __init__(
        self,
        definition: Definition,
        inputs: tuple[Tensor, ...],
        name: str,
        axis_names: tuple[str, ...] = (),
        where: Location | None = None,
    ):
        fields = {"definition": definition, "inputs": inputs, "axis_names": axis_names}
        super().__init__(definition.shape, definition.body.dtype, name, where, **fields)

    @property
    def weak(self) -> bool:
        return "choice" in self.__dict__

    def over(self, inputs: tuple[Tensor, ...]) -> Compute:
        return Compute(self.definition, inputs, self.name, self.axis_names, self.where)

    @property
    def structure(self) -> str:
        return self.definition.digest


def tensor_of(read: Read) -> Tensor:
    """The tensor that an open read reads."""
    assert isinstance(read.source, Tensor)
    return read.source


def topological(roots: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
    """Every tensor the roots need, each after its inputs, in a deterministic order."""
    order: list[Tensor] = []
    state: dict[int, bool] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(roots)]
    while stack:
        tensor, done = stack.pop()
        if done:
            if not state[tensor.uid]:
                state[tensor.uid] = True
                order.append(tensor)
        elif tensor.uid not in state:
            state[tensor.uid] = False
            stack.append((tensor, True))
            stack.extend((t, False) for t in reversed(tensor.inputs) if t.uid not in state)
    return order


def structural_hash(roots: list[Tensor] | tuple[Tensor, ...], leaves: list[Tensor] | tuple[Tensor, ...] = ()) -> str:
    """SHA-256 of a program, whatever its names: equal for equal definitions wired alike. leaves: what is told apart by
    its place among them, whether it is read or not."""
    number: dict[int, int] = {}
    text = []
    for tensor in (*leaves, *topological(roots)):
        if tensor.uid in number:
            continue
        number[tensor.uid] = len(number)
        inputs = f" {[number[t.uid] for t in tensor.inputs]}" if tensor.inputs or isinstance(tensor, Compute) else ""
        text.append(f"{tensor.structure}{inputs}")
    text.append(f"roots {[number[t.uid] for t in roots]}")
    return hashlib.sha256("\n".join(text).encode()).hexdigest()

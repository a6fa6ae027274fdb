"""`Graph`: what one call of a program computes, ordered and canonical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from neoflow.boundary import public
from neoflow.errors import GraphError
from neoflow.expr.printer import print_program
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor, structural_hash, topological
from neoflow.graph.edit import Editor
from neoflow.graph.text import program_labels, read_program, write_program


@dataclass(frozen=True)
class Graph:
    """inputs: passed at a call, in that order. outputs: returned. updates: new values of parameters, written last.

    nodes: every compute needed, each after what it reads. parameters: every parameter read or updated. constants:
    every constant needed.
    """

    inputs: tuple[Placeholder, ...]
    outputs: tuple[Tensor, ...]
    updates: tuple[tuple[Parameter, Tensor], ...]

    @property
    def roots(self) -> tuple[Tensor, ...]:
        return self.outputs + tuple(value for _, value in self.updates)

    @cached_property
    def order(self) -> tuple[Tensor, ...]:
        return tuple(topological(self.roots))

    @cached_property
    def nodes(self) -> tuple[Compute, ...]:
        return tuple(t for t in self.order if isinstance(t, Compute))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        read = [t for t in self.order if isinstance(t, Parameter)]
        return tuple(dict.fromkeys([*read, *(p for p, _ in self.updates)]))

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(t for t in self.order if isinstance(t, Constant))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure, whatever the names."""
        return structural_hash(self.roots)

    def check(self) -> None:
        """Raise `GraphError` when a read input is not given, or an update does not fit its parameter."""
        given = set(self.inputs)
        for t in self.order:
            if isinstance(t, Placeholder) and not isinstance(t, Parameter) and t not in given:
                raise GraphError(f"the program reads placeholder {t.name}, which is not among the inputs", t.where)
        for p, value in self.updates:
            if (p.shape, p.dtype) != (value.shape, value.dtype):
                raise GraphError(
                    f"parameter {p.name} is {p.dtype}{p.shape} but its update is {value.dtype}{value.shape}", p.where
                )

    @cached_property
    def leaves(self) -> dict[str, Placeholder]:
        """Every input and parameter by its label in the text."""
        found = program_labels(self.inputs, self.outputs, self.updates)
        return {label: t for t, label in found.items() if isinstance(t, Placeholder)}

    def to_text(self) -> str:
        """The graph as `from_text` reads it back: structure, names and places. What a parameter begins with (`init`) is
        an array or a function and is no part of it."""
        return write_program(self.inputs, self.outputs, self.updates)

    @classmethod
    @public
    def from_text(cls, text: str, leaves: Mapping[str, Placeholder] | None = None) -> Graph:
        """The graph that `to_text` wrote, checked, over new placeholders and parameters (these begin with zeros).

        leaves: tensors to take in place of new ones, by label, of the same kind, shape and dtype: with the `leaves` of
        the graph that was written, the one that is read is the `same_graph`. Raises `TextError`.
        """
        return read_program(text, leaves or {}, lambda *parts: _checked(cls(*parts)))

    def with_roots(self, roots: Sequence[Tensor]) -> Graph:
        """The graph that returns and writes other tensors in place of its own."""
        count = len(self.outputs)
        updates = tuple((p, v) for (p, _), v in zip(self.updates, roots[count:], strict=True))
        return Graph(self.inputs, tuple(roots[:count]), updates)

    def replace(self, edit: Mapping[Tensor, Tensor]) -> Graph:
        """The graph in which what reads a key reads its value instead, all at once. Raises `GraphError`."""
        editor = Editor(self.roots, self.order)
        editor.replace(edit)
        return self.with_roots(editor.finish())

    def __str__(self) -> str:
        return print_program(self.order)


def _checked(graph: Graph) -> Graph:
    graph.check()
    return graph


def same_graph(a: Graph, b: Graph) -> bool:
    """Whether two graphs compute the same, under the same names, from the same placeholders and parameters."""
    same_leaves = a.leaves.keys() == b.leaves.keys() and all(t is b.leaves[label] for label, t in a.leaves.items())
    return same_leaves and a.to_text() == b.to_text()


def make_graph(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], updates: Mapping[Tensor, Tensor] | None = None
) -> Graph:
    """The graph of a call, as the user wrote it. Raises `GraphError`."""
    for t in inputs:
        if not isinstance(t, Placeholder) or isinstance(t, Parameter):
            raise GraphError(f"{t.name} is among the inputs but is no placeholder", t.where)
    seen: set[Tensor] = set()
    for t in inputs:
        if t in seen:
            raise GraphError(f"{t.name} is among the inputs twice; a call has one array for each", t.where)
        seen.add(t)
    for p in updates or {}:
        if not isinstance(p, Parameter):
            raise GraphError(f"{p.name} is updated but is no parameter (nf.parameter)", p.where)
    pairs = tuple((cast(Parameter, p), v) for p, v in (updates or {}).items())
    graph = Graph(cast("tuple[Placeholder, ...]", tuple(inputs)), tuple(outputs), pairs)
    graph.check()
    return graph

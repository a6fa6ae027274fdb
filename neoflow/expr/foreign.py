"""Calls of implementations that are not ours, by name: of another library, for tensors of which we know what they are.

    foreign f    ::= Foreign(implementation, attributes, placeholders, results, forward)
    called       ::= Called(f, inputs)              inputs: one for each of its placeholders
    tensor     t ::= ... | Given(called, n)         result n of the call

Its meaning are its results, expressions over its placeholders: `evaluate` computes these, and `inlined` puts them in
the place of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.expr.ir import Node, intern
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Placeholder, Tensor, structural_hash, topological

GRADIENT = " gradient"
"""What the name of a call ends with that pulls cotangents back through another one."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """What is called. It is itself alone: two of equal meaning are two, since a gradient belongs to one of them.

    implementation: its name. attributes: what it is told besides tensors. placeholders: what stands for its inputs;
    results: what it gives, over these. forward: of a gradient, what that is of.
    """

    implementation: str
    attributes: tuple[tuple[str, str], ...]
    placeholders: tuple[Placeholder, ...]
    results: tuple[Tensor, ...]
    forward: Foreign | None = None


class Called(Node):
    """A foreign implementation on inputs. Equal ones are the same object."""

    __slots__ = ("__dict__", "foreign", "inputs")
    foreign: Foreign
    inputs: tuple[Tensor, ...]

    def __new__(cls, foreign: Foreign, inputs: Sequence[Tensor]) -> Called:
        given = tuple(inputs)
        for p, t in zip(foreign.placeholders, given, strict=True):
            assert (t.shape, t.dtype) == (p.shape, p.dtype), f"{t} for {p}"
        return intern((cls, foreign, given), foreign=foreign, inputs=given, where=None)

    @cached_property
    def results(self) -> tuple[Given, ...]:
        """What it gives, in order."""
        return tuple(Given(self, n) for n in range(len(self.foreign.results)))


class Given(Tensor):
    """A result of a foreign call, see `Called.results`."""

    __slots__ = ("called", "number")
    called: Called
    number: int

    def __init__(self, called: Called, number: int):
        t = called.foreign.results[number]
        super().__init__(t.shape, t.dtype, t.name, t.where, called=called, number=number)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.called.inputs

    @property
    def structure(self) -> str:
        f = self.called.foreign
        meaning = structural_hash([f.results[self.number]], f.placeholders)
        return f"Given {f.implementation} {f.attributes} {self.number} {meaning}"

    def over(self, inputs: tuple[Tensor, ...]) -> Tensor:
        return Called(self.called.foreign, inputs).results[self.number]


def calls_of(order: Sequence[Tensor]) -> tuple[Called, ...]:
    """The distinct foreign calls among tensors, in their order."""
    return tuple(dict.fromkeys(t.called for t in order if isinstance(t, Given)))


def inlined(roots: Sequence[Tensor]) -> list[Tensor]:
    """The roots with the meaning of foreign calls in their place."""
    if not calls_of(topological(list(roots))):
        return list(roots)
    known: dict[Called, list[Tensor]] = {}

    def meaning(t: Tensor) -> Tensor | None:
        if not isinstance(t, Given):
            return None
        if t.called not in known:
            f = t.called.foreign
            bound: dict[Tensor, Tensor] = dict(zip(f.placeholders, t.called.inputs, strict=True))
            known[t.called] = replaced(f.results, bound.get)
        return known[t.called][t.number]

    return replaced(roots, meaning)

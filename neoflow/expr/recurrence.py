"""Loops in the language: a body that is a closed program, run once a step, and what is kept of its values.

    recurrence r ::= Recurrence(carried, slices, fixed, then, steps, is_reversed)
    run          ::= Run(recurrence, inputs)              inputs: first values, what slices are of, what stays
    tensor     t ::= ... | Last(run, n)                   what is carried as number n, after the last step
                         | Stacked(run, of)               t[s, ...] = the body's tensor `of` in step s

Steps are numbered from 0; a reversed recurrence runs the last one first, and `Stacked` keeps each in its place. A
tensor of the body is no part of the program around it: only these two kinds of tensors lead out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.errors import Location
from neoflow.expr.ir import Node, intern
from neoflow.expr.tensor import Placeholder, Tensor, structural_hash, topological

LARGE, MANY = 1 << 25, 4
"""Bytes of all steps, and times the bytes that it is computed of, from which a tensor of a body is not to be had of all
steps at once: it is what was written step by step so that it need not be, as the scores of attention."""
ONCE = "computed once"
"""What is remembered about a tensor that no step may compute: a layer that drops elements or keeps statistics."""


@dataclass(frozen=True, eq=False)
class Recurrence:
    """What happens in a step. It is itself alone: two of equal bodies are two.

    carried: what a step gives to the next; `then`: what these are then, of the same shapes and dtypes. slices: of each
    of some tensors with one more axis, the first, the element of the step. fixed: the same in every step. The body
    reads these placeholders and constants, nothing else. where: what it was written for.
    """

    carried: tuple[Placeholder, ...]
    slices: tuple[Placeholder, ...]
    fixed: tuple[Placeholder, ...]
    then: tuple[Tensor, ...]
    steps: int
    is_reversed: bool = False
    where: Location | None = None

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """What the body reads, in the order of the inputs of a run."""
        return (*self.carried, *self.slices, *self.fixed)

    @property
    def order(self) -> range:
        """The steps as they run."""
        return range(self.steps - 1, -1, -1) if self.is_reversed else range(self.steps)

    def digest_of(self, of: Tensor) -> str:
        """SHA-256 of the body with one of its tensors, whatever the names."""
        way = f"{self.steps} {self.is_reversed} {len(self.carried)} {len(self.slices)}"
        return f"{way} {structural_hash([*self.then, of], self.placeholders)}"

    def is_huge(self, t: Tensor) -> bool:
        """Whether a tensor of the body would take too much memory of all steps, see `LARGE`."""
        if self.steps * t.nbytes <= LARGE or not t.inputs:
            return False
        moving = {*self.carried, *self.slices}
        leaves = (i for i in topological([t]) if not i.inputs)
        return self.steps * t.nbytes > MANY * sum(i.nbytes * (self.steps if i in moving else 1) for i in leaves)

    def shape_of(self, p: Placeholder) -> tuple[int, ...]:
        """Of the input of a run that is behind a placeholder."""
        return (self.steps, *p.shape) if any(p is s for s in self.slices) else p.shape


class Run(Node):
    """A recurrence on inputs: one for each of its placeholders. Equal ones are the same object."""

    __slots__ = ("__dict__", "inputs", "recurrence")
    recurrence: Recurrence
    inputs: tuple[Tensor, ...]

    def __new__(cls, recurrence: Recurrence, inputs: Sequence[Tensor]) -> Run:
        given = tuple(inputs)
        for p, t in zip(recurrence.placeholders, given, strict=True):
            assert (t.shape, t.dtype) == (recurrence.shape_of(p), p.dtype), f"{t} for {p}"
        return intern((cls, recurrence, given), recurrence=recurrence, inputs=given, where=None)

    @cached_property
    def by_placeholder(self) -> dict[Tensor, Tensor]:
        """What the placeholders of the body stand for."""
        return dict(zip(self.recurrence.placeholders, self.inputs, strict=True))

    @cached_property
    def _stacked(self) -> dict[Tensor, Stacked]:
        return {}

    @cached_property
    def _last(self) -> dict[int, Last]:
        return {}

    def last(self, n: int, name: str | None = None) -> Last:
        """What is carried as number n, after the last step."""
        if n not in self._last:
            self._last[n] = Last(self, n, name or self.recurrence.then[n].name)
        return self._last[n]

    def stacked(self, of: Tensor, name: str | None = None) -> Tensor:
        """A tensor of the body in every step: with one more axis, the first. Of a slice it is what that is of."""
        if any(of is s for s in self.recurrence.slices):
            return self.by_placeholder[of]
        if of not in self._stacked:
            self._stacked[of] = Stacked(self, of, name or of.name)
        return self._stacked[of]


class Looped(Tensor):
    """What leads out of a run."""

    __slots__ = ("of", "run")
    run: Run
    of: Tensor
    """the tensor of the body, or the placeholder of what is carried"""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.run.inputs

    @property
    def structure(self) -> str:
        return f"{type(self).__name__} {self.run.recurrence.digest_of(self.of)}"


class Last(Looped):
    """See `Run.last`."""

    __slots__ = ("number",)
    number: int

    def __init__(self, run: Run, number: int, name: str):
        of = run.recurrence.carried[number]
        super().__init__(of.shape, of.dtype, name, run.recurrence.where, run=run, of=of, number=number)

    def over(self, inputs: tuple[Tensor, ...]) -> Tensor:
        return Run(self.run.recurrence, inputs).last(self.number, self.name)


class Stacked(Looped):
    """See `Run.stacked`."""

    __slots__ = ()

    def __init__(self, run: Run, of: Tensor, name: str):
        shape = (run.recurrence.steps, *of.shape)
        super().__init__(shape, of.dtype, name, run.recurrence.where, run=run, of=of)

    def over(self, inputs: tuple[Tensor, ...]) -> Tensor:
        return Run(self.run.recurrence, inputs).stacked(self.of, self.name)


def runs_of(order: Sequence[Tensor]) -> tuple[Run, ...]:
    """The distinct runs among tensors, in their order."""
    return tuple(dict.fromkeys(t.run for t in order if isinstance(t, Looped)))

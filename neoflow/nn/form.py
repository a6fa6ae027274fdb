"""The two forms of a network. A tensor that is one thing in training and another in inference knows both.

    y = dropout(x)        in training x with elements left out, in inference x
    y = batch_norm(x)     in training by the statistics of the batch, in inference by the running ones

`training_form` marks such a tensor where it is made. From one loss, written in training form, `inference` gives the
other form, and `state` what a training step changes besides the parameters: running statistics, counters of steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

from neoflow.caller import caller
from neoflow.expr.memo import memo_of
from neoflow.expr.recurrence import ONCE
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Parameter, Tensor, topological
from neoflow.nn.tools import describe, expect

__all__ = ["advanced", "inference", "is_training", "make_unique", "state", "training_form", "unkept", "warn_of_unkept"]


@dataclass(frozen=True)
class Form:
    """What stands for a tensor in inference, made when it is first asked for; and new values of what it keeps."""

    make: Callable[[], Tensor]
    state: Mapping[Any, Tensor] = field(default_factory=dict)

    @cached_property
    def inference(self) -> Tensor:
        return self.make()


def training_form(y: Tensor, inference: Callable[[], Tensor], state: Mapping[Any, Tensor] | None = None) -> Tensor:
    """y itself, marked as a form for training.

    inference: gives the tensor that stands for y in inference, of its shape and dtype; it may read what y reads. state:
    parameters that a training step sets besides those that are trained, with their new values.
    """
    memo_of(y)[ONCE] = True
    memo_of(y)[Form] = Form(inference, dict(state or {}))
    return y


def _form(t: Tensor) -> Form | None:
    return memo_of(t).get(Form) if isinstance(t, Compute) else None


def is_training(tensors: Tensor | Sequence[Tensor]) -> bool:
    """Whether anything they need is in training form."""
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return any(_form(t) is not None for t in topological(roots))


@overload
def inference(tensors: Tensor) -> Tensor: ...
@overload
def inference(tensors: Sequence[Tensor]) -> list[Tensor]: ...
def inference(tensors: Tensor | Sequence[Tensor]) -> Tensor | list[Tensor]:
    """The same tensors in inference form: nothing dropped, normalised by running statistics; one for one, or a list."""

    def instead(t: Tensor) -> Tensor | None:
        form = _form(t)
        if form is None:
            return None
        other = form.inference
        expect(
            (other.shape, other.dtype) == (t.shape, t.dtype),
            f"{describe(t)} of {t.dtype} cannot be {describe(other)} of {other.dtype} in inference",
        )
        return other

    if isinstance(tensors, Tensor):
        return replaced([tensors], instead)[0]
    return replaced(list(tensors), instead)


def advanced(before: Mapping[Any, Tensor], more: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
    """State after two calls: a new value of the second call reads the one of the first in place of the parameter."""
    after = dict(before)
    for p, value in more.items():
        first = after.get(p)
        if first is not None and first is not value and isinstance(value, Compute):
            inputs = tuple(first if t is p else t for t in value.inputs)
            value = Compute(value.definition, inputs, value.name, value.axis_names, value.where)
        after[p] = value
    return after


def state(tensors: Tensor | Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """What a training step changes besides the parameters, with its new values, for `nf.compile(updates=...)`.

    Found from what the tensors need. Two that have one name are named apart (`make_unique`): what is random begins
    with a value that follows from its name.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    forms = sorted((t for t in topological(roots) if _form(t) is not None), key=lambda t: t.uid)
    found: dict[Any, Tensor] = {}
    for t in forms:
        form = _form(t)
        assert form is not None
        found = advanced(found, form.state)
    make_unique(found)
    return found


def unkept(tensors: Sequence[Tensor], updated: Iterable[Tensor]) -> list[Parameter]:
    """State of what the tensors need that is not among what is updated."""
    kept = set(updated)
    forms = [form for t in topological(list(tensors)) if (form := _form(t)) is not None]
    return list(dict.fromkeys(p for form in forms for p in form.state if p not in kept))


def warn_of_unkept(roots: Sequence[Tensor], updates: Mapping[Tensor, Tensor]) -> None:
    """Of a training step in which running statistics stay what they are, or the same elements are dropped for ever."""
    if lost := unkept(roots, updates):
        names = ", ".join(p.name for p in lost)
        text = f"the step leaves the state of its layers as it is ({names}): add **nf.nn.state(loss) to its updates"
        file, line = caller() or (__file__, 0)
        warnings.warn_explicit(text, UserWarning, file, line)


def make_unique(parameters: Iterable[Tensor]) -> None:
    """Name parameters apart: of several that are called `linear.weight` the second becomes `linear2.weight`.

    A checkpoint knows a parameter by its name, and its first random values follow from it.
    """
    taken: set[str] = set()
    for p in dict.fromkeys(parameters):
        name, number = p.name, 2
        head, dot, rest = p.name.partition(".")
        while name in taken:
            name = f"{head}{number}{dot}{rest}"
            number += 1
        taken.add(name)
        if name != p.name:
            rename(p, name)


def rename(p: Tensor, name: str) -> None:
    """Give a tensor another name; its identity, and all else, stays."""
    object.__setattr__(p, "name", name)

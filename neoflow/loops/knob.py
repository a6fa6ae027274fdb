"""`Knob`: the declaration of one decision of a template. Space, JSON, features and legality all read it.

    name, kind, meaning      what is decided
    range                    its legal values, given the problem, the target and the knobs declared before it
    default                  the choice without a search, given the same

Since a range knows the knobs before it, knobs set in order are legal together: a schedule is legal when each value is
in its range, and a random one is drawn knob after knob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from neoflow.loops.schedule import KnobValue
from neoflow.target import Target

P = TypeVar("P")


class Chosen(Protocol):
    """Values of knobs by name: those chosen so far, or a whole schedule."""

    def __getitem__(self, name: str) -> KnobValue: ...


@dataclass(frozen=True)
class Range:
    """The values a knob may have, and the sentence that says why it may have no others."""

    values: Sequence[KnobValue]
    reason: str

    def __contains__(self, value: KnobValue) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Kind:
    """A kind of values: their Python type, and how a search steps from one to the next.

    index: a position in a list, no order. mask: a bit for each of several decisions. number: an amount, steps are
    halves and doubles. word: one of a few names. flag: yes or no.
    """

    name: str
    type: type


INDEX, MASK, NUMBER = Kind("index", int), Kind("mask", int), Kind("number", int)
WORD, FLAG = Kind("word", str), Kind("flag", bool)


@dataclass(frozen=True)
class Knob(Generic[P]):
    """One decision of a template for problems of type P. words: all the names that a word may be."""

    name: str
    kind: Kind
    meaning: str
    range: Callable[[P, Target, Chosen], Range]
    default: Callable[[P, Target, Chosen], KnobValue]
    words: tuple[str, ...] = ()


def completed(
    knobs: Sequence[Knob[P]], problem: P, target: Target, given: Mapping[str, KnobValue]
) -> dict[str, KnobValue]:
    """All of the knobs: those given, the others by their defaults."""
    found: dict[str, KnobValue] = {}
    for k in knobs:
        found[k.name] = given[k.name] if k.name in given else k.default(problem, target, found)
    return found


def flags(allowed: bool, reason: str) -> Range:
    """No, and yes where that is allowed."""
    return Range((False, True) if allowed else (False,), reason)


def up_to(most: int, reason: str) -> Range:
    """1, 2, ..., most."""
    return Range(range(1, max(1, most) + 1), reason)


def one(value: KnobValue, reason: str) -> Range:
    """Nothing to choose."""
    return Range((value,), reason)

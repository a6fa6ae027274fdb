"""Frozen dataclasses as text: what annotations say is what is read, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from neoflow.errors import ConfigError, TextError
from neoflow.loops import Schedule
from neoflow.target import Target
from neoflow.text import read_record, write_record


@dataclass(frozen=True)
class Part:
    size: int
    label: str = ""
    parts: tuple[Part, ...] = ()

    def __post_init__(self):
        if self.size == 13:
            raise ConfigError("13 is no size")


@dataclass(frozen=True)
class Whole:
    part: Part
    scale: float = 1.0
    kind: Literal["near", "far", 3] = "near"
    pair: tuple[int, str] = (0, "")
    many: tuple[tuple[int, int], ...] = ()
    maybe: Part | None = None
    knob: int | str | bool | float = 0
    made: tuple[int, ...] = field(default_factory=tuple)
    derived: int = field(default=0, init=False)


VALUES = [
    Whole(Part(0)),
    Whole(Part(-3, 'a "b"\n\\ é \u2028 \ud800', (Part(1), Part(2, "x", (Part(5),))))),
    Whole(Part(1), float("inf"), "far", (1, "one"), ((1, 2), (3, 4)), Part(7), True, (1,)),
    Whole(Part(1), -1e-300, 3, (1, "one"), ((1, 2),), None, "word", (1, 2, 3)),
    Whole(Part(1), -0.0, knob=-2),
    Whole(Part(1), 0.1, knob=-2.5, made=tuple(range(100))),
    Whole(Part(10**30), knob=False),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_round_trip(value):
    text = write_record(value, "whole")
    assert read_record(Whole, text, "whole") == value
    assert write_record(read_record(Whole, text, "whole"), "whole") == text
    assert repr(read_record(Whole, text, "whole")) == repr(value)


def test_goldens():
    assert write_record(VALUES[2], "whole") == (
        "neoflow whole 1\n"
        "part = Part(size=1)\n"
        "scale = inf\n"
        'kind = "far"\n'
        'pair = (1, "one")\n'
        "many = (\n"
        "    (1, 2),\n"
        "    (3, 4),\n"
        ")\n"
        "maybe = Part(size=7)\n"
        "knob = True\n"
        "made = (1,)\n"
    )
    schedule = Schedule("map", (("lanes", 8), ("parallel", False), ("lane", "i")))
    assert schedule.to_text() == (
        'neoflow schedule 1\ntemplate = "map"\nknobs = (\n    ("lanes", 8),\n    ("parallel", False),\n'
        '    ("lane", "i"),\n)\n'
    )
    assert Schedule.from_text(schedule.to_text()) == schedule
    assert Target().to_text() == "neoflow target 1\n"


def test_what_an_annotation_does_not_say_is_not_written():
    for value, message in {
        Whole(Part(1.5)): "Part.size holds 1.5, which is not <class 'int'>",
        Whole(Part(True)): "Part.size holds True",
        Whole(Part(1), pair=(1, "a", 2)): "Whole.pair holds",
        Whole(Part(1), kind="between"): "Whole.kind holds 'between'",
        Whole(Part(1), made=(1, None)): "made holds None",
    }.items():
        with pytest.raises(TypeError) as e:
            write_record(value, "whole")
        assert message in str(e.value)


REFUSED = {
    "": "Whole lacks `part`",
    "part = Part()": "Part lacks `size`",
    "part = Part(size=1) part = Part(size=1)": "Whole.part stands twice",
    "part = Part(size=1)\ncolour = 1": "expected a field of Whole (part, scale, kind, pair, many, maybe, knob, made)",
    "part = Part(size=1, size=2)": "Part.size stands twice",
    "part = Part(size=1": "expected `)`, found the end of the text",
    "part = Whole(part=1)": "expected Part for Whole.part, found `Whole`",
    "part = Part(size=1.5)": "expected int for Part.size, found `1.5`",
    "part = Part(size=True)": "expected int for Part.size, found `True`",
    "part = Part(size=13)": "no Part: 13 is no size",
    "part = Part(size=-)": "expected int for Part.size, found `-`",
    f"part = Part(size={'1' * 50})": "an integer for Part.size is at most 1",
    "part = Part(size=1) scale = 1": "expected float for Whole.scale, found `1`",
    "part = Part(size=1) scale = 1e999": "a number with a point for Whole.scale is at most 1.79",
    'part = Part(size=1) kind = "between"': "Whole.kind is one of 'near', 'far', 3",
    "part = Part(size=1) kind = 0.5": "for Whole.kind, found `0.5`",
    "part = Part(size=1) pair = (1,)": "Whole.pair has 2 items, not 1",
    'part = Part(size=1) pair = (1, "a", 2)': "expected `)`, found `2`",
    "part = Part(size=1) pair = 1": "for Whole.pair, found `1`",
    "part = Part(size=1) many = (1, 2)": "for Whole.many, found `1`",
    "part = Part(size=1) maybe = False": "expected Part or NoneType for Whole.maybe, found `False`",
    "part = Part(size=1) derived = 1": "expected a field of Whole",
    "part = Part(size=1) knob = (1)": "expected int or str or bool or float for Whole.knob, found `(`",
}


@pytest.mark.parametrize("body", REFUSED)
def test_refused(body):
    with pytest.raises(TextError) as e:
        read_record(Whole, f"neoflow whole 1\n{body}", "whole")
    assert REFUSED[body] in str(e.value)


def nested(levels: int) -> Schedule:
    schedule = Schedule("rows")
    for _ in range(levels):
        schedule = Schedule("rows", inner=(schedule,))
    return schedule


def test_depth():
    assert Schedule.from_text(nested(49).to_text()) == nested(49)
    with pytest.raises(TextError, match="more than 100 brackets stand inside one another"):
        Schedule.from_text(nested(60).to_text())
    text = 'neoflow schedule 1\ntemplate = "rows"\ninner = (' + 'Schedule(template="rows", inner=(' * 100_000
    with pytest.raises(TextError, match="more than 100 brackets stand inside one another"):
        Schedule.from_text(text)

"""A schedule: how one subgraph becomes loops, as pure data."""

from __future__ import annotations

import json
from dataclasses import dataclass

from neoflow.text import read_record, write_record

Knob = int | str | bool


@dataclass(frozen=True)
class Schedule:
    """The template that lowers a subgraph (`contraction`, `reduction`, `map`, ...) and the values of its knobs."""

    template: str
    knobs: tuple[tuple[str, Knob], ...] = ()

    def __getitem__(self, name: str) -> Knob:
        for key, value in self.knobs:
            if key == name:
                return value
        raise KeyError(name)

    def to_json(self) -> str:
        """Canonical JSON: equal schedules give equal text."""
        return json.dumps({"template": self.template, "knobs": dict(self.knobs)}, sort_keys=True)

    def to_text(self) -> str:
        """The schedule as `from_text` reads it back."""
        return write_record(self, "schedule")

    @classmethod
    def from_text(cls, text: str) -> Schedule:
        """The schedule that `to_text` wrote. Raises `TextError`."""
        return read_record(cls, text, "schedule")

    def __str__(self) -> str:
        return f"{self.template}({', '.join(f'{k}={v}' for k, v in self.knobs)})"

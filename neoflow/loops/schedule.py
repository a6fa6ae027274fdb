"""A schedule: how one subgraph becomes loops, as pure data."""

from __future__ import annotations

import json
from dataclasses import dataclass

from neoflow.boundary import public
from neoflow.text import read_record, write_record

KnobValue = int | str | bool


@dataclass(frozen=True)
class Schedule:
    """The template that lowers a subgraph (`contraction`, `reduction`, `map`, ...) and the values of its knobs.

    inner: the schedules of what a row kernel stores, in order; a schedule of any other template has none.
    """

    template: str
    knobs: tuple[tuple[str, KnobValue], ...] = ()
    inner: tuple[Schedule, ...] = ()

    def __getitem__(self, name: str) -> KnobValue:
        for key, value in self.knobs:
            if key == name:
                return value
        raise KeyError(name)

    def to_json(self) -> str:
        """Canonical JSON: equal schedules give equal text."""
        return json.dumps(self._data(), sort_keys=True)

    def _data(self) -> dict:
        data = {"template": self.template, "knobs": dict(self.knobs)}
        return {**data, "inner": [s._data() for s in self.inner]} if self.inner else data

    def to_text(self) -> str:
        """The schedule as `from_text` reads it back."""
        return write_record(self, "schedule")

    @classmethod
    @public
    def from_text(cls, text: str) -> Schedule:
        """The schedule that `to_text` wrote. Raises `TextError`."""
        return read_record(cls, text, "schedule")

    def __str__(self) -> str:
        inside = [*(f"{k}={v}" for k, v in self.knobs), *map(str, self.inner)]
        return f"{self.template}({', '.join(inside)})"


def schedule_of(template: str, knobs: dict[str, KnobValue], inner: tuple[Schedule, ...] = ()) -> Schedule:
    """A schedule with its knobs in the order of their names, so that equal ones are equal."""
    return Schedule(template, tuple(sorted(knobs.items())), inner)

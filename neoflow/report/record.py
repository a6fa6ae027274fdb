"""What a report keeps of a run as data, inside its page, so that two runs can be laid side by side later."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import neoflow
from neoflow.boundary import public
from neoflow.errors import ConfigError, TextError
from neoflow.machine import processor
from neoflow.report.roofline import KernelRow
from neoflow.text import read_record, write_record
from neoflow.train.session import Session

Points = tuple[tuple[int, float], ...]
"""(step, value), steps counted from 1."""


@dataclass(frozen=True)
class Fact:
    """A number of the summary line, with what it is."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a run comes from. command: as it was typed. date: ISO 8601, of its end."""

    command: str
    seed: int
    processor: str
    threads: int
    date: str
    neoflow: str


@dataclass(frozen=True)
class Curve:
    """A value over the run. training: of each step. validation: means at the end of each epoch."""

    name: str
    training: Points
    validation: Points = ()


@dataclass(frozen=True)
class EpochRow:
    """Means over one epoch by name, and its seconds."""

    epoch: int
    seconds: float
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class KernelFigure:
    """One distinct kernel of a step, all its calls together; see `KernelRow`."""

    label: str
    place: str
    calls: int
    seconds: float
    flops: int
    nbytes: int


@dataclass(frozen=True)
class RunRecord:
    """facts: the summary. curves: the loss first. rates: learning rates. epoch: steps in one."""

    model: str
    data: str
    origin: Origin
    facts: tuple[Fact, ...]
    curves: tuple[Curve, ...]
    rates: Points
    epochs: tuple[EpochRow, ...]
    kernels: tuple[KernelFigure, ...]
    epoch: int


def record_of(session: Session, facts: tuple[Fact, ...], kernels: Sequence[KernelRow], threads: int) -> RunRecord:
    """The record of a session that has ended."""
    steps, epochs = session.records, session.history.epochs
    names = dict.fromkeys(name for r in steps for name in r.values)
    ends = _ends(session)
    curves = tuple(
        Curve(
            name,
            tuple((r.step + 1, float(r.values[name])) for r in steps if name in r.values),
            tuple(
                (end, float(e.validation[name])) for end, e in zip(ends, epochs, strict=True) if name in e.validation
            ),
        )
        for name in dict.fromkeys(["loss", *names, *(n for e in epochs for n in e.validation)])
    )
    origin = Origin(
        shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        session.trainer.seed,
        processor(),
        threads,
        datetime.now().astimezone().isoformat(timespec="seconds"),
        neoflow.__version__,
    )
    rows = tuple(
        EpochRow(e.epoch, e.seconds, tuple((n, float(v)) for n, v in (*e.training.items(), *_validation(e.validation))))
        for e in epochs
    )
    figures = tuple(KernelFigure(k.label, k.place, len(k.names), k.seconds, k.flops, k.nbytes) for k in kernels)
    rates = tuple((r.step + 1, float(r.lr)) for r in steps if r.lr is not None)
    return RunRecord(session.model, session.data, origin, facts, curves, rates, rows, figures, session.epoch)


def _validation(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(f"validation {name}", v) for name, v in values.items()]


def _ends(session: Session) -> list[int]:
    """The number of the last step of each epoch in the history."""
    last = {r.epoch + 1: r.step + 1 for r in session.records}
    return [last.get(e.epoch, e.epoch * session.epoch) for e in session.history.epochs]


# ------------------------------------------------------------------------------------------ inside the page

_PLACE = re.compile(r'<script type="text/neoflow" id="run">\n(.*?)</script>', re.DOTALL)


def embedded(run: RunRecord) -> str:
    """The record as a part of a page, which shows nothing of it."""
    text = write_record(run, "run").replace("<", "\\u003c")  # inside strings only, where it is the same character
    return f'<script type="text/neoflow" id="run">\n{text}</script>'


@public
def read_run(path: Path) -> RunRecord:
    """The record in a report. Raises `ConfigError` when the file is none, or has none."""
    try:
        found = _PLACE.search(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if found is None:
        raise ConfigError(f"{path} is no report of neoflow that keeps its run: write it again with `neoflow train`")
    try:
        return read_record(RunRecord, found.group(1), "run")
    except TextError as error:
        raise ConfigError(f"the run kept in {path} is damaged: {error}") from None

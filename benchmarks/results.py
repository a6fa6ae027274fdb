"""RESULTS.md, where every benchmark keeps a section of its own."""

from __future__ import annotations

import datetime
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from neoflow import devices
from neoflow.config import load as settings
from neoflow.machine import processor

T = TypeVar("T")
PATH = Path(__file__).parent / "RESULTS.md"


def write(section: str, title: str, how: str, lines: Sequence[str]) -> None:
    """Replace a section, or add it at the end: its title, today's date and `how` it was measured, then the lines."""
    start, end = f"<!-- {section} -->\n", f"<!-- /{section} -->\n"
    before, _, rest = (PATH.read_text() if PATH.exists() else "# Results\n").partition(start)
    _, _, after = rest.partition(end)
    head = before.rstrip("\n") + "\n\n"
    text = f"## {title}\n\n{datetime.date.today().isoformat()}, {how}.\n\n" + "\n".join(lines) + "\n"
    PATH.write_text(head + start + text + end + (f"\n{after.lstrip()}" if after.strip() else ""))


def called(name: str) -> str:
    """How a benchmark was measured, in words: the machine, its threads, the command as it was given."""
    command = " ".join([f"python -m benchmarks.{name}", *sys.argv[1:]])
    return f"{processor()}, {settings().threads} threads; `{command}`"


def gpu_here() -> str:
    """The name of this machine's GPU and its driver. Raises `RuntimeFault` when there is none."""
    here = devices.gpu().driver.gpu
    return f"{here.name} ({here.architecture}), CUDA {here.driver // 1000}.{here.driver % 1000 // 10}"


def append(path: Path, row: Any) -> None:
    """Add a row, a dataclass, to a file, on a line of its own even after one that was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a") as file:
        file.write(("\n" if cut else "") + json.dumps(asdict(row)) + "\n")


def last_of_each(path: Path, parse: Callable[[str], T], name: Callable[[T], str]) -> dict[str, T]:
    """The lines of a file by name, the last one of each; one that a stopped run has left incomplete is passed over.

    parse: raises `ValueError`, `TypeError` or `KeyError` for what is no such line.
    """
    found: dict[str, T] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            one = parse(line)
        except (ValueError, TypeError, KeyError):
            continue
        found[name(one)] = one
    return found


def while_apart(shares: Iterable[float]) -> str:
    """In words, what part of the blocks was timed while cores were apart, which wait for cores that are near; of each
    measurement its share."""
    found = list(shares)
    return f", of the blocks {statistics.fmean(found):.0%} timed while its cores were apart" if found else ""

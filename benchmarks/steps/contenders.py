"""Who runs: neoflow, maybe as it was before, and four peers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from neoflow.contest.contenders import OURS, PEERS, Contender

ROOT = Path(__file__).resolve().parents[2]
BEFORE = replace(OURS, name="before")
"""neoflow of another checkout."""


def contenders(before: Path | None) -> list[Contender]:
    """All, neoflow of another checkout beside this one's where it is given."""
    return [OURS, *([] if before is None else [BEFORE]), *PEERS]


def root_of(contender: Contender, before: Path | None) -> Path:
    """The checkout that a contender's code comes from."""
    return before.resolve() if contender == BEFORE and before is not None else ROOT

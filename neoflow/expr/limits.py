"""How large what is written may be, and what it may be called. What is beyond has a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoflow.errors import shown

MOST_EXTENT = (1 << 62) - 1
"""Extents and constants are added and multiplied as int64; also the most elements of a tensor."""
MOST_RANK = 32
"""NumPy, the meaning of the language, has functions for no more dimensions."""
MOST_AXES = 64
"""Axes of one definition, its own and those of its reductions, that NumPy can evaluate at once."""
MOST_NAME = 1000
"""Most characters of a name."""


def excess(shape: Sequence[int]) -> str | None:
    """What is too large about a shape of integers greater than 0."""
    if len(shape) > MOST_RANK:
        return f"a tensor has at most {MOST_RANK} dimensions, not {len(shape)}"
    if math.prod(shape) > MOST_EXTENT:
        return f"shape {shown(tuple(shape))} has more than 2^62 elements"
    return None


def unusable(name: object) -> str | None:
    """Why a tensor or an axis cannot be called `name`."""
    if not isinstance(name, str):
        return f"a name is a text, not {shown(name)}"
    if len(name) > MOST_NAME:
        return f"a name has at most {MOST_NAME} characters, not {len(name)}"
    return None


def unsaved(name: str) -> str | None:
    """Why a parameter cannot be called `name`: its value is saved under it."""
    wrong = [c for c in name if "\ud800" <= c <= "\udfff"]
    return f"the name {shown(name)} has the character {wrong[0]!r}, which no file can hold" if wrong else None

"""Bytes as a person writes them."""

from __future__ import annotations

import re

from neoflow.errors import ConfigError, shown

UNITS = {"b": 1, **{f"{p}{b}": k**n for n, p in enumerate("kmgt", 1) for b, k in (("b", 1000), ("ib", 1024))}}
"""By their names in small letters."""
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def bytes_of(memory: str | int) -> int:
    """The bytes of a limit: 2147483648, "2GiB", "500 MB". Raises `ConfigError`."""
    if isinstance(memory, str) and (match := _TEXT.fullmatch(memory)) is not None:
        number, unit = match[1], match[2].lower() or "b"
        if unit in UNITS and (unit != "b" or "." not in number):
            found = int(float(number) * UNITS[unit])
            if found > 0:
                return found
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    raise ConfigError(f"memory={shown(memory)} is no amount of memory: give bytes, or a text like '2GiB' or '500MB'")

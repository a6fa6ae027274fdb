"""Named tuples as what JSON has.

What a package is run with is made of them and of no dataclasses, of which each takes half a millisecond to be defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_named(value: object) -> bool:
    """Whether this is a named tuple, or a class of them."""
    return hasattr(value, "_fields") and hasattr(value, "_field_defaults")


def plain(value: Any) -> Any:
    """A named tuple as a dict, whatever is inside of it likewise; other tuples as lists."""
    if is_named(value):
        return {name: plain(v) for name, v in zip(value._fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

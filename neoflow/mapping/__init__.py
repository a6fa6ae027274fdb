"""Recurrences that are written out, found and mapped to loops; patterns by name, and their implementations.

Its parts are imported when these names are first used: whether a graph may have a recurrence, `chains` tells alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neoflow.boundary import publish

if TYPE_CHECKING:
    from neoflow.mapping.catalogue import CATALOGUE
    from neoflow.mapping.cell import Pattern
    from neoflow.mapping.known import pattern, patterns, remove
    from neoflow.mapping.rolled import Found, Mapped, reroll

__all__ = ["CATALOGUE", "Found", "Mapped", "Pattern", "pattern", "patterns", "remove", "reroll"]

_HOMES = {
    "CATALOGUE": "catalogue",
    "Pattern": "cell",
    "pattern": "known",
    "patterns": "known",
    "remove": "known",
    "Found": "rolled",
    "Mapped": "rolled",
    "reroll": "rolled",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'neoflow.mapping' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"neoflow.mapping.{_HOMES[name]}"), name)
    publish(globals(), [n for n in ("pattern", "remove") if n == name])
    return globals()[name]

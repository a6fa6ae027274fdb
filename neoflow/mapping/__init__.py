"""Recurrences that are written out, found and mapped to loops; cells by name."""

from neoflow.mapping.catalogue import CATALOGUE
from neoflow.mapping.pattern import Pattern, pattern
from neoflow.mapping.reroll import Found, Mapped, reroll

__all__ = ["CATALOGUE", "Found", "Mapped", "Pattern", "pattern", "reroll"]

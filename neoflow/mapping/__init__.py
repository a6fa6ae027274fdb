"""Recurrences that are written out, found and mapped to loops; patterns by name, and their implementations."""

from neoflow.boundary import publish
from neoflow.mapping.catalogue import CATALOGUE
from neoflow.mapping.known import pattern, patterns, remove
from neoflow.mapping.pattern import Pattern
from neoflow.mapping.reroll import Found, Mapped, reroll

__all__ = ["CATALOGUE", "Found", "Mapped", "Pattern", "pattern", "patterns", "remove", "reroll"]

publish(globals(), ["pattern", "remove"])

"""Schedules and, later, the search for them."""

from neoflow.loops import Schedule

__all__ = ["Schedule"]

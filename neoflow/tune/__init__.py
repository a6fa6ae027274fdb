"""Schedules and, later, the search for them."""

from neoflow.tune.schedule import Schedule

__all__ = ["Schedule"]

"""Schedules and, later, the search for them."""

from neoflow.boundary import publish
from neoflow.loops import Schedule

__all__ = ["Schedule"]

publish(globals(), __all__)

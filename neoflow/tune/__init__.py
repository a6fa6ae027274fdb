"""Schedules and the search for them: what is measured arrives as an argument."""

from neoflow.loops import Schedule
from neoflow.tune.budget import Spent, Task, spend
from neoflow.tune.limits import Limits
from neoflow.tune.search import Found, Progress, Search, search
from neoflow.tune.trial import OUTCOMES, Measure, Trial

__all__ = [
    "OUTCOMES",
    "Found",
    "Limits",
    "Measure",
    "Progress",
    "Schedule",
    "Search",
    "Spent",
    "Task",
    "Trial",
    "search",
    "spend",
]

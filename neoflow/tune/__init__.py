"""Schedules and the search for them: what is measured arrives as an argument."""

from neoflow.loops import Schedule
from neoflow.tune.limits import Limits
from neoflow.tune.trial import OUTCOMES, Measure, Trial

__all__ = ["OUTCOMES", "Limits", "Measure", "Schedule", "Trial"]

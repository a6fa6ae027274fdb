"""From a subgraph to loops, without a compiler: its problem, the template that solves it, its default schedule."""

from neoflow.loops.defaults import default_schedule
from neoflow.loops.schedule import Knob, Schedule

__all__ = ["Knob", "Schedule", "default_schedule"]

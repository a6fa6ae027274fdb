"""From a subgraph to loops, without a compiler: its problem, the template that solves it, its schedules."""

from neoflow.loops.features import feature_names, features
from neoflow.loops.knob import Knob
from neoflow.loops.schedule import KnobValue, Schedule
from neoflow.loops.space import Space, space
from neoflow.loops.template import (
    TEMPLATES,
    Problem,
    Template,
    complete,
    default,
    default_schedule,
    fits,
    legal,
    nearest,
    problem_of,
    schedule_from_json,
    streamed_otherwise,
)

__all__ = [
    "TEMPLATES",
    "Knob",
    "KnobValue",
    "Problem",
    "Schedule",
    "Space",
    "Template",
    "complete",
    "default",
    "default_schedule",
    "feature_names",
    "features",
    "fits",
    "legal",
    "nearest",
    "problem_of",
    "schedule_from_json",
    "space",
    "streamed_otherwise",
]

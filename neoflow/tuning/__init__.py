"""The schedules of a program: what is known of its kernels, the search for better ones, and the process that searches
while a program runs."""

from neoflow.tuning.roofs import keep_roofs, machine_roofs
from neoflow.tuning.schedules import (
    LEAST,
    Algorithms,
    Choice,
    SearchCurve,
    Tuned,
    Use,
    algorithms,
    choose,
    curves_of,
    default_seconds,
    has_records,
    known_seconds,
    knows_algorithms,
    limits_of,
    measuring,
    tune,
    unmeasured,
    uses_of,
)

__all__ = [
    "LEAST",
    "Algorithms",
    "Choice",
    "SearchCurve",
    "Tuned",
    "Use",
    "algorithms",
    "choose",
    "curves_of",
    "default_seconds",
    "has_records",
    "keep_roofs",
    "known_seconds",
    "knows_algorithms",
    "limits_of",
    "machine_roofs",
    "measuring",
    "tune",
    "unmeasured",
    "uses_of",
]

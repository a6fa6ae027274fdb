"""Candidates built, judged and timed, by processes that may die of them.

build (a schedule to loaded code) · clock (seconds of a call) · turn (one timing at a time on a machine) · worker (the
process that does it) · tasks (what is asked of it) · measurer (`Measurer`, the `tune.Measure` of this machine) · fleet
(of several)
"""

from neoflow.measure.measurer import Measurer

__all__ = ["Measurer"]

"""Candidates built, judged and timed, by processes that may die of them.

build (a schedule to loaded code) · clock (seconds of a call) · turn (one timing at a time on a machine) · worker (the
process that does it) · tasks (what is asked of it) · here, fleet (the workers of this machine, and of
several) · measurer (`Measurer`, a `tune.Measure` over either)
"""

from neoflow.measure.measurer import Measurer

__all__ = ["Measurer"]

"""Save or recompute: which forward tensors are kept for the backward, and which are computed again by the same kernel.

    calls in order -> steps, in numbers -> gaps: what is lost where -> runs -> calls again, planned exactly

A tensor that is computed again is written by the kernel that wrote it, from the same bits: so are its bits. What
recurrences keep of their steps is computed again a segment of them at a time, by loops (`segments`).
"""

from neoflow.recompute.fit import DoesNotFit, Fitted, Program, fit
from neoflow.recompute.limit import bytes_of
from neoflow.recompute.repeat import repeated
from neoflow.recompute.segments import Pair, in_segments, pairs
from neoflow.recompute.steps import Steps, steps_of
from neoflow.recompute.unroll import Run

__all__ = [
    "DoesNotFit",
    "Fitted",
    "Pair",
    "Program",
    "Run",
    "Steps",
    "bytes_of",
    "fit",
    "in_segments",
    "pairs",
    "repeated",
    "steps_of",
]

"""Save or recompute: which forward tensors are kept for the backward, and which are computed again by the same kernel.

    calls in order -> steps, in numbers -> gaps: what is lost where -> runs -> calls again, planned exactly

A tensor that is computed again is written by the kernel that wrote it, from the same bits: so are its bits.
"""

from neoflow.recompute.fit import Fitted, Program, fit
from neoflow.recompute.limit import bytes_of
from neoflow.recompute.repeat import repeated
from neoflow.recompute.steps import Steps, steps_of
from neoflow.recompute.unroll import Run

__all__ = ["Fitted", "Program", "Run", "Steps", "bytes_of", "fit", "repeated", "steps_of"]

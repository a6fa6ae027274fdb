"""The graph of a program made fast: its passes, what its contractions are computed by, layouts, and its kernels."""

from neoflow.rewriting.beside import in_turns
from neoflow.rewriting.optimizing import Optimizer, optimizer_for, seconds_of
from neoflow.rewriting.recurring import ASKED, mapped
from neoflow.rewriting.sequence import OPTIONAL, PREPARED, divided, left_out, rewritten, stages

__all__ = [
    "ASKED",
    "OPTIONAL",
    "PREPARED",
    "Optimizer",
    "divided",
    "in_turns",
    "left_out",
    "mapped",
    "optimizer_for",
    "rewritten",
    "seconds_of",
    "stages",
]

"""The graph of a program made fast: its passes, what its contractions are computed by, layouts, and its kernels."""

from neoflow.rewriting.asked import ASKED, attended, handed, mapped, optimizer_for, seconds_of
from neoflow.rewriting.beside import in_turns
from neoflow.rewriting.flowing import Known, nobody
from neoflow.rewriting.pricing import Price, in_memory
from neoflow.rewriting.segmenting import Segmented, segmented
from neoflow.rewriting.sequence import (
    OPTIONAL,
    PERSISTENT,
    PREPARED,
    SEGMENTS,
    TOGETHER,
    divided,
    left_out,
    rewritten,
    stages,
)

__all__ = [
    "ASKED",
    "OPTIONAL",
    "PERSISTENT",
    "PREPARED",
    "SEGMENTS",
    "TOGETHER",
    "Known",
    "Price",
    "Segmented",
    "attended",
    "divided",
    "handed",
    "in_memory",
    "in_turns",
    "left_out",
    "mapped",
    "nobody",
    "optimizer_for",
    "rewritten",
    "seconds_of",
    "segmented",
    "stages",
]

"""Other algorithms for a contraction, as rewrites of the expression: each becomes a few computes in our own language.

A row of `ALGORITHMS` says which contractions it fits, with the reason, builds the small graph, and states how much more
it rounds. Which one is fastest is measured (`neoflow/tuning/choosing.py`); without that a contraction stays as it is
written.

form (a contraction as a correlation) · operand (what is read, channels last) · points (the matrices of minimal
filtering) · transforms (small matrices written out) · winograd · im2col · cyclic (a contraction as a cyclic
convolution) · fourier · strassen (as a product of matrices in halves) · classes (of residues) · ties (the equation of a
strided read) · strided (a contraction as the adjoint of such a read) · whole (what is put together of several) · split
(by residues) · zeros (between points, by spread) · table (the rows, and the rewrite)
"""

from neoflow.graph.algorithms.cyclic import Cyclic, cyclic
from neoflow.graph.algorithms.form import Correlation, Window, correlation
from neoflow.graph.algorithms.strassen import Halved, halved
from neoflow.graph.algorithms.strided import Strided, strided
from neoflow.graph.algorithms.table import (
    ALGORITHMS,
    BY_NAME,
    DIRECT,
    Algorithm,
    UseAlgorithm,
    alternatives,
    use,
)
from neoflow.graph.algorithms.whole import Whole, whole

__all__ = [
    "ALGORITHMS",
    "BY_NAME",
    "DIRECT",
    "Algorithm",
    "Correlation",
    "Cyclic",
    "Halved",
    "Strided",
    "UseAlgorithm",
    "Whole",
    "Window",
    "alternatives",
    "correlation",
    "cyclic",
    "halved",
    "strided",
    "use",
    "whole",
]

"""What a random program may contain."""

from __future__ import annotations

from dataclasses import dataclass

UNARY = ("neg", "abs", "relu", "exp", "log", "log1p", "expm1", "tanh", "sigmoid", "sqrt", "rsqrt", "erf", "sin", "cos")
JUMPS = ("floor", "ceil", "round", "sign")
STOPS = ("stop_gradient",)
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum")
REDUCERS = ("sum", "prod", "max", "min")


@dataclass(frozen=True)
class Limits:
    """What a program may contain. `points`: most evaluations of one compute's innermost body."""

    tensors: tuple[int, int] = (2, 6)
    rank: int = 5
    extent: int = 7
    points: int = 600
    dtype: str = "float32"
    gathers: bool = True
    integers: bool = True
    """integer computes among the tensors, and comparisons and argmax of data"""
    jumps: bool = True
    """discontinuous functions: floor, ceil, sign, comparisons of data, argmax as an index"""
    stops: bool = True
    """with these, what has no gradient by definition, and other differences"""
    unary: tuple[str, ...] = UNARY
    binary: tuple[str, ...] = BINARY
    reducers: tuple[str, ...] = REDUCERS

"""One exception class per stage. Every message names the user's line, what was found and what to do."""

from __future__ import annotations

import os

__all__ = [
    "CheckpointError",
    "CodegenError",
    "ConfigError",
    "DataError",
    "ExpressionError",
    "GradientError",
    "GraphError",
    "NeoflowError",
    "PartitionError",
    "RuntimeFault",
    "ScheduleError",
    "TextError",
]

Location = tuple[str, int]


class NeoflowError(Exception):
    """Base of every error that neoflow raises on purpose.

    `where` is the user's (file, line) the `message` is about; it leads the text.
    """

    def __init__(self, message: str, where: Location | None = None):
        self.message, self.where = message, where
        prefix = f"{os.path.relpath(where[0])}:{where[1]}: " if where else ""
        super().__init__(prefix + message)


class ExpressionError(NeoflowError):
    """An expression that has no meaning: dtype, rank, scope or bounds."""


class GradientError(NeoflowError):
    """A gradient that does not exist or was found wrong by `check_grad`."""


class GraphError(NeoflowError):
    """Roots that do not form a graph: a missing input, an update of a non-parameter."""


class PartitionError(NeoflowError):
    """A subgraph that breaks the rules of fusion."""


class ScheduleError(NeoflowError):
    """This schedule is illegal for this subgraph. A search catches this and nothing wider."""


class CodegenError(NeoflowError):
    """A subgraph that cannot be lowered or built for the target."""


class RuntimeFault(NeoflowError):
    """A call with wrong arrays, an index outside its table at run time, a loss that is not finite."""


class DataError(NeoflowError):
    """A data file that is missing, truncated or foreign."""


class ConfigError(NeoflowError):
    """A NEOFLOW_* variable or an argument outside its allowed values."""


class CheckpointError(NeoflowError):
    """A checkpoint or parameter file that cannot be read or does not fit."""


class TextError(NeoflowError):
    """A text that does not parse to what it is said to be. `line` and `column` are from 1."""

    def __init__(self, message: str, line: int, column: int):
        self.line, self.column = line, column
        super().__init__(f"line {line}, column {column}: {message}")

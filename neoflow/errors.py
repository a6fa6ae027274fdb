"""One exception class per stage. Every message names the user's line, what was found and what to do."""

from __future__ import annotations

import os
import reprlib

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "CodegenError",
    "ConfigError",
    "DataError",
    "ExpressionError",
    "GradientError",
    "GraphError",
    "NeoflowError",
    "PackageError",
    "PartitionError",
    "RuntimeFault",
    "ScheduleError",
    "TextError",
    "shown",
]

Location = tuple[str, int]


class _Shown(reprlib.Repr):
    """`repr` in a line that is not long, and that never fails: Python refuses to write an integer of 5,000 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60
        self.maxtuple = self.maxlist = 40

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= 128 else f"an integer of {x.bit_length()} bits"


_shown = _Shown()


def shown(value: object) -> str:
    """Any value for a message: `repr`, on one line and cut where it is long."""
    return " ".join(_shown.repr(value).split())


class NeoflowError(Exception):
    """Base of every error that neoflow raises on purpose.

    `where` is the user's (file, line) the `message` is about; it leads the text. What cannot be printed is escaped.
    """

    def __init__(self, message: str, where: Location | None = None):
        self.message, self.where = _printable(message), where
        prefix = f"{_relative(where[0])}:{where[1]}: " if where else ""
        super().__init__(_printable(prefix) + self.message)


def _printable(text: str) -> str:
    """Half a surrogate pair is in no encoding."""
    return text.encode("utf-8", "backslashreplace").decode()


def _relative(file: str) -> str:
    try:
        return os.path.relpath(file)
    except OSError:  # the working directory is gone
        return file


class ArgumentError(NeoflowError, TypeError):
    """An argument that is missing, unknown or of a type that the function does not take."""


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


class PackageError(NeoflowError):
    """A package that is damaged, of a newer format, or not for this machine; or one that cannot be written."""


class TextError(NeoflowError):
    """A text that does not parse to what it is said to be. `line` and `column` are from 1."""

    def __init__(self, message: str, line: int, column: int):
        self.line, self.column = line, column
        super().__init__(f"line {line}, column {column}: {message}")

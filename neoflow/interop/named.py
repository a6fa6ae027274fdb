"""Operators as functions that other libraries copy and pickle with what uses them: by their names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from neoflow.caller import caller
from neoflow.errors import ArgumentError
from neoflow.interop.signature import Signature


class Named:
    """An operator that stays itself in copies, and in pickles is the name that its module knows it by."""

    def __init__(self, function: Callable[..., Any], signature: Signature):
        self.signature = signature
        self.__name__, self.__doc__ = signature.name, function.__doc__
        self.__module__, self.__qualname__ = function.__module__, getattr(function, "__qualname__", signature.name)

    def __repr__(self) -> str:
        return f"<Operator {self.signature.name}({', '.join(a.schema for a in self.signature.arguments)})>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Named:
        return self

    def __copy__(self) -> Named:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """By the name that it has in its module: another process defines it again."""
        module = sys.modules.get(self.__module__)
        for name, value in vars(module).items() if module is not None else ():
            if value is self:
                return getattr, (_Importing(self.__module__), name)
        raise ArgumentError(
            f"operator {self.signature.name} is no name of module {self.__module__}: define it at the top of one, so "
            "that another process finds it",
            caller(),
        )


class _Importing:
    """A module by its name, for pickling."""

    def __init__(self, name: str):
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (self.name, None, None, ("*",))

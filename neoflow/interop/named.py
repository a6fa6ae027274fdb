"""Operators as functions that other libraries copy and pickle with what uses them: by their names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from neoflow.caller import caller
from neoflow.errors import ArgumentError, shown
from neoflow.interop.signature import Names, Signature, identifier, signature_of

MOST = 1 << 20
"""Of outputs, and of shapes that an operator is compiled for."""


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


def decorator(
    function: Any, make: Callable[[Callable[..., Any], Signature], Named], names: Names, name: Any, outputs: Any,
    limit: Any,
) -> Any:  # fmt: skip
    """What a library's `operator` gives: the operator that `make` makes of the function, or, where there is none yet,
    what takes one. Raises `ArgumentError` for arguments that are not what the docs of `operator` say."""
    if function is not None and not callable(function):
        raise ArgumentError(f"operator takes a function of tensors, not {shown(function)}", caller())
    if name is not None and (not isinstance(name, str) or not name):
        raise ArgumentError(f"name is {shown(name)}; it is a text", caller())
    for what, value in (("outputs", outputs), ("limit", limit)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST):
            raise ArgumentError(f"{what} is {shown(value)}; it is an integer from 1 to {MOST}", caller())

    def made(f: Callable[..., Any]) -> Named:
        if not callable(f):
            raise ArgumentError(f"operator takes a function of tensors, not {shown(f)}", caller())
        wished = identifier(name or str(getattr(f, "__name__", "operator")))
        return make(f, signature_of(f, names.unique(wished), outputs))

    return made if function is None else made(function)


class _Importing:
    """A module by its name, for pickling."""

    def __init__(self, name: str):
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (self.name, None, None, ("*",))

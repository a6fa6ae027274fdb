"""What an operator takes and gives, by the signature of the function that its expression is written in."""

from __future__ import annotations

import inspect
import itertools
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from neoflow.caller import caller
from neoflow.errors import ArgumentError, shown

STATIC: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str"}
"""Types of arguments that are known when the expression is written, and what each is in a schema of PyTorch."""


@dataclass(frozen=True)
class Argument:
    """kind: "Tensor" or one of `STATIC`. is_optional: None may stand for a tensor. default: `inspect`'s `empty` where
    one has to be given. is_named: the function takes it by its name alone."""

    name: str
    kind: str = "Tensor"
    is_optional: bool = False
    default: Any = inspect.Parameter.empty
    is_named: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.kind == "Tensor"

    @property
    def schema(self) -> str:
        """As a schema of PyTorch has it."""
        return f"{self.kind}{'?' if self.is_optional else ''} {self.name}"


@dataclass(frozen=True)
class Signature:
    """outputs: how many tensors the function returns; 0: one, that is not in a tuple."""

    name: str
    arguments: tuple[Argument, ...]
    outputs: int

    @property
    def count(self) -> int:
        return self.outputs or 1

    def filled(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments in order. Raises `ArgumentError` for one that is missing, or there twice, or unknown."""
        found, rest = list(args), dict(named)
        if len(found) > len(self.arguments):
            raise ArgumentError(
                f"operator {self.name} takes {len(self.arguments)} arguments, got {len(found)}", caller()
            )
        for a in self.arguments[len(found) :]:
            if a.name not in rest and a.default is inspect.Parameter.empty:
                raise ArgumentError(f"operator {self.name} misses its argument {a.name}", caller())
            found.append(rest.pop(a.name, a.default))
        if rest:
            raise ArgumentError(
                f"operator {self.name} has no argument {next(iter(rest))}, or it is there twice", caller()
            )
        return tuple(found)


def signature_of(function: Callable[..., Any], name: str, outputs: int | None) -> Signature:
    """Arguments that are annotated `int`, `float`, `bool` or `str`, or have such a default, are static; all others are
    tensors. outputs: when None as the annotation says, one tensor or a tuple of them. Raises `ArgumentError`."""
    hints = hints_of(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # classes of Python itself, functions of C
        raise ArgumentError(f"operator {name}: nothing says what {shown(function)} takes", caller()) from None
    arguments = tuple(_argument(p, hints.get(p.name), name) for p in parameters)
    if not any(a.is_tensor for a in arguments):
        raise ArgumentError(f"operator {name} takes no tensor: nothing says what it computes on", caller())
    return Signature(name, arguments, returned(hints, name) if outputs is None else outputs)


def returned(hints: Mapping[str, Any], name: str) -> int:
    """How many tensors a function returns by its annotations, as `Signature.outputs`. Raises `ArgumentError`."""
    hint = hints.get("return")
    kind, items = get_origin(hint) or hint, get_args(hint)
    if kind is tuple and items and ... not in items:
        return len(items)
    if kind in (tuple, list):
        raise ArgumentError(f"operator {name} returns several tensors: say how many by outputs=", caller())
    return 0


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """What annotations mean; of a function with one that means nothing here, none of them."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _argument(p: inspect.Parameter, hint: Any, name: str) -> Argument:
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        raise ArgumentError(f"operator {name}: {p} stands for any number of arguments; name each of them", caller())
    inner = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [STATIC[h] for h in inner if h in STATIC]
    if not kinds and type(p.default) in STATIC:
        kinds = [STATIC[type(p.default)]]
    is_optional = types.NoneType in inner or p.default is None
    if kinds and is_optional:
        raise ArgumentError(f"operator {name}: {p.name} is {kinds[0]} or None; only tensors may be None", caller())
    is_named = p.kind is p.KEYWORD_ONLY
    return Argument(p.name, kinds[0] if kinds else "Tensor", is_optional, p.default, is_named)


def identifier(text: str) -> str:
    """A text as a name that PyTorch takes for an operator."""
    found = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "operator"
    return f"_{found}" if found[0].isdigit() else found


class Names:
    """The names that operators of one library have."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, wished: str) -> str:
        """A name that no other operator has: of a function that is defined again, another one."""
        names = itertools.chain([wished], (f"{wished}_{n}" for n in itertools.count(2)))
        found = next(n for n in names if n not in self._taken)
        self._taken.add(found)
        return found

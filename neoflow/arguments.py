"""What is wrong with the arguments of a call, by the annotations of the function; asked once a call has failed."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from neoflow.errors import shown

_LISTS = (Collection, Iterable, Sequence, list, tuple)
_ITEMS = (list, tuple, Set, np.ndarray)
"""What can be gone through more than once."""
_BITS = 64
"""An integer of more is never meant."""
_NUMBERS: dict[Any, type] = {int: Integral, float: Real}
"""What an annotation takes besides its own instances, NumPy's scalars among them."""


def misfit(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> str | None:
    """The sentence about the first argument that is not what its annotation says; None when all of them are."""
    return next((f for name, value, hint in _given(function, args, named) if (f := _misfit(value, hint, name))), None)


def doubtful(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> str | None:
    """The sentence about the first argument that stands for a list, and whose items cannot be looked at any more."""
    for name, value, hint in _given(function, args, named):
        alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        lists = [h for h in alternatives if (get_origin(h) or h) in _LISTS]
        is_other = any(
            h is Any or (isinstance(h, type) and isinstance(value, h)) for h in alternatives if h not in lists
        )
        if (
            lists
            and not is_other
            and isinstance(value, Iterable)
            and not isinstance(value, (*_ITEMS, str, bytes, Mapping))
        ):
            return f"{_unlike(value, lists[0], name)}, and its items are not such: write them as a list"
    return None


def _given(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and annotation of every argument; nothing where the function cannot be called so."""
    try:
        signature, hints = _declared(function)
        given = signature.bind(*args, **named).arguments
    except (NameError, TypeError, ValueError):
        return
    for name, value in given.items():
        hint = hints.get(name, Any)
        match signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                hint = types.GenericAlias(tuple, (hint, ...))
            case inspect.Parameter.VAR_KEYWORD:
                hint = types.GenericAlias(Mapping, (str, hint))
        yield name, value, hint


@lru_cache(maxsize=1024)
def _declared(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature, and what the annotations of its parameters mean; what it returns may be known to type checkers
    alone."""
    signature = inspect.signature(function)
    written = {n: p.annotation for n, p in signature.parameters.items() if p.annotation is not p.empty}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    return signature, get_type_hints(types.SimpleNamespace(__annotations__=written), names)


def _misfit(value: Any, hint: Any, where: str) -> str | None:
    """Why `value`, which stands at `where`, is not what an annotation says."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if isinstance(value, int) and value.bit_length() > _BITS:
        return f"{where} is {shown(value)}, which is too large"
    if origin in (Union, types.UnionType):
        reasons = [_misfit(value, h, where) for h in inner]
        if None in reasons:
            return None
        inside = [r for r in reasons if r is not None and not r.startswith(f"{where} is ")]
        return inside[0] if inside else _unlike(value, hint, where)
    if origin is Literal:
        return None if value in inner else _unlike(value, hint, where)
    if not _is_of(value, origin):
        return _unlike(value, hint, where)
    if inner and isinstance(inner[0], list):
        return _misfit_of_function(value, inner[0], where)
    if not inner or not isinstance(origin, type):
        return None
    if issubclass(origin, Mapping) and len(inner) == 2:
        return _misfit_of_mapping(value, inner, where)
    if issubclass(origin, Iterable) and origin is not np.ndarray and isinstance(value, _ITEMS):
        if isinstance(value, np.ndarray) and not value.ndim:
            return _unlike(value, hint, where)
        return _misfit_of_items(list(value), origin, inner, where)
    return None


def _misfit_of_function(value: Callable[..., Any], takes: list[Any], where: str) -> str | None:
    """Why a function cannot be called with as many arguments as it will be."""
    try:
        inspect.signature(value).bind(*takes)
    except TypeError as error:
        return f"{where}, {shown(value)}, will be called with {len(takes)} arguments: {error}"
    except ValueError:  # nothing is known of it
        pass
    return None


def _misfit_of_mapping(value: Mapping[Any, Any], inner: tuple[Any, ...], where: str) -> str | None:
    for key, item in value.items():
        if _misfit(key, inner[0], where) is not None:
            return f"{where} has the key {shown(key)}, which is not {_described(inner[0])}"
        found = _misfit(item, inner[1], f"{where}[{getattr(key, 'name', None) or shown(key)}]")
        if found is not None:
            return found
    return None


def _misfit_of_items(value: Sequence[Any], origin: type, inner: tuple[Any, ...], where: str) -> str | None:
    if origin is tuple and inner[-1] is not ...:
        if len(value) != len(inner):
            return f"{where} has {len(value)} items; it takes {len(inner)}"
        hints = list(inner)
    else:
        hints = [inner[0]] * len(value)
    found = (_misfit(item, h, f"{where}[{n}]") for n, (item, h) in enumerate(zip(value, hints, strict=True)))
    return next((f for f in found if f is not None), None)


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a class that stands in an annotation; what is no class takes anything."""
    if kind is None or kind is type(None):
        return value is None
    if kind is Any or isinstance(kind, TypeVar) or not isinstance(kind, type):
        return True
    if kind is np.ndarray:
        return hasattr(value, "__dlpack__") or isinstance(value, (np.generic, Real, list, tuple))
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, (bool, np.bool_))
    if kind is bool:
        return isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1))
    if kind is tuple and isinstance(value, Set):  # in no order
        return False
    if kind in _LISTS:  # whatever gives items one after another, but no text, and no dict of its keys
        return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be asked
        return True


def _unlike(value: Any, hint: Any, where: str) -> str:
    return f"{where} is {shown(value)}, {_one(type(value).__name__)}; it takes {_described(hint)}"


def _one(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _described(hint: Any) -> str:
    """An annotation in words: `a list of Tensor`."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(h) for h in inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is None or origin is type(None):
        return "None"
    if origin not in _WORDS:
        return _one(getattr(origin, "__name__", str(origin)))
    if not inner or origin is Callable:
        return _WORDS[origin]
    items = [_described(h).split(" ", 1)[-1] for h in inner if h not in (..., Any)]
    return f"{_WORDS[origin]} of {' and '.join(dict.fromkeys(items))}" if items else _WORDS[origin]


_WORDS: dict[Any, str] = {
    Sequence: "a list",
    Iterable: "a list",
    list: "a list",
    tuple: "a tuple",
    Mapping: "a dict",
    dict: "a dict",
    os.PathLike: "a path",
    Callable: "a function",
    int: "an integer",
    float: "a number",
    str: "a text",
    np.ndarray: "an array",
}

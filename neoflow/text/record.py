"""Records, named tuples or frozen dataclasses of plain values, as text and back: a line a field, written from the
fields themselves.

    text   ::= header { field "=" value }                   what has its default may be left out, and is not written
    value  ::= integer | real | True | False | None | string | "(" value, ... ")" | class "(" field "=" value, ... ")"

What a field may hold is what its annotation says: int, float, bool, str, None, Literal, a union of those, a tuple of
any length or of fixed types, another record. So a new field needs no code here.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from neoflow.errors import NeoflowError, TextError
from neoflow.plain import is_named
from neoflow.text.scan import DIGITS, Scanner, Token, header, is_real, quote

T = TypeVar("T")
_WORDS = {"True": True, "False": False, "None": None}
_WIDE = 120
"""A longer tuple has an item a line, as one of tuples or records has."""


_hints: Callable[[Any], dict[str, Any]] = lru_cache(maxsize=256)(get_type_hints)
"""The annotations of a record."""


def _is_record(value: Any) -> bool:
    """Whether this is a record, or a class of them."""
    return is_dataclass(value) or is_named(value)


def _defaults(cls: Any) -> dict[str, Any]:
    """The fields that a class is made of, in order, with their defaults or what makes them; MISSING: there is none."""
    if is_named(cls):
        return {name: cls._field_defaults.get(name, MISSING) for name in cls._fields}
    made = {f.name: f.default_factory for f in fields(cls) if f.default_factory is not MISSING}
    return {f.name: made.get(f.name, f.default) for f in fields(cls) if f.init}


# ------------------------------------------------------------------------------------------------------ to text


def write_record(record: Any, kind: str) -> str:
    """The text of a record. Raises `TypeError` when a field holds what its annotation does not say."""
    lines = [header(kind)]
    hints = _hints(type(record))
    for name, value in _said(record):
        hint = _member(hints[name], value, f"{type(record).__name__}.{name}")
        text = f"{name} = {_write(value, hint, name)}"
        is_list = isinstance(value, tuple) and not _is_record(value)
        if is_list and (len(text) > _WIDE or any(isinstance(v, tuple) or _is_record(v) for v in value)):
            items = [f"    {_write(v, hints, name)}," for v, hints in zip(value, _items(hint, value), strict=True)]
            lines += [f"{name} = (", *items, ")"]
        else:
            lines.append(text)
    return "\n".join(lines) + "\n"


def _said(record: Any) -> list[tuple[str, Any]]:
    """Fields whose value is not their default."""
    found = [(name, getattr(record, name), default) for name, default in _defaults(type(record)).items()]
    return [(name, v) for name, v, default in found if type(v) is not type(default) or repr(v) != repr(default)]


def _write(value: Any, hint: Any, where: str) -> str:
    hint = _member(hint, value, where)
    if _is_record(value):
        hints, name = _hints(type(value)), type(value).__name__
        said = (f"{n}={_write(v, hints[n], f'{name}.{n}')}" for n, v in _said(value))
        return f"{name}({', '.join(said)})"
    if isinstance(value, tuple):
        items = [_write(v, h, where) for v, h in zip(value, _items(hint, value), strict=True)]
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    return quote(value) if isinstance(value, str) else repr(value)


def _items(hint: Any, value: tuple) -> list[Any]:
    """The annotation of every item of a tuple."""
    inner = get_args(hint)
    return [inner[0]] * len(value) if inner[-1:] == (...,) else [h for h in inner if h != ()]


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one annotation."""
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _member(hint: Any, value: Any, where: str) -> Any:
    """The alternative of an annotation that `value` is of."""
    for h in _alternatives(hint):
        if get_origin(h) is tuple:
            if type(value) is tuple and len(_items(h, value)) == len(value):
                return h
        elif get_origin(h) is Literal:
            if value in get_args(h):
                return h
        elif type(value) is h and (h in _PLAIN or _is_record(h)):
            return h
    raise TypeError(f"{where} holds {value!r}, which is not {hint}")


# ---------------------------------------------------------------------------------------------------- from text


def read_record(cls: type[T], text: str, kind: str) -> T:
    """The value of class `cls` that `write_record` wrote. Raises `TextError`."""
    scanner = Scanner(text, kind, lines=False)
    start = scanner.token
    given: dict[str, Any] = {}
    while scanner.token.kind != "end":
        _field(scanner, cls, given)
    return _made(scanner, cls, given, start)


def _field(scanner: Scanner, cls: Any, given: dict[str, Any]) -> None:
    """Read `name = value` into `given`."""
    known = list(_defaults(cls))
    token = scanner.token
    name = scanner.name(f"a field of {cls.__name__}")
    if name not in known:
        scanner.fail(f"a field of {cls.__name__} ({', '.join(known)})", token)
    if name in given:
        scanner.refuse(f"{cls.__name__}.{name} stands twice", token)
    scanner.expect("=")
    given[name] = _value(scanner, _hints(cls)[name], f"{cls.__name__}.{name}")


def _made(scanner: Scanner, cls: Any, given: dict[str, Any], at: Token) -> Any:
    for name, default in _defaults(cls).items():
        if name not in given and default is MISSING:
            scanner.refuse(f"{cls.__name__} lacks `{name}`", at)
    try:
        return cls(**given)
    except NeoflowError as e:
        if isinstance(e, TextError):
            raise
        scanner.refuse(f"no {cls.__name__}: {e}", at)


def _value(scanner: Scanner, hint: Any, where: str) -> Any:
    token = scanner.after() if scanner.at("-") else scanner.token
    for h in _alternatives(hint):
        if _begins(token, h):
            return _read(scanner, h, where)
    _unlike(scanner, hint, where)


def _begins(token: Token, hint: Any) -> bool:
    """Whether a value of this annotation may begin with `token`."""
    if get_origin(hint) is tuple:
        return token.text == "("
    if get_origin(hint) is Literal:
        return any(_begins(token, type(v)) for v in get_args(hint))
    if hint in (int, float):
        return token.kind == "integer" if hint is int else is_real(token)
    if hint is str:
        return token.kind == "string"
    if hint in (bool, type(None)):
        return token.kind == "name" and token.text in _WORDS and type(_WORDS[token.text]) is hint
    return token.kind == "name" and token.text == hint.__name__


def _unlike(scanner: Scanner, hint: Any, where: str) -> NoReturn:
    names = [h.__name__ if isinstance(h, type) else str(h) for h in _alternatives(hint)]
    scanner.fail(f"{' or '.join(names)} for {where}")


def _read(scanner: Scanner, hint: Any, where: str) -> Any:
    if get_origin(hint) is tuple:
        return _tuple(scanner, hint, where)
    if get_origin(hint) is Literal:
        token, allowed = scanner.token, get_args(hint)
        value = _value(scanner, next(type(v) for v in allowed if _begins(token, type(v))), where)
        if value not in allowed:
            scanner.refuse(f"{where} is one of {', '.join(map(repr, allowed))}", token)
        return value
    if _is_record(hint):
        return _record(scanner, hint)
    return _PLAIN[hint](scanner, where)


def _tuple(scanner: Scanner, hint: Any, where: str) -> tuple:
    start = scanner.open()
    inner = get_args(hint)
    is_open = inner[-1:] == (...,)
    found: list[Any] = []
    while not scanner.at(")"):
        if not is_open and len(found) == len(inner):
            scanner.fail("`)`")
        found.append(_value(scanner, inner[0] if is_open else inner[len(found)], where))
        if not scanner.accept(","):
            break
    scanner.close()
    if not is_open and len(found) != len(inner):
        scanner.refuse(f"{where} has {len(inner)} items, not {len(found)}", start)
    return tuple(found)


def _record(scanner: Scanner, cls: Any) -> Any:
    start = scanner.next()
    scanner.open()
    given: dict[str, Any] = {}
    while not scanner.at(")"):
        _field(scanner, cls, given)
        if not scanner.accept(","):
            break
    scanner.close()
    return _made(scanner, cls, given, start)


def _integer(scanner: Scanner, where: str) -> int:
    sign = -1 if scanner.accept("-") else 1
    return sign * scanner.number(f"an integer for {where}", 10**DIGITS)


def _real(scanner: Scanner, where: str) -> float:
    sign = -1.0 if scanner.accept("-") else 1.0
    return sign * scanner.real(f"a number with a point for {where}")


def _word(scanner: Scanner, where: str) -> bool | None:
    return _WORDS[scanner.next().text]


_PLAIN: dict[Any, Any] = {
    int: _integer,
    float: _real,
    str: lambda scanner, where: scanner.string(f"a string for {where}"),
    bool: _word,
    type(None): _word,
}

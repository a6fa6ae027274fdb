"""Tokens of a text, one at a time, each with its place."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from typing import NoReturn

from neoflow.errors import TextError

LIMIT = 1 << 26
"""Most characters of a text."""
DIGITS = 40
"""Most digits of an integer; Python itself converts no more than some thousands."""
DEEP = 100
"""Most brackets inside one another in the text of a record."""
VERSION = 1

_TOKEN = re.compile(
    r"""[ ]*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<real>[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+))
    | (?P<integer>[0-9]+)
    | (?P<string>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*")
    | (?P<mark>//|<=|>=|==|!=|[-+*/%<>&|~()\[\],=:@$\#])
    | (?P<line>\n[ \n]*)
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_CARET_BEFORE, _CARET_AFTER = 60, 40
"""Most characters of a line that an error shows on both sides of its caret."""


@dataclass(frozen=True)
class Token:
    """kind: name, real, integer, string, mark, line (one or more newlines) or end. start: its place in the text."""

    kind: str
    text: str
    start: int


def is_real(token: Token) -> bool:
    """Whether a token is a floating-point number."""
    return token.kind == "real" or (token.kind == "name" and token.text in ("inf", "nan"))


def quote(text: str) -> str:
    """A string in double quotes, on one line, printable as far as `text` is."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def header(kind: str) -> str:
    """The first line of a text."""
    return f"neoflow {kind} {VERSION}"


class Scanner:
    """Reads `text` from left to right; `token` is the next one. lines: whether newlines are tokens or blanks.

    Raises `TextError`, as every method does that asks for what is not there.
    """

    def __init__(self, text: str, kind: str, lines: bool = True):
        if not isinstance(text, str):
            raise TextError(f"a {kind} is read from a text, not from a {type(text).__name__}", 1, 1)
        if len(text) > LIMIT:
            raise TextError(f"a text of {len(text)} characters is too long; the limit is {LIMIT}", 1, 1)
        self.source, self.lines, self.depth = text, True, 0
        self.token = self._scan(0)
        self.expect("neoflow")
        if self.token.text != kind:
            self.fail(f"a text of the kind `{kind}`")
        self.next()
        if self.token.text != str(VERSION):
            self.fail(f"version {VERSION}, which this neoflow reads")
        self.next()
        self.end_of_line()
        self.lines = lines

    def _scan(self, position: int) -> Token:
        while True:
            found = _TOKEN.match(self.source, position)
            if found is None:
                blanks = len(self.source) - len(self.source[position:].lstrip(" "))
                token = Token("character", self.source[blanks], blanks)
                self.fail("a name, a number, a string or a sign", token)
            kind = found.lastgroup or ""
            token = Token(kind, found[kind], found.start(kind))
            if kind != "line" or self.lines:
                return token
            position = found.end()

    def next(self) -> Token:
        """The next token, which is passed."""
        token = self.token
        self.token = self._scan(token.start + len(token.text))
        return token

    def after(self) -> Token:
        """The token after the next one."""
        return self._scan(self.token.start + len(self.token.text))

    def fail(self, expected: str, at: Token | None = None) -> NoReturn:
        """Raise `TextError`: `expected` is not what stands at the next token, or at `at`."""
        token = at or self.token
        shown = {"end": "the end of the text", "line": "the end of the line"}.get(token.kind)
        if shown is None:
            shown = f"`{token.text}`" if len(token.text) <= 40 else f"`{token.text[:40]}...`"
        self.refuse(f"expected {expected}, found {shown}", token)

    def refuse(self, message: str, at: Token | None = None) -> NoReturn:
        """Raise `TextError` with the line of the next token, or of `at`, and a caret under it."""
        start = (at or self.token).start
        first = self.source.rfind("\n", 0, start) + 1
        last = self.source.find("\n", start)
        last = len(self.source) if last < 0 else last
        left = max(first, start - _CARET_BEFORE)
        shown = self.source[left : min(last, start + _CARET_AFTER)]
        shown = "".join(c if c.isprintable() else "?" for c in shown)
        line, column = self.source.count("\n", 0, start) + 1, start - first + 1
        raise TextError(f"{message}\n    {shown}\n    {' ' * (start - left)}^", line, column)

    # ----------------------------------------------------------------------------------------------- what is asked

    def at(self, text: str) -> bool:
        """Whether the next token is this name or sign."""
        return self.token.text == text and self.token.kind in ("name", "mark")

    def accept(self, text: str) -> bool:
        """Pass the next token when it is this name or sign."""
        found = self.at(text)
        if found:
            self.next()
        return found

    def expect(self, text: str) -> Token:
        if not self.at(text):
            self.fail(f"`{text}`")
        return self.next()

    def open(self) -> Token:
        """Pass `(`, of which no more than `DEEP` are inside one another where a reader recurses."""
        token = self.expect("(")
        self.depth += 1
        if self.depth > DEEP:
            self.refuse(f"more than {DEEP} brackets stand inside one another", token)
        return token

    def close(self) -> None:
        """Pass the `)` of what was opened."""
        self.expect(")")
        self.depth -= 1

    def name(self, what: str) -> str:
        """A name, which errors call `what`."""
        if self.token.kind != "name":
            self.fail(what)
        return self.next().text

    def number(self, what: str, most: int) -> int:
        """An integer from 0 to `most`."""
        token = self.token
        if token.kind != "integer":
            self.fail(what)
        if len(token.text) > DIGITS or int(token.text) > most:
            self.refuse(f"{what} is at most {most}")
        return int(self.next().text)

    def real(self, what: str) -> float:
        """A number with a point or an exponent, inf or nan."""
        token = self.token
        if not is_real(token):
            self.fail(what)
        value = float(token.text)
        if math.isinf(value) and token.kind == "real":
            self.refuse(f"{what} is at most {sys.float_info.max}")
        self.next()
        return value

    def string(self, what: str) -> str:
        """A string in double quotes."""
        if self.token.kind != "string":
            self.fail(what)
        try:
            found = json.loads(self.token.text)
        except ValueError:
            self.refuse("a string with a character that JSON does not allow, or a wrong escape")
        self.next()
        return found

    def end_of_line(self) -> None:
        if self.token.kind == "line":
            self.next()
        elif self.token.kind != "end":
            self.fail("the end of the line")

    def end(self) -> None:
        """Nothing but blanks is left."""
        if self.token.kind != "end":
            self.fail("the end of the text")

"""The text of index notation: cut into statements, each parsed by `ast`, with the place of every node for messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NoReturn

from neoflow.errors import ExpressionError, Location, shown

LIMIT = 1 << 20
"""Most characters of a text."""
MOST_STATEMENT = 1 << 16
"""Most characters of a statement: what is read in less than a second."""
_CARET_BEFORE, _CARET_AFTER = 100, 60
"""Most characters of a line that an error shows on both sides of its caret."""
_SHOWN = 120
"""Most characters of an expression inside a message."""
_DIVIDE = "define a part of it as a tensor of its own, by a statement before"


_GIVEN = "given"
_BEFORE = re.compile(
    r"(?P<of>[^\W\d]\w*)\s*\[\s*(?P<at>-?\s*\d+)\s*\]\s*=\s*"
    r"(?:(?P<name>[^\W\d]\w*)|(?P<number>-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))"
)
Number = int | float


def _clause(text: str) -> int | None:
    """Where the word `given` stands outside of brackets, between other words."""
    depth = 0
    for n, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        end = n + len(_GIVEN)
        if not depth and text[n:end] == _GIVEN and text[n - 1 : n].isspace() and text[end : end + 1].isspace():
            return n
    return None


class Source:
    """The text and the user's line, for messages."""

    def __init__(self, text: str, where: Location | None):
        if not isinstance(text, str):
            raise ExpressionError(f"index notation is a text, not {shown(text)}", where)
        if len(text) > LIMIT:
            raise ExpressionError(f"a text of {len(text)} characters is too long; the limit is {LIMIT}", where)
        self.text, self.where = text.replace("\r\n", "\n").replace("\r", "\n"), where
        self.lines = self.text.split("\n")

    def fail(self, message: str, line: int | None = None, column: int = 0) -> NoReturn:
        """Raise `ExpressionError`, with the line of text and a caret when a place is given (both from 0)."""
        if line is not None and line < len(self.lines):
            text = self.lines[line].rstrip()
            left = max(len(text) - len(text.lstrip()), column - _CARET_BEFORE)
            part = "".join(c if c.isprintable() else "?" for c in text[left : max(left, column) + _CARET_AFTER])
            message += f"\n    {part}\n    {' ' * max(column - left, 0)}^"
        raise ExpressionError(message, self.where)

    def statements(self) -> tuple[Parsed, ...]:
        try:
            parsed = _parse(self.text)
        except _Syntax as problem:
            self.fail(problem.message, problem.line, problem.column)
        if not parsed:
            self.fail("the text has no statement; write for example y[i] = sum(x[i, k])")
        return parsed


class _Syntax(Exception):
    def __init__(self, message: str, line: int, column: int):
        self.message, self.line, self.column = message, line, column


class Parsed:
    """One assignment and where its text begins in the whole."""

    def __init__(self, text: str, line: int, column: int):
        self.text, self.line, self.column = text, line, column
        if len(text) > MOST_STATEMENT:
            raise _Syntax(f"a statement of {len(text)} characters is too long; {_DIVIDE}", line, column)
        whole, self.given = text, tuple[tuple[str, int, str | Number], ...]()
        at = _clause(text)
        if at is not None:
            text = text[:at].rstrip()
        try:
            body = ast.parse(text).body
        except SyntaxError as e:
            found = e.msg[0].lower() + e.msg[1:]
            place = self._absolute(e.lineno or 1, (e.offset or 1) - 1)
            raise _Syntax(f"the text does not parse: {found}", *place) from None
        except (MemoryError, RecursionError):
            raise _Syntax(f"the statement nests too deeply; {_DIVIDE}", line, column) from None
        except ValueError as e:  # NUL, half a surrogate pair
            raise _Syntax(f"the text has a character that no text has: {e}", line, column) from None
        node = body[0] if len(body) == 1 else None
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise _Syntax("a statement is an assignment: y[i, j] = expression", line, column)
        self.target, self.value = node.targets[0], node.value
        if at is not None:
            self.given = self._read_given(whole, at + len(_GIVEN))

    def other(self, target: ast.expr, value: ast.expr) -> Parsed:
        """The statement with other sides, whose nodes have places in its text."""
        made = object.__new__(Parsed)
        made.text, made.line, made.column, made.given = self.text, self.line, self.column, ()
        made.target, made.value = target, value
        return made

    def _read_given(self, whole: str, start: int) -> tuple[tuple[str, int, str | Number], ...]:
        """The clause `given h[-1] = h0, h[-2] = 0`: a name, a number of a step, what there is."""
        found = []
        for part in whole[start:].split(","):
            match = _BEFORE.fullmatch(part.strip())
            if match is None:
                line = whole.count("\n", 0, start)
                column = start - (whole.rfind("\n", 0, start) + 1)
                raise _Syntax(
                    "what is given is an element of what is defined, a tensor or number: given h[-1] = h0",
                    *self._absolute(line + 1, column),
                )
            value: str | Number = match["name"] or (
                float(match["number"]) if set(match["number"]) & set(".eE") else int(match["number"])
            )
            found.append((match["of"], int(match["at"].replace(" ", "")), value))
        return tuple(found)

    def _absolute(self, line: int, column: int) -> tuple[int, int]:
        return self.line + line - 1, column + (self.column if line == 1 else 0)

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Line and column of `node` in the whole text, from 0; `ast` counts columns in bytes."""
        assert isinstance(node, ast.expr | ast.keyword)
        bytes_before = self.text.split("\n")[node.lineno - 1].encode()[: node.col_offset]
        return self._absolute(node.lineno, len(bytes_before.decode()))

    def segment(self, node: ast.AST) -> str:
        """The text of `node`, on one line and cut where it is long."""
        text = " ".join((ast.get_source_segment(self.text, node) or type(node).__name__).split())
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[Parsed, ...]:
    return tuple(Parsed(part, line, column) for part, line, column in _split(text))


def _split(text: str) -> Iterator[tuple[str, int, int]]:
    """Statements with line and column of their beginning: cut at newlines and `;` outside of brackets."""
    depth, start, n = 0, 0, 0
    quote = ""
    bounds = []
    while n < len(text):
        c = text[n]
        if quote:
            quote = "" if c == quote or c == "\n" else quote
        elif c in "\"'":
            quote = c
        elif c == "#":
            end = text.find("\n", n)
            n = len(text) if end < 0 else end
            continue
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(0, depth - 1)
        elif c == ";" or (c == "\n" and not depth and text[n - 1 : n] != "\\"):
            bounds.append((start, n))
            start, depth = n + 1, 0
        n += 1
    bounds.append((start, len(text)))
    for a, b in bounds:
        part = text[a:b]
        bare = part.lstrip()
        if bare and not all(line.strip() == "" or line.lstrip().startswith("#") for line in bare.splitlines()):
            a += len(part) - len(bare)
            yield bare.rstrip(), text.count("\n", 0, a), a - (text.rfind("\n", 0, a) + 1)

"""One statement's text as instructions for a stack of nodes: operands first, whatever the depth; nothing recurses."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from neoflow import dtype as dt
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS, REDUCERS, Function
from neoflow.expr.limits import MOST_EXTENT, MOST_RANK
from neoflow.expr.text.write import is_free_name, is_shared_name
from neoflow.text import Scanner, Token, is_real

MOST_NUMBER = 4095
"""The greatest number of an axis."""

_BINARY = {f.symbol: f for f in FUNCTIONS.values() if f.symbol and f.arity == 2}
_UNARY = {f.symbol: f for f in FUNCTIONS.values() if f.symbol and f.arity == 1}
_CALLED = {f.name: f for f in FUNCTIONS.values() if not f.symbol}
_REDUCERS = (*REDUCERS, *ARG_REDUCERS)


@dataclass(frozen=True)
class Instruction:
    """Take `count` nodes from the stack, put one on it.

    kind: const, axis, read, shared, apply, select, cast, reduce or scatter. name: the axis, what is read, the function,
    the reducer. axes: those that are bound.
    """

    kind: str
    token: Token
    count: int = 0
    name: str = ""
    dtype: str = ""
    value: int | float | bool = 0
    axes: tuple[str, ...] = ()


@dataclass
class Statement:
    """A compute as it stands in a text: `left` its axes, `extents` of all of them by name, `bodies` its expressions.

    bodies: under "" the value, then what `where` names, the outer ones first. reads, axes: the optional lists.
    """

    start: Token
    left: tuple[str, ...] = ()
    extents: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, list[Instruction]] = field(default_factory=dict)
    reads: tuple[str, ...] | None = None
    axes: tuple[str, ...] | None = None
    where: tuple[str, int] | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the tensors that are read, in the order of the text."""
        if self.reads is not None:
            return self.reads
        return tuple(dict.fromkeys(i.name for code in self.bodies.values() for i in code if i.kind == "read"))


def read_statement(scanner: Scanner, start: Token, labels: Collection[str]) -> Statement:
    """The rest of a statement after its label, to the end of its last line. labels: of the tensors that can be read."""
    s = Statement(start)
    if scanner.accept("["):
        s.left = _bound_axes(scanner, s)
    scanner.expect("=")
    s.bodies[""] = _Expression(scanner, s, labels).read()
    if scanner.accept("reads"):
        s.reads = _separated(scanner, lambda: scanner.name("the label of a tensor"))
    if scanner.accept("axes"):
        s.axes = _separated(scanner, lambda: scanner.string("the name of an axis"), scanner.token.kind == "string")
    s.where = read_place(scanner)
    scanner.end_of_line()
    while scanner.accept("where"):
        token = scanner.token
        name = scanner.name("the name of an expression, e0")
        if not is_shared_name(name) or name in s.bodies:
            scanner.refuse("the names of expressions are e0, e1 ..., each of one", token)
        scanner.expect("=")
        s.bodies[name] = _Expression(scanner, s, labels).read()
        scanner.end_of_line()
    return s


def read_place(scanner: Scanner) -> tuple[str, int] | None:
    """`@ "file":line`, if it is there."""
    if not scanner.accept("@"):
        return None
    file = scanner.string("the name of a file")
    scanner.expect(":")
    return file, scanner.number("the number of a line", MOST_EXTENT)


def _separated(scanner: Scanner, item: Callable[[], str], any_at_all: bool = True) -> tuple[str, ...]:
    found = [item()] if any_at_all else []
    while found and scanner.accept(","):
        found.append(item())
    return tuple(found)


def _bound_axes(scanner: Scanner, s: Statement) -> tuple[str, ...]:
    """`i<4, j<5]`; an axis that stands in several places has one extent, and hides a tensor of its name."""
    found: list[str] = []
    while not scanner.accept("]"):
        if found:
            scanner.expect(",")
        token = scanner.token
        if scanner.accept("#"):
            name = f"#{scanner.number('the number of an axis', MOST_NUMBER)}"
        else:
            name = scanner.name("the name of an axis")
            if not is_free_name(name):
                scanner.fail("an axis whose name is no word of the language", token)
        scanner.expect("<")
        extent = scanner.number("an extent", MOST_EXTENT)
        if extent < 1 or s.extents.setdefault(name, extent) != extent or name in found:
            scanner.refuse("an axis has one extent greater than 0 and is bound once at a time", token)
        found.append(name)
        if len(s.extents) > 8 * MOST_RANK or len(found) > MOST_RANK:
            scanner.refuse("there are too many axes", token)
    return tuple(found)


@dataclass
class _Open:
    """What is open around the place that is read.

    form: infix, prefix, group, call, read, cast, select, body (of a scatter), targets (of a scatter). function: of an
    operator. last: what is written when all `arguments` are read. most: how many there must be; -1 for any number.
    """

    form: str
    token: Token
    function: Function | None = None
    last: Instruction | None = None
    most: int = -1
    arguments: int = 0


class _Expression:
    """Reads one expression: operators wait on a stack until what binds tighter is written."""

    def __init__(self, scanner: Scanner, s: Statement, labels: Collection[str]):
        self.scanner, self.statement, self.labels = scanner, s, labels
        self.code: list[Instruction] = []
        self.open: list[_Open] = []

    def read(self) -> list[Instruction]:
        while True:
            while not self.operand():
                pass
            while True:
                if self.operator():
                    break
                self.close_operators(0)
                if not self.open:
                    return self.code
                if self.closer():
                    break

    # ----------------------------------------------------------------------------------------------------- operands

    def operand(self) -> bool:
        """Read what may begin an operand; whether it is one, rather than a sign or a bracket before one."""
        scanner, token = self.scanner, self.scanner.token
        if scanner.accept("("):
            self.open.append(_Open("group", token))
            return False
        if token.text == "-" and self.is_number(after := scanner.after()) and after.start == token.start + 1:
            scanner.next()
            self.constant(token, -1)
            return True
        if token.kind == "mark" and token.text in _UNARY:
            scanner.next()
            self.open.append(_Open("prefix", token, _UNARY[token.text]))
            return False
        if self.is_number(token) or token.text in ("nan", "True", "False"):
            self.constant(token, 1)
            return True
        if scanner.accept("#"):
            name = f"#{scanner.number('the number of an axis', MOST_NUMBER)}"
            if name not in self.statement.extents:
                scanner.refuse(f"axis {name} is not bound here", token)
            self.code.append(Instruction("axis", token, name=name))
            return True
        if scanner.accept("$"):
            return self.source(token, f"${scanner.number('the number of a slot', MOST_EXTENT)}")
        return self.named(token, scanner.name("an expression"))

    @staticmethod
    def is_number(token: Token) -> bool:
        return token.kind in ("integer", "real") or (token.kind == "name" and token.text == "inf")

    def constant(self, start: Token, sign: int, dtype: str = "") -> None:
        """A number or a truth value; of `dtype`, or of the type that a bare one has."""
        scanner, token = self.scanner, self.scanner.token
        value: int | float | bool
        if token.text in ("True", "False") and not dtype:
            value, own = token.text == "True", "bool"
            scanner.next()
        elif token.kind == "integer":
            value, own = sign * scanner.number("an integer", 1 << 63), dtype or dt.INDEX
            low, high = (-(1 << (8 * dt.itemsize(own) - 1)), (1 << (8 * dt.itemsize(own) - 1)) - 1)
            if not dt.is_int(own) or not low <= value <= high:
                scanner.refuse(f"{value} is no {own}", start)
        elif is_real(token):
            value, own = sign * scanner.real("a float"), dtype or "float32"
            if not dt.is_float(own):
                scanner.refuse(f"{value} is no {own}", start)
        else:
            scanner.fail("a number")
        self.code.append(Instruction("const", start, dtype=own, value=value))

    def source(self, token: Token, name: str) -> bool:
        """A read: of a whole tensor of rank 0, or with indices."""
        if not self.scanner.accept("["):
            self.code.append(Instruction("read", token, name=name))
            return True
        self.open.append(_Open("read", token, last=Instruction("read", token, name=name)))
        return False

    def named(self, token: Token, name: str) -> bool:
        scanner = self.scanner
        if name in self.statement.extents:
            self.code.append(Instruction("axis", token, name=name))
            return True
        if name in self.labels:
            return self.source(token, name)
        if is_shared_name(name):
            self.code.append(Instruction("shared", token, name=name))
            return True
        if name in dt.NUMPY:
            scanner.expect("(")
            sign = -1 if scanner.accept("-") else 1
            self.constant(token, sign, name)
            scanner.expect(")")
            return True
        if name in _REDUCERS or name == "scatter":
            axes = _bound_axes(scanner, self.statement) if scanner.accept("[") else ()
            if not axes and name != "scatter":
                scanner.refuse(f"{name} goes over at least one axis: {name}[r<4](...)", token)
            kind = "scatter" if name == "scatter" else "reduce"
            last = Instruction(kind, token, 1, name, axes=axes)
            self.open.append(_Open("body" if kind == "scatter" else "call", token, last=last, most=1))
        elif name == "select":
            self.open.append(_Open("call", token, last=Instruction("select", token, 3), most=3))
        elif name == "cast":
            self.open.append(_Open("cast", token, last=Instruction("cast", token, 1), most=1))
        elif name in _CALLED:
            arity = _CALLED[name].arity
            self.open.append(_Open("call", token, last=Instruction("apply", token, arity, name), most=arity))
        else:
            scanner.refuse(f"unknown name `{name}`: no axis that is bound here, no tensor above and no function", token)
        scanner.expect("(")
        return False

    # ------------------------------------------------------------------------------------------ operators and closers

    def operator(self) -> bool:
        """Pass an infix operator, after which an operand follows."""
        token = self.scanner.token
        f = _BINARY.get(token.text) if token.kind == "mark" else None
        if f is None:
            return False
        self.close_operators(f.precedence)
        if f.typing == "compare" and self.last_compares:
            self.scanner.refuse("comparisons do not chain; write (a < b) & (b < c)", token)
        self.scanner.next()
        self.open.append(_Open("infix", token, f))
        return True

    def close_operators(self, precedence: int) -> None:
        """Write the operators that bind at least as tightly."""
        self.last_compares = False
        while self.open and (f := self.open[-1].function) is not None and f.precedence >= precedence:
            o = self.open.pop()
            self.code.append(Instruction("apply", o.token, f.arity, f.name))
            self.last_compares = f.typing == "compare" and f.precedence == precedence

    def closer(self) -> bool:
        """Pass what ends an argument of the innermost bracket; whether another one follows."""
        scanner, o = self.scanner, self.open[-1]
        o.arguments += 1
        if o.form in ("read", "targets"):
            if scanner.accept(","):
                return True
            scanner.expect("]")
            if o.form == "targets":
                scanner.expect(")")
        elif o.form == "call" and o.arguments < o.most:
            scanner.expect(",")
            return True
        elif o.form == "body":
            for sign in (",", "at", "=", "["):
                scanner.expect(sign)
            if not scanner.at("]"):
                self.open[-1] = _Open("targets", o.token, last=o.last)
                return True
            scanner.next()
            scanner.expect(")")
            o.arguments = 0
        elif o.form == "cast":
            scanner.expect(",")
            if scanner.token.text not in dt.NUMPY:
                scanner.fail(f"a dtype ({', '.join(dt.NUMPY)})")
            o.last = Instruction("cast", o.token, 1, dtype=scanner.next().text)
            scanner.expect(")")
        else:
            scanner.expect(")")
        self.open.pop()
        if o.last is not None:
            last = o.last
            count = o.arguments if last.kind == "read" else last.count + (last.kind == "scatter") * o.arguments
            self.code.append(Instruction(last.kind, last.token, count, last.name, last.dtype, axes=last.axes))
        return False

"""Index notation: `y[i, j] = sum(x[i, k] * w[k, j])`, read with Python's `ast` and never evaluated.

    text       ::= statement { newline or ";" statement }
    statement  ::= name "[" index, ... "]" "=" expression    or    name "=" expression
    index      ::= name | name "<" extent
    expression ::= number | index name | parameter | tensor "[" expression, ... "]" | rank-0 tensor
                 | + - * / // % ** < <= > >= == != & | ~ and or not, chained comparisons, `a if c else b`
                 | function "(" expression, ... ")" | cast(expression, dtype) | select(condition, a, b)
                 | reducer "(" expression ")" | reducer "[" index, ... "]" "(" expression ")"

A reducer (sum prod max min argmax argmin) without axes goes over the index names that stand in its argument, outside
of reducers nested in it, and are neither on the left nor bound by a reducer around it. It builds what the Python
notation builds, through the same functions.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from neoflow.errors import ExpressionError, Location
from neoflow.expr import dsl, extents
from neoflow.expr import dtype as dt
from neoflow.expr.check import guarded_reads
from neoflow.expr.close import define
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS, REDUCERS
from neoflow.expr.ir import Axis, Const, Expr, Read, Select, caller, substitute
from neoflow.expr.tensor import Compute, Tensor

_REDUCERS = (*REDUCERS, *ARG_REDUCERS)
_NUMBERS = {"inf": float("inf"), "nan": float("nan")}
_SCALAR = {f.name: f.name for f in FUNCTIONS.values() if not f.symbol} | {
    "logical_and": "and",
    "logical_or": "or",
    "logical_not": "not",
    "equal": "eq",
    "not_equal": "ne",
}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}

Number = int | float | bool
Bindings = dict[str, Tensor | Number]


def expr(
    text: str,
    /,
    extents: Mapping[str, int] | None = None,
    name: str | None = None,
    outputs: list[str] | tuple[str, ...] | None = None,
    **bindings: Any,
) -> Any:
    """The tensor that the last statement of `text` defines, or a tuple of those named in `outputs`.

    extents: of index names, where the shapes do not tell or should not. name: of the last tensor. bindings: tensors
    and numbers by the names they have in `text`. Raises `ExpressionError` with the line and a caret under the place.
    """
    source = _Source(text, caller())
    env: Bindings = {key: _binding(key, value, source) for key, value in bindings.items()}
    given = {key: _extent(key, n, source) for key, n in (extents or {}).items()}
    statements = source.statements()
    defined: dict[str, Tensor] = {}
    used: set[str] = set()
    for n, statement in enumerate(statements):
        reader = _Statement(source, statement, env, given)
        last = n == len(statements) - 1
        tensor = reader.tensor((name or reader.name) if last else reader.name)
        used |= reader.axes.keys()
        env[reader.name] = defined[reader.name] = tensor
    for key in given:
        if key not in used:
            source.fail(f"extents gives `{key}`, which is no index here; the indices are {_listing(used)}")
    if outputs is None:
        return tensor
    for key in outputs:
        if key not in defined:
            source.fail(f"outputs asks for `{key}`, which the text does not define; it defines {_listing(defined)}")
    return tuple(defined[key] for key in outputs)


def _listing(names: Any) -> str:
    return ", ".join(f"`{n}`" for n in sorted(names)) or "none"


def _binding(key: str, value: Any, source: _Source) -> Tensor | Number:
    if isinstance(value, (Tensor, bool, int, float)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    source.fail(f"`{key}` is bound to a {type(value).__name__}; bind tensors (nf.placeholder ...) and numbers")


def _extent(key: str, value: Any, source: _Source) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0:
        return int(value)
    source.fail(f"extents gives `{key}` as {value!r}; an extent is an integer greater than 0")


# ------------------------------------------------------------------------------------------------------ the text


class _Source:
    """The text and the user's line, for messages."""

    def __init__(self, text: str, where: Location | None):
        if not isinstance(text, str):
            raise ExpressionError(f"index notation is a text, not {text!r}", where)
        self.text, self.where, self.lines = text, where, text.splitlines()

    def fail(self, message: str, line: int | None = None, column: int = 0) -> NoReturn:
        """Raise `ExpressionError`, with the line of text and a caret when a place is given (both from 0)."""
        if line is not None and line < len(self.lines):
            shown = self.lines[line].rstrip()
            left = len(shown) - len(shown.lstrip())
            message += f"\n    {shown.lstrip()}\n    {' ' * max(column - left, 0)}^"
        raise ExpressionError(message, self.where)

    def statements(self) -> tuple[_Parsed, ...]:
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


class _Parsed:
    """One assignment and where its text begins in the whole."""

    def __init__(self, text: str, line: int, column: int):
        self.text, self.line, self.column = text, line, column
        try:
            body = ast.parse(text).body
        except SyntaxError as e:
            found = e.msg[0].lower() + e.msg[1:]
            raise _Syntax(
                f"the text does not parse: {found}", *self._absolute(e.lineno or 1, (e.offset or 1) - 1)
            ) from None
        node = body[0]
        if len(body) != 1 or not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise _Syntax("a statement is an assignment: y[i, j] = expression", line, column)
        self.target, self.value = node.targets[0], node.value

    def _absolute(self, line: int, column: int) -> tuple[int, int]:
        return self.line + line - 1, column + (self.column if line == 1 else 0)

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Line and column of `node` in the whole text, from 0; `ast` counts columns in bytes."""
        line: int = node.lineno  # type: ignore[attr-defined]
        bytes_before = self.text.splitlines()[line - 1].encode()[: node.col_offset]  # type: ignore[attr-defined]
        return self._absolute(line, len(bytes_before.decode()))

    def segment(self, node: ast.AST) -> str:
        """The text of `node`, on one line."""
        return " ".join((ast.get_source_segment(self.text, node) or ast.unparse(node)).split())


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[_Parsed, ...]:
    return tuple(_Parsed(part, line, column) for part, line, column in _split(text))


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
            n = (text + "\n").index("\n", n)
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


# ------------------------------------------------------------------------------------------------- one statement


class _Statement:
    """Reads one assignment: names resolved, the expression built over axes of unknown extent, extents inferred."""

    def __init__(self, source: _Source, parsed: _Parsed, env: Bindings, given: Mapping[str, int]):
        self.source, self.parsed, self.env = source, parsed, env
        self.axes: dict[str, Axis] = {}
        self.sizes: dict[str, int] = {}
        self.reads: dict[Read, ast.Subscript] = {}
        self.scope: list[str] = []
        self.indices: set[str] = set()
        self.name, left = self._target(parsed.target)
        self.left = [self._index(node) for node in left]
        for n, node in enumerate(left):
            if self.left[n] in self.left[:n]:
                self.fail(node, f"index `{self.left[n]}` stands twice on the left")
        inside = self._indices_of(parsed.value)
        self.indices = {*self.left, *inside, *(key for key in given if key not in env)}
        self.given = given
        self.scope += self.left

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        self.source.fail(message, *self.parsed.place(node))

    # names

    def _target(self, node: ast.expr) -> tuple[str, list[ast.expr]]:
        if isinstance(node, ast.Name):
            name, left = node.id, []
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            name, left = node.value.id, _elements(node.slice)
        else:
            self.fail(node, f"`{self.parsed.segment(node)}` cannot be assigned to; write y[i, j] = ... or y = ...")
        if name in self.env:
            self.fail(node, f"`{name}` is already given; each tensor is defined once, take another name")
        return name, left

    def _index(self, node: ast.expr) -> str:
        """The name of an index on the left or of a reducer; `i < 4` notes its extent."""
        size: int | None = None
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            found = self.value(node.comparators[0]) if isinstance(node.left, ast.Name) else None
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                size = found
            else:
                self.fail(node.comparators[0], f"the extent of `{self.parsed.segment(node.left)}` is no integer > 0")
            node = node.left
        if not isinstance(node, ast.Name):
            self.fail(node, f"`{self.parsed.segment(node)}` is no index; write a name, or name < extent")
        if node.id in self.env:
            kind = "a tensor" if isinstance(self.env[node.id], Tensor) else "a parameter"
            self.fail(node, f"index `{node.id}` is also the name of {kind}; take another name")
        if size is not None and self.sizes.setdefault(node.id, size) != size:
            self.fail(node, f"`{node.id}` has extent {self.sizes[node.id]} elsewhere, here {size}")
        return node.id

    def _indices_of(self, root: ast.AST) -> set[str]:
        """Names that stand inside the brackets of a tensor or of a reducer and are not bound to anything."""
        names: set[str] = set()
        for node in ast.walk(root):
            if isinstance(node, ast.Subscript):
                names |= {n for n, _ in _names(node.slice) if n not in self.env}
        return names

    def axis(self, name: str) -> Axis:
        """The axis of an index name, of unknown extent."""
        if name not in self.axes:
            self.axes[name] = dsl.axis(extents.UNKNOWN, name)
        return self.axes[name]

    def _unknown(self, node: ast.Name) -> NoReturn:
        if node.id in self.indices:
            self.fail(
                node,
                f"index `{node.id}` is neither on the left nor inside a reduction over it; add it to the left or "
                f"write sum[{node.id}](...)",
            )
        if node.id == self.name:
            self.fail(node, f"`{node.id}` is being defined here and cannot be read")
        self.fail(node, f"unknown name `{node.id}`{self._suggestion(node.id, [*self.env, *self.indices])}")

    def _suggestion(self, name: str, known: list[str]) -> str:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        return f"; {hint}bound here: {_listing(self.env)}; bind it by keyword: {name}=..."

    # expressions

    def value(self, node: ast.expr) -> Expr | Number:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return node.value  # type: ignore[return-value]
            case ast.Name():
                return self._named(node)
            case ast.Subscript():
                return self._read(node)
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return self._binary(node, type(node.op), self.value(node.left), self.value(node.right))
            case ast.UnaryOp():
                return self._unary(node, self.value(node.operand))
            case ast.BoolOp():
                result = self.value(node.values[0])
                for other in node.values[1:]:
                    result = self._binary(node, type(node.op), result, self.value(other))
                return result
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                cond = self.value(node.test)
                if isinstance(cond, bool):
                    return self.value(node.body if cond else node.orelse)
                return self.build(node, dsl.select, cond, self.value(node.body), self.value(node.orelse))
            case ast.Call():
                return self._call(node)
        self.fail(node, f"`{self.parsed.segment(node)}` is not part of index notation{_hint(node)}")

    def build(self, node: ast.AST, function: Callable[..., Any], *args: Any) -> Any:
        """Apply a function of the Python notation; what it refuses is reported at `node`."""
        try:
            return function(*args)
        except ExpressionError as e:
            self.fail(node, _bare(e))
        except (ArithmeticError, TypeError, ValueError) as e:
            self.fail(node, f"`{self.parsed.segment(node)}` has no value: {e}")

    def _named(self, node: ast.Name) -> Expr | Number:
        if node.id in self.scope:
            return self.axis(node.id)
        bound = self.env.get(node.id, _NUMBERS.get(node.id))
        if bound is None:
            self._unknown(node)
        return self.build(node, dsl.as_expr, bound, dt.INDEX) if isinstance(bound, Tensor) else bound

    def _read(self, node: ast.Subscript) -> Expr:
        if not isinstance(node.value, ast.Name):
            self.fail(node, f"`{self.parsed.segment(node.value)}` is no tensor and cannot be indexed")
        name = node.value.id
        tensor = self.env.get(name)
        if name in _REDUCERS and tensor is None:
            self.fail(node, f"`{self.parsed.segment(node)}` lacks its argument: {name}[k](...)")
        if tensor is None:
            self._unknown(node.value)
        if not isinstance(tensor, Tensor):
            self.fail(node, f"`{name}` is the number {tensor!r} and cannot be indexed")
        for index in _elements(node.slice):
            if isinstance(index, (ast.Slice, ast.Starred)):
                self.fail(index, "slices are not part of index notation; name an index for each dimension")
        read = self.build(node, dsl.read, tensor, [self.value(e) for e in _elements(node.slice)])
        self.reads.setdefault(read, node)
        return read

    def _binary(self, node: ast.AST, op: type[ast.AST], a: Expr | Number, b: Expr | Number) -> Expr | Number:
        numbers = not isinstance(a, Expr) and not isinstance(b, Expr)
        if op in (ast.And, ast.Or, ast.BitAnd, ast.BitOr) and numbers and not (type(a) is type(b) is bool):
            self.fail(node, f"`{self.parsed.segment(node)}` joins numbers; and, or, & and | join conditions")
        if op is ast.Pow and numbers and abs(b) > 64:
            self.fail(node, f"the power of numbers `{self.parsed.segment(node)}` is too large")
        return self.build(node, _OPERATORS[op], a, b)

    def _unary(self, node: ast.UnaryOp, a: Expr | Number) -> Expr | Number:
        if isinstance(node.op, (ast.Not, ast.Invert)):
            if isinstance(a, bool):
                return not a
            return self.build(node, dsl.logical_not, a)
        return a if isinstance(node.op, ast.UAdd) else self.build(node, operator.neg, a)

    def _compare(self, node: ast.Compare) -> Expr | Number:
        terms = [self.value(n) for n in (node.left, *node.comparators)]
        result: Expr | Number | None = None
        for op, a, b in zip(node.ops, terms, terms[1:], strict=False):
            if type(op) not in _OPERATORS:
                self.fail(node, f"`{self.parsed.segment(node)}` is not part of index notation; compare numbers")
            link = self._binary(node, type(op), a, b)
            result = link if result is None else self._binary(node, ast.And, result, link)
        assert result is not None
        return result

    def _call(self, node: ast.Call) -> Expr | Number:
        function = node.func
        if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name):
            if function.value.id not in _REDUCERS:
                self.fail(node, f"`{function.value.id}` is no reducer; the reducers are {', '.join(_REDUCERS)}")
            return self._reduce(node, function.value.id, _elements(function.slice))
        if not isinstance(function, ast.Name):
            self.fail(node, f"`{self.parsed.segment(function)}` is not a function of index notation")
        name = function.id
        if name in _REDUCERS:
            return self._reduce(node, name, None)
        if name == "cast":
            return self._cast(node)
        for keyword in node.keywords:
            self.fail(keyword, f"{name} takes its arguments by position")
        if name in ("select", "where"):
            if len(node.args) != 3:
                self.fail(node, f"{name} takes a condition and two values, got {len(node.args)} arguments")
            return self.build(node, dsl.select, *(self.value(a) for a in node.args))
        if name not in _SCALAR:
            known = [*_SCALAR, *_REDUCERS, "select", "where", "cast"]
            if name in self.env:
                self.fail(node, f"`{name}` is a tensor or a number, no function; read a tensor with {name}[i]")
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean `{close[0]}`? " if close else ""
            self.fail(node, f"unknown function `{name}`; {hint}the functions are {', '.join(sorted(known))}")
        arity = FUNCTIONS[_SCALAR[name]].arity
        if len(node.args) != arity:
            self.fail(node, f"{name} takes {arity} argument{'s' * (arity > 1)}, got {len(node.args)}")
        return self.build(node, dsl.scalar, _SCALAR[name], *(self.value(a) for a in node.args))

    def _cast(self, node: ast.Call) -> Expr:
        args = [*node.args, *(k.value for k in node.keywords if k.arg == "dtype")]
        if len(args) != 2 or len(args) != len(node.args) + len(node.keywords):
            self.fail(node, 'cast takes an expression and a dtype: cast(x[i], "float32")')
        target = args[1].id if isinstance(args[1], ast.Name) else getattr(args[1], "value", None)
        if target not in dt.NUMPY:
            self.fail(args[1], f"`{self.parsed.segment(args[1])}` is not one of {', '.join(dt.NUMPY)}")
        return self.build(node, dsl.cast, self.value(args[0]), target)

    def _reduce(self, node: ast.Call, op: str, explicit: list[ast.expr] | None) -> Expr:
        if explicit is None and len(node.keywords) == 1 and node.keywords[0].arg == "axis":
            value = node.keywords[0].value
            explicit = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
        elif node.keywords:
            self.fail(node.keywords[0], f"{op} takes axis=[...] and nothing else by keyword")
        if len(node.args) != 1:
            more = {"max": "; the larger of two is maximum(a, b)", "min": "; the smaller of two is minimum(a, b)"}
            self.fail(node, f"{op} takes one argument, got {len(node.args)}{more.get(op, '')}")
        if explicit is None:
            over = list(self._direct(node.args[0]))
            if not over:
                self.fail(
                    node,
                    f"{op} has nothing to go over: every index in its argument is on the left or bound elsewhere; "
                    f"name its axes: {op}[k](...)",
                )
        else:
            over = [self._index(n) for n in explicit]
            for name, place in zip(over, explicit, strict=True):
                if name in self.scope:
                    why = "is on the left" if name in self.left else f"is bound by a reduction around this {op}"
                    self.fail(place, f"{op} goes over `{name}`, which {why}; take another name")
        self.scope += over
        axes = [self.axis(name) for name in over]
        body = self.value(node.args[0])
        del self.scope[len(self.scope) - len(over) :]
        return self.build(node, dsl.reduction, op, body, axes)

    def _direct(self, argument: ast.expr) -> dict[str, None]:
        """Free index names of a reducer's argument, in the order of the text, not looking into nested reducers."""
        return {n: None for n, _ in _names(argument) if n in self.indices and n not in self.scope}

    # the whole

    def tensor(self, name: str) -> Compute:
        axes = [self.axis(n) for n in self.left]
        body = dsl.as_expr(self.value(self.parsed.value), "float32")
        sized: dict[Expr, Expr] = {
            self.axes[key]: dsl.axis(n, key) for key, n in self._extents(body).items() if key in self.axes
        }
        closed = substitute(body, sized)
        outer: tuple[Axis, ...] = tuple(sized[a] for a in axes)  # type: ignore[misc]
        try:
            return define(tuple(a.extent for a in outer), outer, closed, name, self.source.where)
        except ExpressionError as e:
            places = {substitute(read, sized): node for read, node in self.reads.items()}
            self.fail(_culprit(closed, places) or self.parsed.target, _bare(e))

    def _extents(self, body: Expr) -> dict[str, int]:
        known = {self.axes[k]: n for k, n in {**self.given, **self.sizes}.items() if k in self.axes}
        for key, n in self.sizes.items():
            if self.given.get(key, n) != n:
                self.fail(self.parsed.target, f"`{key}` has extent {n} here and {self.given[key]} in extents")
        try:
            found = extents.infer(self.axes.values(), extents.uses(body), known)
        except extents.Disagreement as e:
            a, b = e.first, e.second
            self.fail(
                self.reads[b.read].slice,
                f"index `{e.axis.name}` has extent {a.extent} in dimension {a.position} of {_source(a)} and {b.extent} "
                f"in dimension {b.position} of {_source(b)}; they must agree, or give extents={{'{e.axis.name}': n}}",
            )
        except extents.Empty as e:
            use = e.use
            self.fail(
                self.reads[use.read],
                f"no extent of `{e.axis.name}` keeps index {use.position} of {_source(use)}, `{use.index}`, "
                f"inside its extent {use.extent}; guard the read with select and give "
                f"extents={{'{e.axis.name}': n}}, or change the shapes",
            )
        for name, axis in self.axes.items():
            if axis not in found:
                self.fail(
                    self._first(name),
                    f"the extent of index `{name}` cannot be inferred: it stands in no read that determines it; "
                    f"give extents={{'{name}': n}}",
                )
        return {name: found[axis] for name, axis in self.axes.items()}

    def _first(self, name: str) -> ast.AST:
        for root in (self.parsed.value, self.parsed.target):
            for found, node in _names(root):
                if found == name:
                    return node
        return self.parsed.target


def _bare(e: ExpressionError) -> str:
    """The message of an error without the file and line it begins with."""
    text = str(e)
    return text.split(f":{e.where[1]}: ", 1)[-1] if e.where else text


def _source(use: extents.Use) -> str:
    return f"{getattr(use.read.source, 'name', '')} {use.read.source.shape}"


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _reducer(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return isinstance(function, ast.Name) and function.id in _REDUCERS


def _names(root: ast.AST) -> list[tuple[str, ast.Name]]:
    """Names read under `root`, in the order of the text: no functions, no tensors indexed, nothing in reducers."""
    found: list[ast.Name] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            found.append(node)
        elif isinstance(node, ast.Call):
            stack += [] if _reducer(node) else node.args
        elif isinstance(node, ast.Subscript):
            stack.append(node.slice)
        else:
            stack += ast.iter_child_nodes(node)
    return [(n.id, n) for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))]


def _hint(node: ast.AST) -> str:
    match node:
        case ast.Attribute():
            return "; bind the value by keyword instead"
        case ast.Tuple() | ast.List():
            return "; an expression is one scalar"
        case ast.BinOp(op=ast.MatMult()):
            return "; write sum(x[i, k] * w[k, j])"
        case ast.BinOp(op=ast.BitXor()):
            return "; write != between conditions, ** for powers"
    return ""


def _culprit(body: Expr, places: dict[Any, ast.Subscript]) -> ast.AST | None:
    """The read whose bounds cannot be proved by itself, under its own conditions."""
    for read, guards in guarded_reads(body):
        element: Expr = read
        for guard in guards:
            element = Select(guard, element, Const(0, read.dtype))
        axes = tuple(sorted(element.free, key=lambda a: a.uid))
        try:
            define(tuple(a.extent for a in axes), axes, element, "read")
        except ExpressionError:
            return places.get(read)
    return None

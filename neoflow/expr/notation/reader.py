"""The expression of one statement: names resolved, the functions of the Python notation applied."""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn

from neoflow import dtype as dt
from neoflow.errors import ExpressionError, shown
from neoflow.expr import dsl, extents, reducers, typed
from neoflow.expr.deep import Walk, run
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.expr.notation.syntax import BINDER_NAMES, REDUCER_NAMES, elements, hint, names_in
from neoflow.expr.notation.text import Parsed, Source
from neoflow.expr.tensor import Tensor

_CONDITIONS = 1000
"""Most comparisons in a chain, and conditions joined by one `and` or `or`: they take about half a second."""
_BITS = 1024
"""Most bits of an integer that numbers of a text make: what a float can hold."""
_NAMES = 20
"""Most names that a message lists."""
_SCATTER = "scatter[b](x[b], at=[ids[b]])"
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
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.And: dsl.logical_and,
    ast.Or: dsl.logical_or,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}

_COMPOSED: dict[str, tuple[Callable[..., Any], int]] = {
    "bitwise_and": (dsl.bitwise_and, 2),
    "bitwise_not": (dsl.bitwise_not, 1),
    "bitwise_or": (dsl.bitwise_or, 2),
    "bitwise_xor": (dsl.bitwise_xor, 2),
    "clip": (dsl.clip, 3),
}
"""Functions of the Python notation that are more than a row of the table, and how many arguments they take."""
_DERIVED: dict[str, Callable[..., Any]] = {
    "mean": dsl.mean,
    "any": reducers.any,
    "all": reducers.all,
    "var": reducers.var,
    "std": reducers.std,
}
"""Reducers made of those of the grammar."""
_COUNTING = ("mean", "var", "std")
"""Those that divide by how many values they take."""

Number = int | float | bool
Bindings = dict[str, Tensor | Number]


def listing(names: Iterable[str]) -> str:
    """Names for a message."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMES} more" if len(ordered) > _NAMES else ""
    return ", ".join(f"`{n}`" for n in ordered[:_NAMES]) + more or "none"


def _did_you_mean(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean `{close[0]}`? " if close else ""


class Reader:
    """Reads the two sides of a statement, over axes of unknown extent, or of those in `known`.

    name, left: what the left side defines, and its indices. axes: by name, made when first met. sizes: extents that
    the text says, `i < 4`. reads: where each stands in the text. scope: index names that have a value at this place.
    is_scatter: reading what a scatter adds. indices: every index name of the statement, for messages and for reducers
    that name no axes. counts: whether something divides by the extents of axes; while these are not known, a sum
    stands in its place.
    """

    def __init__(
        self,
        source: Source,
        parsed: Parsed,
        env: Bindings,
        given: Iterable[str],
        known: Mapping[str, int] | None = None,
    ):
        self.source, self.parsed, self.env, self.known = source, parsed, env, known
        self.counts = False
        self.axes: dict[str, Axis] = {}
        self.sizes: dict[str, int] = {}
        self.reads: dict[Read, ast.Subscript] = {}
        self.scope: list[str] = []
        self.is_scatter = False
        self.indices: set[str] = set()
        self.name, left = self._target(parsed.target)
        self.left = [self._index(node) for node in left]
        for n, name in enumerate(self.left):
            if name in self.left[:n]:
                self.fail(left[n], f"index `{name}` stands twice on the left")
        self.indices = {*self.left, *self._indices_of(parsed.value), *(key for key in given if key not in env)}
        self.scope += self.left

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Raise `ExpressionError` with the line of text and a caret under `node`."""
        self.source.fail(message, *self.parsed.place(node))

    # ------------------------------------------------------------------------------------------------------ names

    def _target(self, node: ast.expr) -> tuple[str, list[ast.expr]]:
        if isinstance(node, ast.Name):
            name, left = node.id, []
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            name, left = node.value.id, elements(node.slice)
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
                names |= {n.id for n in names_in(node.slice) if n.id not in self.env}
        return names

    def axis(self, name: str) -> Axis:
        """The axis of an index name, of unknown extent."""
        if name not in self.axes:
            self.axes[name] = dsl.axis((self.known or {}).get(name, extents.UNKNOWN), name)
        return self.axes[name]

    def _unknown(self, node: ast.Name) -> NoReturn:
        if node.id in self.indices and self.is_scatter:
            self.fail(node, f"index `{node.id}` has no value here; a scatter reads the indices it names: {_SCATTER}")
        if node.id in self.indices:
            self.fail(
                node,
                f"index `{node.id}` is neither on the left nor inside a reduction over it; add it to the left or "
                f"write sum[{node.id}](...)",
            )
        if node.id == self.name:
            self.fail(node, f"`{node.id}` is being defined here and cannot be read")
        meant, name = _did_you_mean(node.id, [*self.env, *self.indices]), self.parsed.segment(node)
        self.fail(
            node,
            f"unknown name `{name}`; {meant}bound here: {listing(self.env)}; bind it by keyword: {name}=...",
        )

    # ------------------------------------------------------------------------------------------------ expressions

    def value(self, node: ast.expr) -> Expr | Number:
        """What an expression of any depth means."""
        return run(self.walk(node))

    def walk(self, node: ast.expr) -> Walk[Expr | Number]:
        """`value`, for walks."""
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return self._number(node, number)
            case ast.Name():
                return self._named(node)
            case ast.Subscript():
                return (yield from self._read(node))
            case ast.BinOp() if type(node.op) in _OPERATORS:
                left = yield self.walk(node.left)
                return self._binary(node, type(node.op), left, (yield self.walk(node.right)))
            case ast.UnaryOp():
                return self._unary(node, (yield self.walk(node.operand)))
            case ast.BoolOp():
                self._few(node, len(node.values))
                result = yield self.walk(node.values[0])
                for other in node.values[1:]:
                    result = self._binary(node, type(node.op), result, (yield self.walk(other)))
                return result
            case ast.Compare():
                return (yield from self._compare(node))
            case ast.IfExp():
                return (yield from self._choice(node))
            case ast.Call():
                return (yield from self._call(node))
        self.fail(node, f"`{self.parsed.segment(node)}` is not part of index notation{hint(node)}")

    def _walks(self, nodes: Iterable[ast.expr]) -> Walk[list[Expr | Number]]:
        found: list[Expr | Number] = []
        for node in nodes:
            found.append((yield self.walk(node)))
        return found

    def _choice(self, node: ast.IfExp) -> Walk[Expr | Number]:
        cond = yield self.walk(node.test)
        if isinstance(cond, bool):
            return (yield self.walk(node.body if cond else node.orelse))
        branches = yield from self._walks((node.body, node.orelse))
        return self.build(node, dsl.select, cond, *branches)

    def build(self, node: ast.AST, function: Callable[..., Any], *args: Any) -> Any:
        """Apply a function of the Python notation; what it refuses is reported at `node`."""
        try:
            return function(*args)
        except ExpressionError as e:
            self.fail(node, e.message)
        except (ArithmeticError, TypeError, ValueError) as e:
            self.fail(node, f"`{self.parsed.segment(node)}` has no value: {e}")

    def _named(self, node: ast.Name) -> Expr | Number:
        if node.id in self.scope:
            return self.axis(node.id)
        bound = self.env.get(node.id, _NUMBERS.get(node.id))
        if bound is None:
            self._unknown(node)
        return (
            self.build(node, typed.as_expr, bound, dt.INDEX) if isinstance(bound, Tensor) else self._number(node, bound)
        )

    def _read(self, node: ast.Subscript) -> Walk[Expr]:
        if not isinstance(node.value, ast.Name):
            self.fail(node, f"`{self.parsed.segment(node.value)}` is no tensor and cannot be indexed")
        name = node.value.id
        tensor = self.env.get(name)
        if name in BINDER_NAMES and tensor is None:
            self.fail(node, f"`{self.parsed.segment(node)}` lacks its argument: {name}[k](...)")
        if tensor is None:
            self._unknown(node.value)
        if not isinstance(tensor, Tensor):
            self.fail(node, f"`{name}` is the number {tensor!r} and cannot be indexed")
        for index in elements(node.slice):
            if isinstance(index, (ast.Slice, ast.Starred)):
                self.fail(index, "slices are not part of index notation; name an index for each dimension")
        read = self.build(node, dsl.read, tensor, (yield from self._walks(elements(node.slice))))
        self.reads.setdefault(read, node)
        return read

    def _binary(self, node: ast.AST, op: type[ast.AST], a: Expr | Number, b: Expr | Number) -> Expr | Number:
        numbers = not isinstance(a, Expr) and not isinstance(b, Expr)
        if op in (ast.And, ast.Or, ast.BitAnd, ast.BitOr) and numbers and not (type(a) is type(b) is bool):
            self.fail(node, f"`{self.parsed.segment(node)}` joins numbers; and, or, & and | join conditions")
        if op is ast.Pow and numbers and abs(b) > 64:
            self.fail(node, f"the power of numbers `{self.parsed.segment(node)}` is too large")
        if op is ast.LShift and numbers and b > 64:
            self.fail(node, f"the shifted number `{self.parsed.segment(node)}` is too large")
        if op in (ast.And, ast.Or) and numbers:
            return (a and b) if op is ast.And else (a or b)
        result = self.build(node, _OPERATORS[op], a, b)
        return self._number(node, result) if numbers else result

    def _number(self, node: ast.AST, value: Number) -> Number:
        """A number of the text, which is not so large that arithmetic with it takes long."""
        if not isinstance(value, (bool, int, float)):
            self.fail(node, f"`{self.parsed.segment(node)}` is {shown(value)}, which is no real number")
        if isinstance(value, int) and value.bit_length() > _BITS:
            self.fail(node, f"the number `{self.parsed.segment(node)}` is too large: it has {value.bit_length()} bits")
        return value

    def _unary(self, node: ast.UnaryOp, a: Expr | Number) -> Expr | Number:
        if isinstance(node.op, (ast.Not, ast.Invert)):
            if isinstance(a, bool):
                return not a
            return self.build(node, dsl.logical_not if isinstance(node.op, ast.Not) else dsl.bitwise_not, a)
        return a if isinstance(node.op, ast.UAdd) else self.build(node, operator.neg, a)

    def _few(self, node: ast.AST, conditions: int) -> None:
        """Each condition of a chain holds under all before it: the time to look at them grows with their square."""
        if conditions > _CONDITIONS:
            self.fail(node, f"a chain of {conditions} conditions is too long: at most {_CONDITIONS}")

    def _compare(self, node: ast.Compare) -> Walk[Expr | Number]:
        self._few(node, len(node.ops))
        terms = yield from self._walks((node.left, *node.comparators))
        result: Expr | Number | None = None
        for op, a, b in zip(node.ops, terms, terms[1:], strict=False):
            if type(op) not in _OPERATORS:
                self.fail(node, f"`{self.parsed.segment(node)}` is not part of index notation; compare numbers")
            link = self._binary(node, type(op), a, b)
            result = link if result is None else self._binary(node, ast.And, result, link)
        assert result is not None
        return result

    def _call(self, node: ast.Call) -> Walk[Expr | Number]:
        function = node.func
        if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name):
            if function.value.id == "scatter":
                return (yield from self._scatter(node, elements(function.slice)))
            if function.value.id not in REDUCER_NAMES:
                self.fail(node, f"`{function.value.id}` is no reducer; the reducers are {', '.join(REDUCER_NAMES)}")
            return (yield from self._reduce(node, function.value.id, elements(function.slice)))
        if not isinstance(function, ast.Name):
            self.fail(node, f"`{self.parsed.segment(function)}` is not a function of index notation")
        name = function.id
        if name in REDUCER_NAMES:
            return (yield from self._reduce(node, name, None))
        if name == "scatter":
            return (yield from self._scatter(node, []))
        if name == "cast":
            return (yield from self._cast(node))
        for keyword in node.keywords:
            self.fail(keyword, f"{name} takes its arguments by position")
        if name in ("select", "where"):
            if len(node.args) != 3:
                self.fail(node, f"{name} takes a condition and two values, got {len(node.args)} arguments")
            return self.build(node, dsl.select, *(yield from self._walks(node.args)))
        if name in _COMPOSED:
            return (yield from self._applied(node, name, *_COMPOSED[name]))
        if name not in _SCALAR:
            known = [*_SCALAR, *_COMPOSED, *BINDER_NAMES, "select", "where", "cast"]
            if name in self.env:
                self.fail(node, f"`{name}` is a tensor or a number, no function; read a tensor with {name}[i]")
            meant, name = _did_you_mean(name, known), self.parsed.segment(function)
            self.fail(
                node,
                f"unknown function `{name}`; {meant}the functions are {', '.join(sorted(known))}",
            )
        fn = _SCALAR[name]
        return (yield from self._applied(node, name, partial(typed.scalar, fn), FUNCTIONS[fn].arity))

    def _applied(self, node: ast.Call, name: str, function: Callable[..., Any], arity: int) -> Walk[Expr]:
        if len(node.args) != arity:
            self.fail(node, f"{name} takes {arity} argument{'s' * (arity > 1)}, got {len(node.args)}")
        return self.build(node, function, *(yield from self._walks(node.args)))

    def _cast(self, node: ast.Call) -> Walk[Expr]:
        args = [*node.args, *(k.value for k in node.keywords if k.arg == "dtype")]
        if len(args) != 2 or len(args) != len(node.args) + len(node.keywords):
            self.fail(node, 'cast takes an expression and a dtype: cast(x[i], "float32")')
        target = args[1].id if isinstance(args[1], ast.Name) else getattr(args[1], "value", None)
        if target not in dt.NUMPY:
            self.fail(args[1], f"`{self.parsed.segment(args[1])}` is not one of {', '.join(dt.NUMPY)}")
        return self.build(node, dsl.cast, (yield self.walk(args[0])), target)

    def _reduce(self, node: ast.Call, op: str, explicit: list[ast.expr] | None) -> Walk[Expr]:
        if explicit is None and len(node.keywords) == 1 and node.keywords[0].arg == "axis":
            value = node.keywords[0].value
            explicit = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
        elif node.keywords:
            self.fail(node.keywords[0], f"{op} takes axis=[...] and nothing else by keyword")
        if len(node.args) != 1:
            more = {"max": "; the larger of two is maximum(a, b)", "min": "; the smaller of two is minimum(a, b)"}
            self.fail(node, f"{op} takes one argument, got {len(node.args)}{more.get(op, '')}")
        if explicit is None:
            over = self._direct(node.args[0])
            if not over:
                yield self.walk(node.args[0])  # what is wrong inside is said first
                self.fail(
                    node,
                    f"{op} has nothing to go over: every index in its argument is on the left or bound elsewhere; "
                    f"name its axes: {op}[k](...)",
                )
        else:
            over = self._bound(op, explicit)
        self.scope += over
        axes = [self.axis(name) for name in over]
        body = yield self.walk(node.args[0])
        del self.scope[len(self.scope) - len(over) :]
        if op in _COUNTING and self.known is None:
            self.counts, op = True, "sum"
        if op in _DERIVED:
            return self.build(node, _DERIVED[op], body, axes)
        return self.build(node, dsl.reduction, op, body, axes)

    def _scatter(self, node: ast.Call, explicit: list[ast.expr]) -> Walk[Expr]:
        at = node.keywords[0].value if [k.arg for k in node.keywords] == ["at"] else None
        if len(node.args) != 1 or not isinstance(at, (ast.List, ast.Tuple)):
            self.fail(node, f"scatter takes a value, and where it is added: {_SCATTER}")
        if node is not self.parsed.value:
            self.fail(node, "a scatter is the whole right side of a statement; define what it gives as a tensor first")
        self.scope, self.is_scatter = self._bound("scatter", explicit), True
        axes = [self.axis(name) for name in self.scope]
        value = yield self.walk(node.args[0])
        return self.build(node, dsl.scattered, axes, (yield from self._walks(at.elts)), value)

    def _bound(self, op: str, explicit: list[ast.expr]) -> list[str]:
        """The index names in the brackets of a reducer or a scatter, new in this place."""
        over = [self._index(n) for n in explicit]
        for name, place in zip(over, explicit, strict=True):
            if name in self.scope:
                why = "is on the left" if name in self.left else f"is bound by a reduction around this {op}"
                self.fail(place, f"{op} goes over `{name}`, which {why}; take another name")
        return over

    def _direct(self, argument: ast.expr) -> list[str]:
        """Free index names of a reducer's argument, in the order of the text, not looking into nested reducers."""
        found = (n.id for n in names_in(argument))
        return [n for n in dict.fromkeys(found) if n in self.indices and n not in self.scope]

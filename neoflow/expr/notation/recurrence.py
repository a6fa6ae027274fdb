"""Statements that read what they define: `h[t, i] = tanh(sum(h[t-1, j] * w[j, i]) + x[t, i]) given h[-1] = h0`.

They become one `nf.scan` over their first index. In a step stand, in the place of what the text reads there:

    h[t-2, j]        what was carried two steps ago; `given` says what there was before the first step
    h[t, j]          of another of these statements, above: what this step has computed
    x[t, j]          the slice of the step;  x[2*t + 1, j]: of a tensor that has these rows
    h[s, j], s < t   any part of the past, where it is proved to be one: all rows so far are carried
    t                its number

A recurrence that reads h[t+1] begins with the last step: `given h[8] = h0` where t < 8.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neoflow.errors import ExpressionError
from neoflow.expr.constant import constant
from neoflow.expr.dsl import broadcast_shapes, cast, compute, placeholder, select
from neoflow.expr.notation.reader import Bindings, listing
from neoflow.expr.notation.statement import Statement
from neoflow.expr.notation.syntax import elements
from neoflow.expr.notation.text import Parsed, Source
from neoflow.expr.scan import scan
from neoflow.expr.shape.fill import arange, full
from neoflow.expr.shape.join import concat, stack
from neoflow.expr.shape.rearrange import broadcast_to, moveaxis
from neoflow.expr.tensor import Tensor

STEP = "step number"
"""The name of the number of the step; no text can write it."""
_PAST = "the past of"


def target_of(parsed: Parsed) -> tuple[str, list[ast.expr]]:
    """The name that a statement defines, and what stands between its brackets."""
    node = parsed.target
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return node.value.id, elements(node.slice)
    return (node.id, []) if isinstance(node, ast.Name) else ("", [])


def groups(statements: Sequence[Parsed], bound: Mapping[str, object]) -> list[list[Parsed]]:
    """The statements in order, those together that need one another, directly or not."""
    names = [target_of(s)[0] for s in statements]
    reads = [{n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)} for s in statements]
    found: list[list[Parsed]] = []
    n = 0
    while n < len(statements):
        end = n
        later = [m for m in range(n, len(statements)) if names[m] in reads[n] and statements[m].given]
        is_read_before = names[n] in names[:n] or names[n] in bound
        if statements[n].given or (later and not is_read_before and names[later[-1]] not in (*names[:n], *bound)):
            end = max([n, *later])
            m = n
            while m <= end:
                end = max(
                    [end, *(k for k in range(m, len(statements)) if names[k] in reads[m] and statements[k].given)]
                )
                m += 1
        found.append(list(statements[n : end + 1]))
        n = end + 1
    return found


@dataclass(frozen=True)
class _Row:
    """A part of a tensor of which a step reads one row: the tensor's name, the place of the index, the index."""

    source: str
    place: int
    index: str


class Recurrence:
    """Statements that are one recurrence."""

    def __init__(self, source: Source, parts: Sequence[Parsed], env: Bindings, extents: Mapping[str, int]):
        self.source, self.parts, self.env, self.extents = source, parts, env, extents
        self.names = [target_of(p)[0] for p in parts]
        self.time = self._time()
        self.rows: dict[_Row, ast.expr] = {}
        self.lags: dict[str, set[int]] = {}
        self.past: set[str] = set()
        for p in parts:
            _Look(self, p).visit(p.value)
        ahead = {k > 0 for lags in self.lags.values() for k in lags}
        self.is_reversed = ahead == {False} and any(lags for lags in self.lags.values())
        if len(ahead) > 1 or (self.is_reversed and self.past):
            self.fail(parts[0], "a recurrence reads earlier steps or later ones, not both")
        self.steps = self._steps()
        self.first = {name: self._given(p, name) for p, name in zip(parts, self.names, strict=True)}

    def fail(self, p: Parsed, message: str, node: ast.AST | None = None) -> None:
        self.source.fail(message, *p.place(node or p.target))

    def _time(self) -> str:
        names = []
        for p in self.parts:
            left = target_of(p)[1]
            node = left[0] if left else None
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
                node = node.left
            if not isinstance(node, ast.Name):
                self.fail(p, "the first index of a recurrence numbers its steps: h[t, i] = ... given h[-1] = h0")
            assert isinstance(node, ast.Name)
            names.append(node.id)
        for p, name in zip(self.parts, names, strict=True):
            if name != names[0]:
                self.fail(p, f"statements that need one another go over one first index, not `{names[0]}` and `{name}`")
        return names[0]

    def _steps(self) -> int:
        """The number of steps: said, or that of what is read at the step itself."""
        found: dict[int, str] = {}
        if self.time in self.extents:
            found[self.extents[self.time]] = "extents"
        for p in self.parts:
            first = target_of(p)[1][0]
            if isinstance(first, ast.Compare) and isinstance(first.comparators[0], ast.Constant):
                said = first.comparators[0].value
                if isinstance(said, int):
                    found.setdefault(said, f"`{p.segment(first)}`")
        for row in self.rows:
            tensor = self.env[row.source]
            if row.index == self.time and isinstance(tensor, Tensor):
                found.setdefault(tensor.shape[row.place], row.source)
        if len(found) > 1:
            (a, one), (b, other), *_ = found.items()
            self.fail(self.parts[0], f"`{self.time}` has extent {a} by {one} and {b} by {other}; they must agree")
        if not found:
            self.fail(
                self.parts[0],
                f"the extent of index `{self.time}` cannot be inferred: nothing is read at it alone; give "
                f"extents={{'{self.time}': n}}",
            )
        return next(iter(found))

    def _given(self, p: Parsed, name: str) -> list[Tensor]:
        """What there was before the first step: one step ago, two steps ago, ..."""
        lags = self.lags.get(name, set())
        needed = max(map(abs, lags), default=0)
        said: dict[int, Tensor] = {}
        for own, at, value in p.given:
            lag = self.steps - 1 - at if self.is_reversed else at
            if own != name or lag >= 0:
                what = f"{own}[{self.steps}]" if self.is_reversed else f"{name}[-1]"
                self.fail(p, f"`given` says what there was before the first step: {what} = ..., not {own}[{at}]")
            tensor = self.env.get(value) if isinstance(value, str) else value
            if tensor is None:
                self.fail(p, f"`given` names `{value}`, which is not bound; bound are {listing(self.env)}")
            said[-lag] = tensor if isinstance(tensor, Tensor) else constant(tensor)
        if name in self.past:
            needed = max(needed, max(said, default=0))
        missing = [k for k in range(1, needed + 1) if k not in said]
        if missing:
            at = self.steps - 1 + missing[0] if self.is_reversed else -missing[0]
            self.fail(p, f"`{name}` of step {at} is read: say what it is, `given {name}[{at}] = ...`")
        shape = broadcast_shapes(*(said[k] for k in sorted(said)))
        return [said[k] if said[k].shape == shape else broadcast_to(said[k], shape) for k in range(1, needed + 1)]

    # ------------------------------------------------------------------------------------------------------ the scan

    def tensors(self) -> dict[str, Tensor]:
        """What the statements define: every step of it."""
        rooms = {name: self._room(name) for name in self.names if name in self.past}
        for p in self.parts:
            self._check_past(p)
        slices: dict[str, Tensor] = {_name(row): self._rows(row) for row in self.rows}
        slices[STEP] = arange(self.steps)
        state = {name: first for name, first in self.first.items() if first and name not in self.past}
        for name, room in rooms.items():
            state[name] = [room]
        keys = list(slices)

        def step(old: dict[str, list[Tensor]], rows: list[Tensor]) -> tuple[dict[str, list[Tensor]], list[Tensor]]:
            env: Bindings = {**self.env, **dict(zip(keys, rows, strict=True))}
            env[STEP] = _weak(rows[keys.index(STEP)], self.steps)
            for name, values in old.items():
                for k, value in enumerate(values, 1):
                    env[_past(name) if name in self.past else _ago(name, k)] = value
            made: list[Tensor] = []
            for p, name in zip(self.parts, self.names, strict=True):
                inner = Statement(self.source, self._step_of(p, env), env, self._inner())
                env[_ago(name, 0)] = tensor = inner.tensor(name)
                self._check_first(p, name, tensor)
                made.append(tensor)
            now = dict(zip(self.names, made, strict=True))
            return {n: self._then(n, values, now[n], env[STEP]) for n, values in old.items()}, made

        _, found = scan(step, state, list(slices.values()), length=self.steps, reverse=self.is_reversed)
        return dict(zip(self.names, found, strict=True))

    def _inner(self) -> dict[str, int]:
        return {k: n for k, n in self.extents.items() if k != self.time}

    def _then(self, name: str, old: list[Tensor], new: Tensor, step: Any) -> list[Tensor]:
        if name not in self.past:
            return [new, *old[:-1]]
        before = len(self.first[name])

        def row(n: Any, *ix: Any) -> Any:
            return select(n == step + before, new[ix] if ix else new, old[0][(n, *ix)])

        return [compute(old[0].shape, row, old[0].name)]

    def _check_first(self, p: Parsed, name: str, tensor: Tensor) -> None:
        for first in self.first[name][:1]:
            if (first.shape, first.dtype) != (tensor.shape, tensor.dtype):
                self.fail(
                    p,
                    f"`{name}` of a step is {tensor.dtype}{list(tensor.shape)}, but what is given before the first "
                    f"step is {first.dtype}{list(first.shape)}",
                )

    def _rows(self, row: _Row) -> Tensor:
        """The rows of a tensor that the steps read, one after the other."""
        tensor = self.env[row.source]
        assert isinstance(tensor, Tensor)
        if row.index == self.time and tensor.shape[row.place] == self.steps:
            return moveaxis(tensor, row.place, 0)
        others = [f"i{n}" for n in range(tensor.rank)]
        others[row.place] = row.index
        left = ", ".join([self.time, *(i for n, i in enumerate(others) if n != row.place)])
        text = Source(f"rows[{left}] = x[{', '.join(others)}]", self.source.where)
        statement = Statement(text, text.statements()[0], {"x": tensor}, {self.time: self.steps})
        return statement.tensor(tensor.name)

    def _room(self, name: str) -> Tensor:
        """All rows of what is read of any time: those given, then those to come."""
        first = self.first[name]
        if not first:
            p = self.parts[self.names.index(name)]
            self.fail(p, f"`{name}` reads any part of its past: say what there was before it, `given {name}[-1] = ...`")
        given = stack([cast(t, first[0].dtype) for t in first[::-1]])
        return concat([given, full((self.steps, *first[0].shape), 0, first[0].dtype)])

    def _step_of(self, p: Parsed, env: Bindings) -> Parsed:
        value = _Step(self, p, env).visit(_copied(p.value))
        left = target_of(p)[1][1:]
        name = ast.copy_location(ast.Name(target_of(p)[0], ast.Store()), p.target)
        target: ast.expr = name
        if left:
            index = left[0] if len(left) == 1 else ast.copy_location(ast.Tuple(left, ast.Load()), p.target)
            target = ast.copy_location(ast.Subscript(name, index, ast.Store()), p.target)
        return p.other(target, value)

    # ------------------------------------------------------------------------------------------------------ the past

    def _check_past(self, p: Parsed) -> None:
        """Prove that what is read of any time is of an earlier one: that t - 1 - index is at least 0, and no more than
        there is. Raises `ExpressionError` with the values that break it."""
        name = target_of(p)[0]
        if not self.past.intersection(n.id for n in ast.walk(p.value) if isinstance(n, ast.Name)):
            return
        env: Bindings = dict(self.env)
        rows = [target_of(q)[0] for q in self.parts]
        for own in rows:
            first = self.first[own]
            shape = first[0].shape if first else None
            if shape is not None:
                env[_past(own)] = placeholder((self.steps + len(first), *shape), first[0].dtype, _past(own))
                env[_ago(own, 0)] = placeholder((self.steps, *shape), first[0].dtype, own)
        value = _Proof(self, p).visit(_copied(p.value))
        try:
            Statement(self.source, p.other(p.target, value), env, {**self.extents, self.time: self.steps}).tensor(name)
        except ExpressionError as e:
            if _PAST in e.message:
                self.fail(
                    p, f"a step of `{name}` may read a step that does not come before it{self._broken(e)}", p.value
                )
            raise

    def _broken(self, e: ExpressionError) -> str:
        """The steps that an error about t - 1 - index is about, where it has values."""
        value, at = re.search(r"= (-?\d+) at (.*?), but the extent", e.message), f"{self.time}="
        if value is None:
            return "; guard the read with select, or read an index that is less whatever its axes are"
        step = next((int(v[len(at) :]) for v in value[2].split(", ") if v.startswith(at)), 0)
        return f": step {step} reads step {step - 1 - int(value[1])} at {value[2]}; guard the read with select"


def _weak(step: Tensor, steps: int) -> Tensor:
    """The number of the step, which takes the dtype of what it meets, as an axis does."""
    made = compute((), lambda: step[()], "step")
    object.__setattr__(made, "choice", ((0, steps - 1), lambda dtype: cast(step, dtype)))
    return made


def _name(row: _Row) -> str:
    return f"{row.source} at {row.index} in {row.place}"


def _ago(name: str, k: int) -> str:
    return f"{name}, {k} steps ago"


def _past(name: str) -> str:
    return f"{_PAST} {name}"


def _copied(node: ast.expr) -> ast.expr:
    """A tree of its own, with the places of the old one."""

    class Copy(ast.NodeTransformer):
        def generic_visit(self, n: ast.AST) -> ast.AST:
            fields = {}
            for field, value in ast.iter_fields(n):
                if isinstance(value, list):
                    fields[field] = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]
                else:
                    fields[field] = self.visit(value) if isinstance(value, ast.AST) else value
            return ast.copy_location(type(n)(**fields), n)

    copied = Copy().visit(node)
    assert isinstance(copied, ast.expr)
    return copied


def lag_of(index: ast.expr, time: str) -> int | None:
    """k where an index is t - k; None for another."""
    match index:
        case ast.Name(id=name) if name == time:
            return 0
        case ast.BinOp(left=ast.Name(id=name), op=ast.Sub() | ast.Add() as op, right=ast.Constant(value=int(k))):
            if name == time and not isinstance(k, bool):
                return k if isinstance(op, ast.Sub) else -k
        case ast.BinOp(left=ast.Constant(value=int(k)), op=ast.Add(), right=ast.Name(id=name)):
            if name == time and not isinstance(k, bool):
                return -k
    return None


class _Look(ast.NodeVisitor):
    """What a statement reads of earlier steps, and which rows of other tensors."""

    def __init__(self, of: Recurrence, p: Parsed):
        self.of, self.p = of, p

    def visit_Subscript(self, node: ast.Subscript) -> None:
        of, ix = self.of, elements(node.slice)
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name in of.names:
            lag = lag_of(ix[0], of.time)
            here, there = of.names.index(target_of(self.p)[0]), of.names.index(name)
            if lag == 0 and there >= here:
                of.fail(self.p, f"`{self.p.segment(node)}` is not known yet in the step that computes it", node)
            if lag is None:
                of.past.add(name)
            elif lag:
                of.lags.setdefault(name, set()).add(lag)
            ix = ix[1:]
        elif isinstance(of.env.get(name), Tensor):
            row = row_of(self.p, node, of)
            if row is not None:
                of.rows[row] = ix[row.place]
                ix = [i for n, i in enumerate(ix) if n != row.place]
        for i in ix:
            self.visit(i)


def row_of(p: Parsed, node: ast.Subscript, of: Recurrence) -> _Row | None:
    """The row of a tensor that a step reads, where one of its indices is made of the step and numbers alone."""
    assert isinstance(node.value, ast.Name)
    tensor, ix = of.env[node.value.id], elements(node.slice)
    if not isinstance(tensor, Tensor) or len(ix) != tensor.rank:
        return None
    for place, index in enumerate(ix):
        names = {n.id for n in ast.walk(index) if isinstance(n, ast.Name)}
        if names == {of.time} and not any(isinstance(n, (ast.Call, ast.Subscript)) for n in ast.walk(index)):
            return _Row(node.value.id, place, ast.unparse(index))
    return None


class _Step(ast.NodeTransformer):
    """The text of one step."""

    def __init__(self, of: Recurrence, p: Parsed, env: Bindings):
        self.of, self.p, self.env = of, p, env

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self.of.time:
            return ast.copy_location(ast.Name(STEP, ast.Load()), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        of, ix = self.of, elements(node.slice)
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name in of.names:
            lag = lag_of(ix[0], of.time)
            if lag == 0:
                return self._read(node, _ago(name, 0), ix[1:])
            if name not in of.past:
                assert lag is not None
                return self._read(node, _ago(name, abs(lag)), ix[1:])
            before = ast.copy_location(ast.Constant(len(of.first[name])), node)
            return self._read(node, _past(name), [_binary(ix[0], ast.Add(), before), *ix[1:]])
        row = row_of(self.p, node, of) if isinstance(of.env.get(name), Tensor) else None
        if row is not None:
            return self._read(node, _name(row), [i for n, i in enumerate(ix) if n != row.place])
        return self._read(node, name, ix) if name else node

    def _read(self, node: ast.Subscript, name: str, ix: list[ast.expr]) -> ast.expr:
        source = ast.copy_location(ast.Name(name, ast.Load()), node)
        ix = [self.visit(i) for i in ix]
        if not ix:
            return source
        index = ix[0] if len(ix) == 1 else ast.copy_location(ast.Tuple(ix, ast.Load()), node)
        return ast.copy_location(ast.Subscript(source, index, ast.Load()), node)


class _Proof(_Step):
    """The text with t - 1 - index in the place of every index of the past."""

    def __init__(self, of: Recurrence, p: Parsed):
        super().__init__(of, p, of.env)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        of, ix = self.of, elements(node.slice)
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name not in of.names:
            return self._read(node, name, ix) if name else node
        lag = lag_of(ix[0], of.time)
        if lag == 0 and len(of.first[name]):
            return self._read(node, _ago(name, 0), ix)
        now = ast.copy_location(ast.Name(of.time, ast.Load()), node)
        one = ast.copy_location(ast.Constant(1), node)
        back = _binary(_binary(now, ast.Sub(), one), ast.Sub(), ix[0])
        return self._read(node, _past(name), [back, *ix[1:]])


def _binary(a: ast.expr, op: ast.operator, b: ast.expr) -> ast.expr:
    return ast.copy_location(ast.BinOp(a, op, b), a)

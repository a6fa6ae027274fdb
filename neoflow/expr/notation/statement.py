"""One statement: what it reads, then the extents of its indices, then the tensor it defines."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import cast

from neoflow.errors import ExpressionError
from neoflow.expr import dsl, extents, typed
from neoflow.expr.close import define
from neoflow.expr.guards import guarded_reads
from neoflow.expr.ir import Axis, Const, Expr, Select, substitute
from neoflow.expr.notation.reader import Bindings, Reader
from neoflow.expr.notation.syntax import names_in
from neoflow.expr.notation.text import Parsed, Source
from neoflow.expr.tensor import Compute, tensor_of


class Statement:
    """An assignment; `given`: extents by index name, from outside of the text."""

    def __init__(self, source: Source, parsed: Parsed, env: Bindings, given: Mapping[str, int]):
        self.source, self.parsed, self.given = source, parsed, given
        self.reader = Reader(source, parsed, env, given)

    @property
    def name(self) -> str:
        return self.reader.name

    def tensor(self, name: str) -> Compute:
        """What the statement defines, under the name `name`."""
        reader = self.reader
        axes = [reader.axis(n) for n in reader.left]
        body = typed.as_expr(reader.value(self.parsed.value), "float32")
        found = self._extents(body)
        if reader.counts:
            reader = Reader(self.source, self.parsed, reader.env, self.given, found)
            axes = [reader.axis(n) for n in reader.left]
            body = typed.as_expr(reader.value(self.parsed.value), "float32")
        sized: dict[Expr, Expr] = {reader.axes[key]: dsl.axis(n, key) for key, n in found.items()}
        closed = substitute(body, sized)
        outer: tuple[Axis, ...] = tuple(cast(Axis, sized[a]) for a in axes)
        try:
            return define(tuple(a.extent for a in outer), outer, closed, name, self.source.where)
        except ExpressionError as e:
            places = {substitute(read, sized): node for read, node in reader.reads.items()}
            reader.fail(_culprit(closed, places) or self.parsed.target, e.message)

    def _extents(self, body: Expr) -> dict[str, int]:
        """The extent of every index: said, or inferred from the shapes read."""
        reader = self.reader
        for key, n in reader.sizes.items():
            if self.given.get(key, n) != n:
                reader.fail(self.parsed.target, f"`{key}` has extent {n} here and {self.given[key]} in extents")
        known = {reader.axes[k]: n for k, n in {**self.given, **reader.sizes}.items() if k in reader.axes}
        uses = extents.uses(body)
        try:
            found = extents.infer(reader.axes.values(), uses, known)
        except extents.Disagreement as e:
            a, b = e.first, e.second
            reader.fail(
                reader.reads[b.read].slice,
                f"index `{e.axis.name}` has extent {a.extent} in dimension {a.position} of {_source(a)} and {b.extent} "
                f"in dimension {b.position} of {_source(b)}; they must agree, or give extents={{'{e.axis.name}': n}}",
            )
        except extents.Empty as e:
            use = e.use
            reader.fail(
                reader.reads[use.read],
                f"no extent of `{e.axis.name}` keeps index {use.position} of {_source(use)}, `{use.index}`, "
                f"inside its extent {use.extent}; guard the read with select and give "
                f"extents={{'{e.axis.name}': n}}, or change the shapes",
            )
        for name, axis in reader.axes.items():
            if axis not in found:
                own = [u for u in uses if axis in u.index.free]
                is_guarded = own and all(u.guards for u in own)
                why = "every read it stands in is under a condition on it" if is_guarded else ""
                reader.fail(
                    self._first(name),
                    f"the extent of index `{name}` cannot be inferred: "
                    f"{why or 'it stands in no read that determines it'}; give extents={{'{name}': n}}",
                )
        return {name: found[axis] for name, axis in reader.axes.items()}

    def _first(self, name: str) -> ast.AST:
        """Where an index stands first on the right, else on the left."""
        for root in (self.parsed.value, self.parsed.target):
            for node in names_in(root):
                if node.id == name:
                    return node
        return self.parsed.target


def _source(use: extents.Use) -> str:
    source = tensor_of(use.read)
    return f"{source.name} {source.shape}"


def _culprit(body: Expr, places: Mapping[Expr, ast.Subscript]) -> ast.AST | None:
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

"""Computes element by element written into what reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neoflow.expr.ir import Expr, Read, postorder, rewrite, substitute
from neoflow.expr.normal import opened
from neoflow.expr.tensor import Compute, Tensor, tensor_of, topological

MOST_NODES = 2048
"""Nodes of an expression that others are written into."""


class TooLong(Exception):
    """An expression that would have more than `MOST_NODES`."""


class Inliner:
    """Writes those computes `which` into expressions; they are element by element. Its methods raise `TooLong`."""

    def __init__(self, which: Callable[[Compute], bool]):
        self.which = which
        self.bodies: dict[Tensor, Expr] = {}

    def body(self, t: Compute) -> Expr:
        """Of a compute over its own axes, all that is to be written in."""
        if t not in self.bodies:
            for s in topological([t]):
                if s not in self.bodies and isinstance(s, Compute) and (s is t or self.which(s)):
                    self.bodies[s] = self.expression(opened(s.definition.body, s.inputs))
        return self.bodies[t]

    def expression(self, e: Expr) -> Expr:
        def rule(n: Expr) -> Expr | None:
            if not isinstance(n, Read):
                return None
            t = tensor_of(n)
            if not isinstance(t, Compute) or not self.which(t):
                return None
            return substitute(self.body(t), dict(zip(t.definition.axes, n.indices, strict=True)))

        result = rewrite(e, rule)
        if sum(1 for _ in postorder(result)) > MOST_NODES:
            raise TooLong
        return result

    def at(self, t: Tensor, indices: Sequence[Expr]) -> Expr:
        """A tensor at a point."""
        return self.expression(Read(t, tuple(indices)))

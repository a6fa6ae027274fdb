"""The conditions of selects around an expression: under which of them a read happens."""

from __future__ import annotations

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Expr, Read, Select

Guards = tuple[Expr, ...]
"""Conditions that all hold, outermost first."""
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def guarded_reads(body: Expr) -> list[tuple[Read, Guards]]:
    """Every read with the conditions under which it happens, in the order of the text; equal ones once."""
    found: dict[tuple[Read, Guards], None] = {}
    seen: set[tuple[Expr, Guards]] = set()
    stack: list[tuple[Expr, Guards]] = [(body, ())]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        node, guards = item
        if isinstance(node, Read):
            found[(node, guards)] = None
        inner: list[tuple[Expr, Guards]] = [(c, guards) for c in node.children]
        if isinstance(node, Select):
            inner[1] = (node.then, guards + conjuncts(node.cond, True))
            inner[2] = (node.other, guards + conjuncts(node.cond, False))
        elif isinstance(node, Apply) and node.fn in ("and", "or"):
            first, second = node.args  # the second is only evaluated where the first does not decide
            inner[1] = (second, guards + conjuncts(first, node.fn == "and"))
        stack.extend(reversed(inner))
    return list(found)


def conjuncts(cond: Expr, positive: bool) -> Guards:
    """`cond` (or its negation) as a conjunction of simpler conditions."""
    found: list[Expr] = []
    stack = [(cond, positive)]
    while stack:
        cond, positive = stack.pop()
        fn = cond.fn if isinstance(cond, Apply) else ""
        if fn == "not":
            stack.append((cond.children[0], not positive))
        elif fn == ("and" if positive else "or"):
            stack += [(c, positive) for c in reversed(cond.children)]
        elif positive:
            found.append(cond)
        elif fn in _OPPOSITE and cond.children[0].dtype == dt.INDEX:
            found.append(Apply(_OPPOSITE[fn], cond.children))
        else:
            found.append(Apply("not", (cond,)))
    return tuple(found)

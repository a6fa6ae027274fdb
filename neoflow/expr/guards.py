"""The conditions of selects around an expression: under which of them a read happens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from neoflow import dtype as dt
from neoflow.expr.ir import Apply, Expr, Read, Select, postorder

Guards = tuple[Expr, ...]
"""Conditions that all hold, outermost first."""
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


MOST = 4
"""Contexts of a node, on average, that are told apart: each condition around a shared node doubles them."""
FEW_NODES = 10_000
"""Nodes and their contexts that are gone through however few nodes the body has."""


@dataclass(eq=False)
class _Context:
    """Conditions, as a path: `outer` and one more. So a context is as cheap as its last condition."""

    outer: _Context | None
    condition: Expr | None
    depth: int

    def __post_init__(self) -> None:
        self.inner: dict[Expr, _Context] = {}

    def within(self, conditions: Guards) -> _Context:
        """The context under more conditions; the same conditions give the same object."""
        context = self
        for c in conditions:
            if c not in context.inner:
                context.inner[c] = _Context(context, c, context.depth + 1)
            context = context.inner[c]
        return context

    @cached_property
    def guards(self) -> Guards:
        found: list[Expr] = []
        context = self
        while context.outer is not None and context.condition is not None:
            found.append(context.condition)
            context = context.outer
        return tuple(reversed(found))


def guarded_reads(body: Expr) -> list[tuple[Read, Guards]]:
    """Every read with the conditions under which it happens, in the order of the text; equal ones once.

    Of a body whose parts are shared by too many branches each part has the conditions that all its uses share.
    """
    found = _each_use(body)
    return [(read, context.guards) for read, context in (_in_common(body) if found is None else found)]


def _each_use(body: Expr) -> list[tuple[Read, _Context]] | None:
    """The reads in each context; None when these are too many."""
    found: list[tuple[Read, _Context]] = []
    seen: set[tuple[int, int]] = set()
    nodes: set[int] = set()
    stack = [(body, _Context(None, None, 0))]
    while stack:
        node, context = stack.pop()
        key = (node.uid, id(context))
        if key in seen:
            continue
        seen.add(key)
        nodes.add(node.uid)
        if len(seen) > FEW_NODES and len(seen) > MOST * len(nodes):
            return None
        if isinstance(node, Read):
            found.append((node, context))
        stack += _inner(node, context)[::-1]
    return found


def _in_common(body: Expr) -> list[tuple[Read, _Context]]:
    """The reads, each in the context that its uses share."""
    shared = {body: _Context(None, None, 0)}
    found: list[tuple[Read, _Context]] = []
    for node in reversed(list(postorder(body))):
        context = shared[node]
        if isinstance(node, Read):
            found.append((node, context))
        for child, inner in _inner(node, context):
            shared[child] = _outer(shared.get(child, inner), inner)
    return found


def _outer(a: _Context, b: _Context) -> _Context:
    """What two contexts begin with."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.outer is not None
        a = a.outer
    return a


def _inner(node: Expr, context: _Context) -> list[tuple[Expr, _Context]]:
    """What a node computes, and under which conditions."""
    if isinstance(node, Select):
        yes, no = (context.within(conjuncts(node.cond, positive)) for positive in (True, False))
        return [(node.cond, context), (node.then, yes), (node.other, no)]
    if isinstance(node, Apply) and node.fn in ("and", "or"):
        first, second = node.args  # the second is only evaluated where the first does not decide
        return [(first, context), (second, context.within(conjuncts(first, node.fn == "and")))]
    return [(c, context) for c in node.children]


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

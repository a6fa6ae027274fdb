"""A sum of many contractions becomes a chain, each link the epilogue of the contraction it adds.

    d = c1 + c2 + c3 + rest    ->    s1 = c1 + rest;  s2 = s1 + c2;  d = s2 + c3

An unrolled recurrence gives a weight one gradient for each step. Summed at the end, all of them are in memory at once;
as a chain one buffer holds the sum so far, written where each contraction ends. The order is that in which the graph
computes them, so only rounding differs.
"""

from __future__ import annotations

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Slot, postorder, same
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import Graph
from neoflow.graph.canonicalize import map_graph
from neoflow.partition.facts import is_contraction
from neoflow.partition.subgraph import reads_at_own_point


def chain_sums(graph: Graph) -> Graph:
    """Replace every sum of two or more contractions that nothing else reads. See the module's text."""
    readers: dict[Tensor, int] = {}
    for t in graph.nodes:
        for i in dict.fromkeys(t.inputs):
            readers[i] = readers.get(i, 0) + 1
    roots, position = set(graph.roots), {t: n for n, t in enumerate(graph.order)}
    new: dict[Tensor, Tensor] = {}
    for t in graph.nodes:
        inputs = tuple(new.get(i, i) for i in t.inputs)
        links = [
            n
            for n in _single_terms(t.definition)
            if isinstance(c := t.inputs[n], Compute)
            and c not in roots
            and readers[c] == 1
            and is_contraction(c.definition)
        ]
        if len(links) >= 2 and len(_terms(t.definition)) >= 3:
            links.sort(key=lambda n: position[t.inputs[n]])
            new[t] = _chain(t, inputs, links)
        elif not same(inputs, t.inputs):
            new[t] = Compute(t.definition, inputs, t.name, t.axis_names, t.where)
    return map_graph(graph, new)


@remembered
def _terms(definition: Definition) -> tuple[Expr, ...]:
    """The operands of a tree of float additions; nothing for another body."""
    if not dt.is_float(definition.body.dtype):
        return ()
    terms: list[Expr] = []
    stack = [definition.body]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply) and e.fn == "add":
            stack += [e.args[1], e.args[0]]
        else:
            terms.append(e)
    return tuple(terms)


@remembered
def _single_terms(definition: Definition) -> tuple[int, ...]:
    """Inputs that are a term by themselves, read at the compute's own point and in no other term."""
    terms = _terms(definition)
    reads = [n.slot for e in terms for n in postorder(e) if isinstance(n, Read)]
    alone = [e for e in terms if isinstance(e, Read) and reads_at_own_point(e, definition.shape)]
    return tuple(p for e in alone if reads.count(p := e.slot) == 1)


def _chain(t: Compute, inputs: tuple[Tensor, ...], links: list[int]) -> Tensor:
    """The sum `t` over `inputs` with the inputs at `links` added one after the other."""
    rest = [e for e in _terms(t.definition) if not (isinstance(e, Read) and e.slot in links)]
    total: Tensor | None = None
    if rest:
        body = rest[0]
        for e in rest[1:]:
            body = Apply("add", (body, e))
        total = build(t.shape, body, inputs, t.name)
    for n in links:
        total = inputs[n] if total is None else _sum(total, inputs[n], t.name)
    assert total is not None
    return total


def _sum(a: Tensor, b: Tensor, name: str) -> Compute:
    own = tuple(Const(0, dt.INDEX) if n == 1 else Axis(d, n) for d, n in enumerate(a.shape))
    reads = (Read(Slot(n, t.shape, t.dtype), own) for n, t in enumerate((a, b)))
    return build(a.shape, Apply("add", tuple(reads)), (a, b), name)

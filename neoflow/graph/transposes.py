"""Transposes folded into what reads them.

    t[j, i] = y[i, j];  z[j, i] = sum[r](t[j, i + r] * w[r])    ->    z[j, i] = sum[r](y[i + r, j] * w[r])

What is left to be chosen is how y lies: as it was, its reader goes across memory; with its dimensions swapped
(`lay`), what computes it writes across, once, and there is no transpose.
Source: tensor swapping, section 4.3 of NeoFlow.
"""

from __future__ import annotations

from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Const, Expr, Read, Scatter, Slot, rewrite, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.graph import Graph


@remembered
def is_transpose(definition: Definition) -> bool:
    """Whether a compute is what it reads with its dimensions in another order."""
    body = definition.body
    if not isinstance(body, Read) or len(body.indices) != len(definition.shape):
        return False
    idents = [i.ident for i in body.indices if isinstance(i, Axis)]
    others = [n for i, n in zip(body.indices, body.source.shape, strict=True) if not isinstance(i, Axis)]
    if len(set(idents)) != len(idents) or any(n != 1 for n in others):
        return False
    return sorted(body.source.shape) == sorted(definition.shape) and idents != sorted(idents)


def fold_transposes(graph: Graph) -> Graph:
    """The graph in which nothing reads a transpose, but what is transposed; the same one where there is none."""
    if not any(is_transpose(t.definition) for t in graph.nodes):
        return graph
    now: dict[Tensor, Tensor] = {}
    for t in graph.order:
        if not isinstance(t, Compute):
            now[t] = t
            continue
        inputs = tuple(now[i] for i in t.inputs)
        through = [n for n, i in enumerate(inputs) if isinstance(i, Compute) and is_transpose(i.definition)]
        if not through or isinstance(t.definition.body, Scatter):
            now[t] = t if all(i is j for i, j in zip(inputs, t.inputs, strict=True)) else t.over(inputs)
        else:
            now[t] = _folded(t, inputs, through)
    return graph.with_roots(tuple(now[t] for t in graph.roots))


def _folded(t: Compute, inputs: tuple[Tensor, ...], through: list[int]) -> Compute:
    sources = list(inputs)
    for n in through:
        transpose = inputs[n]
        assert isinstance(transpose, Compute)
        sources[n] = transpose.inputs[0]

    def moved(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.slot not in through:
            return None
        transpose, source = inputs[e.slot], sources[e.slot]
        assert isinstance(transpose, Compute) and isinstance(transpose.definition.body, Read)
        at: dict[Axis, Expr] = {a: e.indices[a.ident] for a in transpose.definition.axes}
        indices = tuple(i if isinstance(i, Const) else substitute(i, at) for i in transpose.definition.body.indices)
        return Read(Slot(e.slot, source.shape, source.dtype), indices)

    found = build(t.shape, rewrite(t.definition.body, moved), tuple(sources), t.name)
    return Compute(found.definition, found.inputs, t.name, found.axis_names, t.where)

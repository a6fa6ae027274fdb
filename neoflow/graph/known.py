"""What depends on no input and no parameter is computed once, when the program is compiled, and not at every call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Apply, Binder, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Constant, Definition, Tensor
from neoflow.graph.facts import points
from neoflow.graph.graph import Graph
from neoflow.verdict import Verdict

MOST_BYTES = 1 << 26
"""Largest tensor that is kept as a constant rather than computed at every call."""
MOST_POINTS = 1 << 26
"""Most evaluations of bodies for one of them: a second of NumPy (exp, Zen 4)."""
_COSTLY = 10
"""A function of this cost takes longer than reading its value."""


@dataclass(frozen=True)
class Known:
    """decisions: what became of each constant compute that something else than constant computes needs, with why."""

    decisions: tuple[tuple[str, Verdict], ...]

    @property
    def count(self) -> int:
        """How many were computed."""
        return sum(verdict.ok for _, verdict in self.decisions)

    def __str__(self) -> str:
        lines = [f"{'computed' if v.ok else 'left as it is'}: {name}: {v.reason}" for name, v in self.decisions]
        return "\n".join(lines) or "every tensor depends on an input or a parameter"


def evaluate_constants(graph: Graph) -> tuple[Graph, Known]:
    """The graph in which computes of constants alone are constants themselves, wherever that is of use.

    t[i] = cos(0.1 * i);  y[i] = x[i] * t[i]    ->    t = constant;  y[i] = x[i] * t[i]

    What is computed is what a compute with inputs, or the program's result, reads; what leads there is gone then. Where
    that would not pay, what it reads is asked next. Values are those of `evaluate`.
    """
    known = _constant_computes(graph)
    if not known:
        return graph, Known(())
    needed = {t for t in graph.roots if t in known}
    needed |= {i for t in graph.nodes if t not in known for i in t.inputs if i in known}
    edit: dict[Tensor, Tensor] = {}
    decisions: list[tuple[str, Verdict]] = []
    for t in reversed(graph.nodes):
        if t not in needed:
            continue
        verdict = _worth(t, known)
        if verdict.ok:
            try:
                (value,) = evaluate(t, {})
                edit[t] = Constant(value, t.name, t.where)
            except (RuntimeFault, MemoryError) as e:
                verdict = Verdict(False, f"it has no value: {e}")
        if not verdict.ok:
            needed.update(i for i in t.inputs if i in known)
        decisions.append((t.name, verdict))
    return (graph.replace(edit) if edit else graph), Known(tuple(reversed(decisions)))


@dataclass(frozen=True)
class _Cone:
    """Of a constant compute and all it needs: evaluations of bodies, and whether any of it takes time."""

    points: int
    is_costly: bool


def _constant_computes(graph: Graph) -> dict[Tensor, _Cone]:
    known: dict[Tensor, _Cone] = {}
    for t in graph.nodes:
        if all(i in known or isinstance(i, Constant) for i in t.inputs):
            below = [known[i] for i in t.inputs if i in known]
            is_costly = len(below) < len(t.inputs) or is_costly_itself(t.definition)
            known[t] = _Cone(
                points(t.definition) + sum(c.points for c in below), is_costly or any(c.is_costly for c in below)
            )
    return known


@remembered
def is_costly_itself(definition: Definition) -> bool:
    """Whether computing an element takes longer than reading it: a reduction, a scatter, a float function."""
    return any(
        isinstance(e, Binder) or (isinstance(e, Apply) and dt.is_float(e.dtype) and FUNCTIONS[e.fn].cost >= _COSTLY)
        for e in postorder(definition.body)
    )


def _worth(t: Compute, known: Mapping[Tensor, _Cone]) -> Verdict:
    """Whether a constant compute is to be computed once."""
    cone = known[t]
    if t.nbytes > MOST_BYTES:
        return Verdict(False, f"it has {t.nbytes} bytes, more than {MOST_BYTES}")
    if cone.points > MOST_POINTS:
        return Verdict(False, f"it takes {cone.points} evaluations, more than {MOST_POINTS}")
    if is_costly_itself(t.definition):
        return Verdict(True, f"{t.nbytes} bytes, for {cone.points} evaluations")
    if not cone.is_costly:
        return Verdict(False, "computing it where it is read costs no more than reading it")
    if t.size > sum(math.prod(i.shape) for i in t.inputs):
        return Verdict(False, "it is larger than what it is made of, and cheap")
    return Verdict(True, f"{t.nbytes} bytes, for {cone.points} evaluations")

"""What depends on no input and no parameter is computed once, when the program is compiled, and not at every call."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Apply, Binder
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Constant, Definition, Tensor
from neoflow.graph.facts import points
from neoflow.graph.graph import Graph
from neoflow.verdict import Verdict

MOST_BYTES = 1 << 26
"""Largest tensor that is kept as a constant rather than computed at every call."""
MOST_POINTS = 1 << 26
"""Most evaluations of bodies for all of them: a second of NumPy (exp, Zen 4)."""
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
    that would not pay, what it reads is asked next. Values are those of `evaluate`. Equal constants are one.
    """
    chosen = _Choice(graph)
    values, failed = _evaluated(chosen.taken)
    first: dict[str, Constant] = {}
    edit: dict[Tensor, Tensor] = {t: Constant(value, t.name, t.where) for t, value in values.items()}
    edit.update((c, same) for c in graph.constants if (same := first.setdefault(c.digest, c)) is not c)
    decisions = tuple((t.name, failed.get(t, verdict)) for t, verdict in reversed(chosen.verdicts.items()))
    return (graph.replace(edit) if edit else graph), Known(decisions)


class _Choice:
    """verdicts: on each constant compute that something else needs, from the last one on. costly: the constant
    computes that take time, with what they need. counted: those that are evaluated, and how often their bodies are.
    """

    def __init__(self, graph: Graph):
        self.verdicts: dict[Compute, Verdict] = {}
        self.costly: dict[Tensor, bool] = {}
        self.counted: set[Tensor] = set()
        self.points = 0
        for t in graph.nodes:
            if all(i in self.costly or isinstance(i, Constant) for i in t.inputs):
                self.costly[t] = is_costly_itself(t.definition) or any(self.costly.get(i, True) for i in t.inputs)
        needed = {t for t in graph.roots if t in self.costly}
        needed |= {i for t in graph.nodes if t not in self.costly for i in t.inputs if i in self.costly}
        for t in reversed(graph.nodes) if needed else ():
            if t in needed:
                verdict = self.verdicts[t] = self._judge(t)
                if not verdict.ok:
                    needed.update(i for i in t.inputs if i in self.costly)

    @property
    def taken(self) -> list[Compute]:
        return [t for t, verdict in self.verdicts.items() if verdict.ok]

    def _judge(self, t: Compute) -> Verdict:
        """Whether a constant compute is to be computed once."""
        if not self.costly[t]:
            return Verdict(False, "computing it where it is read costs no more than reading it")
        if not is_costly_itself(t.definition) and t.size > sum(math.prod(i.shape) for i in t.inputs):
            return Verdict(False, "it is larger than what it is made of, and cheap")
        if t.nbytes > MOST_BYTES:
            return Verdict(False, f"it has {t.nbytes} bytes, more than {MOST_BYTES}")
        cone = self._cone(t)
        more = sum(points(u.definition) for u in cone)
        if self.points + more > MOST_POINTS:
            return Verdict(False, f"with it the constants take {self.points + more} evaluations, over {MOST_POINTS}")
        self.points += more
        self.counted.update(cone)
        return Verdict(True, f"{t.nbytes} bytes, {more} evaluations")

    def _cone(self, t: Compute) -> list[Compute]:
        """t and what it needs, as far as it is not evaluated anyway."""
        found: dict[Compute, None] = {}
        stack: list[Tensor] = [t]
        while stack:
            u = stack.pop()
            if isinstance(u, Compute) and u not in found and u not in self.counted:
                found[u] = None
                stack.extend(u.inputs)
        return list(found)


def _evaluated(computes: list[Compute]) -> tuple[dict[Compute, np.ndarray], dict[Compute, Verdict]]:
    """Values, all at once; and those that have none, each with the reason."""
    try:
        return dict(zip(computes, evaluate(computes, {}), strict=True)), {}
    except (RuntimeFault, MemoryError):
        pass
    values, failed = dict[Compute, np.ndarray](), dict[Compute, Verdict]()
    for t in computes:
        try:
            (values[t],) = evaluate(t, {})
        except (RuntimeFault, MemoryError) as e:
            failed[t] = Verdict(False, f"it has no value: {e}")
    return values, failed


@remembered
def is_costly_itself(definition: Definition) -> bool:
    """Whether computing an element takes longer than reading it: a reduction, a scatter, a float function."""
    return any(
        isinstance(e, Binder) or (isinstance(e, Apply) and dt.is_float(e.dtype) and FUNCTIONS[e.fn].cost >= _COSTLY)
        for e in definition.nodes
    )

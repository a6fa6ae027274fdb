"""Cells in place of which their implementations are put: a loop whose body is a pattern's cell becomes one of its
`op_type`, with what that takes together taken together once, before the steps.

    h = scan(sigmoid(x wi + h ui) ..., x)    ->    w = concat(wi, wf, wg, wo) ...; h = scan(gates(x w + h u), x)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.ir import Reduce
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.scan import scan
from neoflow.expr.tensor import Compute, Definition, Tensor, topological
from neoflow.mapping.catalogue import CATALOGUE
from neoflow.mapping.cell import Filled, Pattern
from neoflow.mapping.unify import Looked, is_product
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Implemented:
    """Roots after it, what became of each cell that was found, and how many of these are better for it: they multiply
    less often, or are as a user wants them."""

    roots: list[Tensor]
    verdicts: tuple[Verdict, ...]
    better: int


def implemented(roots: Sequence[Tensor], patterns: Sequence[Pattern], looked: Looked | None = None) -> Implemented:
    """The roots with the implementations of all cells that are known."""
    found, verdicts = list(roots), list[Verdict]()
    done: set[object] = set()
    better = 0
    while True:
        order = topological(found)
        run = next((r for r in runs_of(order) if r.recurrence not in done), None)
        if run is None:
            return Implemented(found, tuple(verdicts), better)
        done.add(run.recurrence)
        for pattern in patterns:
            bound = pattern.found_in(run.recurrence, looked)
            if bound is not None and pattern.op_type is pattern.cell:
                verdicts.append(Verdict(True, f"{pattern.name}: it is its own implementation"))
                break
            if bound is not None:
                wanted = [t for t in order if isinstance(t, Looped) and t.run is run]
                edit = _edit(run, wanted, pattern, bound)
                verdicts.append(edit if isinstance(edit, Verdict) else Verdict(True, f"{pattern.name}: implemented"))
                if not isinstance(edit, Verdict):
                    found = replaced(found, edit.get)
                    made = {t.run.recurrence for t in edit.values() if isinstance(t, Looped)}
                    is_own = not any(pattern is p for p in CATALOGUE)
                    better += is_own or sum(map(products, made)) < products(run.recurrence)
                    done |= made
                break


def products(r: Recurrence) -> int:
    """How many tensors of a step are sums of products."""
    return sum(isinstance(t, Compute) and is_sum_of_products(t.definition) for t in topological(r.then))


@remembered
def is_sum_of_products(definition: Definition) -> bool:
    return any(isinstance(e, Reduce) and e.op == "sum" and is_product(e.body) for e in definition.nodes)


def _edit(run: Run, wanted: Sequence[Looped], pattern: Pattern, bound: Filled) -> dict[Tensor, Tensor] | Verdict:
    """What stands for those tensors that lead out of the run, where its cell is the implementation."""
    r = run.recurrence
    number = {t: n for n, t in enumerate(r.then)}
    inside = [t.of for t in wanted if isinstance(t, Stacked) and t.of not in number and t.of not in r.carried]
    if inside:
        return Verdict(False, f"{pattern.name}: what it computes inside, {inside[0].name}, is read of all steps")
    result_of = {bound[hole]: n for hole, n in pattern.cell_input.items()}

    def step(state: tuple[Tensor, ...], rows: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
        at = run.by_placeholder | dict(zip(r.carried, state, strict=True)) | dict(zip(r.slices, rows, strict=True))
        tensors = {n: t for n, t in bound.items() if isinstance(t, Tensor)}
        given = bound | dict(zip(tensors, replaced(list(tensors.values()), at.get), strict=True))
        results = pattern.results(pattern.op_type, given)
        then = [results[result_of[c]] for c in r.carried]
        return then, then

    first = [run.by_placeholder[c] for c in r.carried]
    stacks = [run.by_placeholder[s] for s in r.slices]
    last, ys = scan(step, first, stacks, r.steps, r.is_reversed)
    edit: dict[Tensor, Tensor] = {}
    for t in wanted:
        if isinstance(t, Last):
            edit[t] = last[t.number]
        elif t.of in number:
            edit[t] = ys[number[t.of]]
        else:
            new = last[0].run
            edit[t] = new.stacked(new.recurrence.carried[r.carried.index(t.of)], t.name)
    return edit

"""Recurrences that carry several tensors of which none follows from another, as loops of one each.

s[t] = f(s[t-1], x[t]),  z[t] = g(z[t-1], x[t])    ->    two loops
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Placeholder, Tensor, topological
from neoflow.graph.graph import Graph


def apart(graph: Graph, wanted: Collection[Placeholder]) -> Graph:
    """The graph with those loops apart that carry one of these tensors, and others that none of it follows from."""
    for run in runs_of(graph.order):
        r = run.recurrence
        if len(r.carried) > 1 and not set(wanted).isdisjoint(r.carried):
            # a loop behind another one has become one over others
            now = next((u for u in runs_of(graph.order) if u.recurrence is r), None)
            if now is not None:
                led = [t for t in graph.order if isinstance(t, Looped) and t.run is now]
                graph = graph.with_roots(replaced(graph.roots, _alone(now, led).get))
    return graph


def parts(run: Run) -> tuple[Run, ...]:
    """A loop for each tensor that is carried; the loop itself where one follows from another."""
    r = run.recurrence
    if len(r.carried) == 1 or any(_others(r, t, n) for n, t in enumerate(r.then)):
        return (run,)
    given = [run.by_placeholder[p] for p in (*r.slices, *r.fixed)]
    return tuple(
        Run(replace(r, carried=(c,), then=(t,)), (run.by_placeholder[c], *given))
        for c, t in zip(r.carried, r.then, strict=True)
    )


def _others(r: Recurrence, t: Tensor, n: int) -> bool:
    """Whether it follows from what is carried as another number."""
    below = set(topological([t]))
    return any(c in below for m, c in enumerate(r.carried) if m != n)


def _alone(run: Run, led: Sequence[Looped]) -> dict[Tensor, Tensor]:
    """What stands for what leads out of a run; nothing where something follows from several."""
    made = parts(run)
    found: dict[Tensor, Tensor] = {}
    for t in led if len(made) > 1 else ():
        if isinstance(t, Last):
            found[t] = made[t.number].last(0, t.name)
            continue
        assert isinstance(t, Stacked)
        below = set(topological([t.of]))
        of = [n for n, c in enumerate(run.recurrence.carried) if c in below]
        if len(of) > 1:
            return {}
        found[t] = made[of[0] if of else 0].stacked(t.of, t.name)
    return found

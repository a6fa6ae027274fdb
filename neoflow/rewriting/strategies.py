"""Rules and forms together, each alone, and one after the other: what a search that knows both is compared with.

A state of the search is a graph and its forms (`forms`). Rules are its moves from graph to graph; a form of a part
depends on no other part, so that the cost of a graph is the least over all of its forms: no queue need hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from neoflow.graph import Graph
from neoflow.rewriting.estimates import Estimate
from neoflow.rewriting.forms import Forms
from neoflow.superopt import Limits, Optimized, Search, Sites

RULES, FORMS, AFTER, TOGETHER = STRATEGIES = ("rules alone", "forms alone", "one after the other", "together")


def searched(
    strategy: str, graph: Graph, sites: Sites, estimate: Callable[[Forms], Estimate], forms: Forms, limits: Limits
) -> Optimized:
    """What a strategy finds for a graph in canonical form, with its forms; costs are those of its own search, and of
    `AFTER` those of both.

    estimate: costs graphs in such forms.
    """
    none, both = estimate(replace(forms, packs=False, tries=False)), estimate(forms)
    found = Search(sites if strategy in (RULES, AFTER) else Sites(()), none, limits).run(graph)
    if strategy == RULES:
        return found
    if strategy == TOGETHER:
        found = Search(sites, both, limits).run(graph)
    forms_of = both.chosen(found.graph)
    return replace(found, before=both.usual(graph), after=both(found.graph), forms=tuple(forms_of.items()))

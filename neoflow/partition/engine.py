"""Divides a graph into kernels: goes through the rules, applies what is legal and chosen, and writes down why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from neoflow.errors import PartitionError
from neoflow.expr.tensor import Compute
from neoflow.graph import Graph
from neoflow.partition.calls import Decision, Partition, in_order
from neoflow.partition.choose import Choice, object_to
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import InTiles, Kernels
from neoflow.partition.rules import (
    ALONGSIDE,
    EPILOGUES,
    INLINING,
    MOVES,
    PARTS,
    RIDERS,
    ROW_KERNELS,
    SHARING,
    SIBLINGS,
    VIEWS,
    Rule,
)
from neoflow.partition.storage import Storing
from neoflow.roofs import STATED, Roofs
from neoflow.trace import tick
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Pass:
    """Rules tried in order at each of the sites that `sites` gives for a state."""

    sites: Callable[[Any], Iterable[Any]]
    rules: tuple[Rule[Any, Any, Any], ...]


def _readers_first(state: Storing) -> Iterator[Compute]:
    return reversed(state.facts.nodes)


def _sources_first(state: Storing) -> Iterable[Compute]:
    return state.facts.nodes


def _stored(state: Kernels) -> Iterable[Compute]:
    return state.storage.stored


def _kernels(state: Kernels) -> Iterator[int]:
    """Every kernel in order; and when one has become part of another, again from that one on."""
    numbers = list(state.kernels)
    place = {number: n for n, number in enumerate(numbers)}
    n = 0
    while n < len(numbers):
        if (number := numbers[n]) in state.kernels:
            members = state.kernels[number].members
            yield number
            if number not in state.kernels:
                n = place[state.number[members[0]]]
                continue
        n += 1


STORAGE = (Pass(_readers_first, (INLINING,)), Pass(_sources_first, (PARTS,)), Pass(_sources_first, (VIEWS,)))
"""What is stored: what becomes of a compute follows from what becomes of its readers; a view is of something stored,
and where that lies is known when it is known of what it is a part."""

KERNELS = (
    *(Pass(_stored, (EPILOGUES, SIBLINGS)), Pass(_kernels, (ROW_KERNELS, MOVES)), Pass(_kernels, (ALONGSIDE,))),
    *(Pass(_kernels, (SHARING,)), Pass(_kernels, (RIDERS,))),
)
"""Which kernels are one: first those that go through the same points, then those that go through the same rows
or move them, and then those that reduce the same rows, or map the same points, though neither reads the other. What
then still only adds up may ride along with what it adds."""

RIDING = RIDERS.name
"""What is tried only where somebody says which kernels have tiles."""

RULES = tuple(rule for p in (*STORAGE, *KERNELS) for rule in p.rules)


Combine = Callable[[Facts, Kernels, tuple[Pass, ...], Choice], list[Decision]]
"""Makes kernels one, by rules in passes and a choice; gives what it decided, in order."""


def partition(
    graph: Graph,
    without: Collection[str] = (),
    choose: Choice = object_to,
    roofs: Roofs = STATED,
    combine: Combine | None = None,
    in_tiles: InTiles | None = None,
) -> Partition:
    """Divide the graph into kernels (subgraphs). Source: NeoFlow, section 5 (training-aware fusion), greedy form.

    without: names of `RULES` that are not tried. choose: which legal fusions are done, see `Choice`. roofs: of the
    machine that runs them, by which kernels are compared. combine: makes kernels one; None: site by site, which is as
    good as the best reward first, and takes half of its time (`python -m benchmarks.fusion`). in_tiles: which kernels
    may have sums that ride along, see `RIDERS`; None: none.
    Raises `PartitionError` for a name that no rule has.
    """
    names = [rule.name for rule in RULES]
    for name in without:
        if name not in names:
            raise PartitionError(f"there is no rule {name!r}; there are {', '.join(names)}")
    facts = Facts.of(graph)
    storing = Storing(facts)
    decisions = go_through(facts, storing, _left(STORAGE, without), choose)
    kernels = Kernels(storing.settle(), roofs, *(() if in_tiles is None else (in_tiles,)))
    left = {*without} if in_tiles is not None else {*without, RIDERS.name}
    decisions += (combine or go_through)(facts, kernels, _left(KERNELS, left), choose)
    views, wholes = kernels.storage.views, kernels.storage.wholes
    return Partition(tuple(in_order(kernels.calls(), views, wholes)), views, tuple(decisions), wholes)


def _left(passes: tuple[Pass, ...], without: Collection[str]) -> tuple[Pass, ...]:
    return tuple(Pass(p.sites, tuple(rule for rule in p.rules if rule.name not in without)) for p in passes)


def go_through(facts: Facts, state: Any, passes: tuple[Pass, ...], choose: Choice) -> list[Decision]:
    """Apply what is legal and chosen, pass by pass and site by site."""
    decisions: list[Decision] = []
    for p in passes:
        for site in p.sites(state):
            tick()
            for rule in p.rules:
                for candidate in rule.propose(state, site):
                    subject, verdict = rule.subject(state, candidate), judged(rule, facts, state, candidate, choose)
                    decisions.append(Decision(rule.name, subject, verdict))
                    if verdict.ok:
                        rule.apply(state, candidate)
    return decisions


def judged(rule: Rule[Any, Any, Any], facts: Facts, state: Any, candidate: Any, choose: Choice) -> Verdict:
    """Whether a candidate is legal and chosen."""
    verdict = rule.legal(facts, state, candidate)
    if verdict.ok and (objection := choose(rule.name, facts, state, candidate)) is not None:
        return Verdict(False, objection)
    return verdict

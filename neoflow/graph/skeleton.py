"""Definitions apart from their offsets: the constants of the addresses they read at, the numbers they compare with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neoflow.expr import affine
from neoflow.expr.guards import Guards, conjuncts, guarded_reads
from neoflow.expr.ir import Apply, Cast, Expr, Read, Scatter, Slot, postorder, same
from neoflow.expr.memo import remembered
from neoflow.expr.spans import bounds_under, comparison
from neoflow.expr.tensor import Definition
from neoflow.graph.facts import address, contiguous_offset

NUMBER = "int32"
"""What conditions are compared in: as many lanes as float32 has."""

Ranges = tuple[tuple[int, int], ...]
"""The first and the last address of each of several runs."""


@dataclass(frozen=True)
class Skeleton:
    """A body and what of it may differ in others of its kind, in the order of computing.

    reads: at linear forms, outside of indices. comparisons: of linear forms with a number each.
    """

    body: Expr
    reads: tuple[Read, ...]
    comparisons: tuple[Expr, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The constants of the addresses."""
        return tuple(address(r)[1] for r in self.reads)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(found[2] for e in self.comparisons if (found := comparison(e)) is not None)


@dataclass(frozen=True)
class Moves:
    """What differs in definitions of a kind, by place. runs: reads, those together that differ alike."""

    runs: tuple[tuple[int, ...], ...] = ()
    conditions: tuple[int, ...] = ()


@remembered
def skeleton(definition: Definition) -> Skeleton:
    """There is nothing to move in what scatters, nor in what is itself a run."""
    body = definition.body
    if isinstance(body, Scatter) or contiguous_offset(definition) is not None:
        return Skeleton(body, (), ())
    outside = _outside_indices(body)
    looked_up = {n.slot for r in definition.reads for i in r.indices for n in postorder(i) if isinstance(n, Read)}
    reads = (e for e in outside if isinstance(e, Read) and e.indices and e.slot not in looked_up)
    comparisons = (e for e in outside if (form := comparison(e)) is not None and _fits(form[2]))
    return Skeleton(body, tuple(r for r in reads if not _reads_data(r)), tuple(comparisons))


@remembered
def kind(definition: Definition) -> tuple[tuple[int, ...], ...] | None:
    """Equal for definitions that differ in offsets alone; None for those that have none."""
    found = skeleton(definition)
    if not found.reads and not found.comparisons:
        return None
    sources = tuple(r.slot for r in found.reads)
    return definition.shape, (_without_offsets(definition).uid,), sources


@remembered
def kind_with_numbers(definition: Definition) -> tuple[tuple[int, ...], ...] | None:
    """Equal for definitions that differ in addresses alone."""
    found = kind(definition)
    return None if found is None else (*found, skeleton(definition).numbers)


def differences(definitions: Sequence[Definition]) -> Moves:
    """Of definitions of one kind."""
    found = [skeleton(d) for d in definitions]
    if not found:
        return Moves()
    first, groups = found[0], dict[tuple[int, ...], list[int]]()
    for n, read in enumerate(first.reads):
        if any(s.reads[n] is not read for s in found):
            alike = (read.slot, *(s.starts[n] - first.starts[n] for s in found))
            groups.setdefault(alike, []).append(n)
    conditions = (n for n, number in enumerate(first.numbers) if any(s.numbers[n] != number for s in found))
    return Moves(tuple(map(tuple, groups.values())), tuple(conditions))


@remembered
def numbers(definition: Definition, moves: Moves) -> tuple[int, ...]:
    """What the conditions that differ compare with."""
    return tuple(skeleton(definition).numbers[n] for n in moves.conditions)


def slots(definition: Definition, moves: Moves) -> tuple[int, ...]:
    """What each run is of."""
    return tuple(skeleton(definition).reads[run[0]].slot for run in moves.runs)


@remembered
def reached(definition: Definition, moves: Moves) -> Ranges | None:
    """Where each run lies; None where a read stays inside its tensor only under conditions that differ."""
    found = skeleton(definition)
    differing = {found.comparisons[n] for n in moves.conditions}
    differing |= {c for e in differing for c in conjuncts(e, False)}
    run_of = {found.reads[n]: run for run, places in enumerate(moves.runs) for n in places}
    ranges: dict[int, tuple[int, int]] = {}
    for read, guards in guarded_reads(definition.body):
        kept = tuple(g for g in guards if g not in differing)
        if read in run_of:
            low, high = bounds_under(address(read), kept)
            if low < 0 or high >= math.prod(read.source.shape):
                return None
            first, last = ranges.get(run_of[read], (low, high))
            ranges[run_of[read]] = min(first, low), max(last, high)
        elif len(kept) < len(guards) and not _reads_data(read) and not _stays_inside(read, kept):
            return None
    return tuple(ranges[run] for run in range(len(moves.runs)))


def moved(definition: Definition, moves: Moves) -> Expr:
    """The body over its slots and, behind them, its runs and the numbers of its conditions."""
    found, ranges, first = skeleton(definition), reached(definition, moves) or (), len(definition.slots)
    new: dict[Expr, Expr] = {}
    for run, (places, (low, high)) in enumerate(zip(moves.runs, ranges, strict=True), first):
        for n in places:
            new[found.reads[n]] = _read_from(low, Slot(run, (high - low + 1,), found.reads[n].dtype), found.reads[n])
    table = Slot(first + len(ranges), (len(moves.conditions),), NUMBER)
    new |= {
        found.comparisons[n]: _compared_with(table, k, found.comparisons[n]) for k, n in enumerate(moves.conditions)
    }
    return _replaced(definition.body, new)


@remembered
def _without_offsets(definition: Definition) -> Expr:
    """The body with a slot for each read and one for all numbers: no program, but equal for all of a kind."""
    found, first = skeleton(definition), len(definition.slots)
    new: dict[Expr, Expr] = {}
    for n, (read, start) in enumerate(zip(found.reads, found.starts, strict=True)):
        new[read] = _read_from(start, Slot(first + n, read.source.shape, read.dtype), read)
    table = Slot(first + len(found.reads), (len(found.comparisons),), NUMBER)
    new |= {e: _compared_with(table, n, e) for n, e in enumerate(found.comparisons)}
    return _replaced(definition.body, new)


def _read_from(start: int, source: Slot, read: Read) -> Read:
    terms, constant = address(read)
    return Read(source, (affine.from_linear((terms, constant - start)),))


def _compared_with(table: Slot, n: int, condition: Expr) -> Expr:
    form = comparison(condition)
    assert form is not None
    left = Cast(NUMBER, affine.from_linear((dict(form[0]), 0)))
    return Apply(form[1], (left, Read(table, (affine.integer(n),))))


def _replaced(body: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """The body with some of what is outside of its indices replaced; no index changes."""
    made: dict[Expr, Expr] = {}
    for e in postorder(body):
        children = e.children if isinstance(e, Read) else tuple(made[c] for c in e.children)
        made[e] = new[e] if e in new else e if same(e.children, children) else e.rebuild(children)
    return made[body]


def _outside_indices(body: Expr) -> list[Expr]:
    """What a body computes, apart from indices, in the order of computing."""
    found, stack = set[Expr](), [body]
    while stack:
        e = stack.pop()
        if e not in found:
            found.add(e)
            stack.extend(() if isinstance(e, Read) else e.children)
    return [e for e in postorder(body) if e in found]


def _reads_data(read: Read) -> bool:
    return any(isinstance(n, Read) for i in read.indices for n in postorder(i))


def _fits(number: int) -> bool:
    info = np.iinfo(NUMBER)
    return bool(info.min <= number <= info.max)


def _stays_inside(read: Read, guards: Guards) -> bool:
    ranges = [bounds_under(affine.linear(i), guards) for i in read.indices]
    return all(low >= 0 and high < n for (low, high), n in zip(ranges, read.source.shape, strict=True))

"""Constants of addresses and conditions, moved out of bodies: steps that differ in nothing else are then one kernel.

A step of a recurrence reads a diagonal of a table, or goes on where the last one stopped, under conditions that say how
far it has come. What it reads becomes the run of memory that begins where the step does, and costs nothing (`partition`
makes a view of it); the numbers of its conditions are read from a table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.guards import conjuncts, guarded_reads
from neoflow.expr.ir import Apply, Binder, Cast, Expr, Read, Scatter, Slot, postorder, same
from neoflow.expr.memo import remembered
from neoflow.expr.spans import bounds_under, comparison
from neoflow.expr.tensor import Compute, Constant, Definition, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import address, contiguous_offset, is_move, run_of
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

FEW, MANY = 8, 32
"""Bodies of a kind that may differ in where they read, and those that may differ in conditions, too. Read elsewhere, a
kernel is as fast as it was; but one that knows its conditions leaves out what they leave out: 63 steps over a table of
32 rows take 68 us with kernels of their own, which compile in 20 s, and 94 us with shared ones (Zen 5, two threads)."""

NUMBER = "int32"
"""What conditions are compared in: as many lanes as float32 has."""


@dataclass(frozen=True)
class MoveReads(Rewrite):
    """Computes that differ in the constants of addresses alone read the runs of memory which begin at these.

    a[i] = x[i, 9 - i] * y[i];  b[i] = x[i, 8 - i] * y[i]                                      x: n x 10
        ->  p[u] = x[(u + 9) // 10, (u + 9) % 10];  a[i] = p[9 * i] * y[i]
            q[u] = x[(u + 8) // 10, (u + 8) % 10];  b[i] = q[9 * i] * y[i]
    """

    name: str = "move reads"
    few: int = FEW

    @staticmethod
    def kind(definition: Definition) -> Hashable | None:
        """Equal for definitions that are equal once they are rewritten."""
        return _kind_with_numbers(definition)

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """All computes of a kind, found at the first of them."""
        numbers = editor.alike(t, self.kind)
        if len(numbers) <= self.few or numbers[0] != editor.number(t):
            return
        steps = tuple(s for n in numbers if isinstance(s := editor.tensor(n), Compute))
        if len({s.definition for s in steps}) > self.few:
            yield Match(steps)

    def legal(self, editor: Editor, match: Match) -> Verdict:
        steps, moves = _movable(editor, match.tensors)
        distinct = len({s.definition for s in steps})
        if distinct > self.few:
            what = "addresses and conditions" if moves.conditions else "addresses"
            return Verdict(True, f"{distinct} bodies differ in the constants of {what} alone")
        return Verdict(
            False, "what they read has no memory, they are parts of one sum, or a condition that differs counts"
        )

    def apply(self, editor: Editor, match: Match) -> Edit:
        steps, moves = _movable(editor, match.tensors)
        rows = {numbers: n for n, numbers in enumerate(dict.fromkeys(_numbers(s.definition, moves) for s in steps))}
        table = Constant(np.array(list(rows), NUMBER), "numbers") if moves.conditions else None
        runs: dict[tuple[Tensor, int, int], Compute] = {}
        edit: dict[Tensor, Tensor] = {}
        for t in reversed(steps):  # who reads another before that one, so that the editor looks at each once
            inputs, added = editor.inputs(t), list[Tensor]()
            for slot, (low, high) in (_reached(t.definition, moves) or {}).items():
                place = (inputs[slot], low, high - low + 1)
                if place not in runs:
                    runs[place] = run_of(*place)
                added.append(runs[place])
            if table is not None:
                count = len(moves.conditions)
                added.append(run_of(table, rows[_numbers(t.definition, moves)] * count, count))
            edit[t] = build(t.shape, _moved(t.definition, moves), (*inputs, *added), t.name)
        return edit


@dataclass(frozen=True)
class MoveNumbers(MoveReads):
    """Computes that differ in the numbers of their conditions, and perhaps in where they read, read these numbers.

    a[i] = select(i < 3, x[i + 9], 0);  b[i] = select(i < 4, x[i + 8], 0)
        ->  m[] = 3;  p[u] = x[u + 9];  a[i] = select(i < m[], p[i], 0)
            n[] = 4;  q[u] = x[u + 8];  b[i] = select(i < n[], q[i], 0)
    """

    name: str = "move numbers"
    few: int = MANY

    @staticmethod
    def kind(definition: Definition) -> Hashable | None:
        return _kind(definition)


@dataclass(frozen=True)
class _Skeleton:
    """A definition apart from its offsets: `body` has none, and is the same for those that differ in nothing else.

    reads: of each slot that is read at linear forms alone. comparisons: of linear forms with a number each, in the
    order of the body.
    """

    body: Expr
    reads: Mapping[int, tuple[Read, ...]]
    comparisons: tuple[Expr, ...]


@dataclass(frozen=True)
class _Moves:
    """What differs in definitions of a kind: the slots that are read elsewhere, the comparisons with other numbers."""

    slots: tuple[int, ...]
    conditions: tuple[int, ...]


def _movable(editor: Editor, kind: Sequence[Compute]) -> tuple[list[Compute], _Moves]:
    """Those of a kind whose offsets can be moved, and where they differ."""
    moves = _differences(kind)
    sources = Counter(source for t in kind for source in _read_in(editor, t, moves.slots))
    moved_by = Counter(r for t in kind for r in editor.each_reader(t) if is_move(t.definition))

    def can_move(t: Compute) -> bool:
        readers = editor.readers(t)
        if is_move(t.definition) and len(readers) == 1 and moved_by[readers[0]] > FEW:
            return False  # a part of one sum, in whose kernels it is computed
        has_memory = all(sources[s] > FEW or _is_stored(editor, s) for s in _read_in(editor, t, moves.slots))
        return has_memory and _reached(t.definition, moves) is not None

    steps = [t for t in kind if can_move(t)]
    return steps, _differences(steps)


def _read_in(editor: Editor, t: Compute, slots: Sequence[int]) -> tuple[Tensor, ...]:
    inputs = editor.inputs(t)
    return tuple(inputs[slot] for slot in slots)


def _is_stored(editor: Editor, t: Tensor) -> bool:
    """Whether t has memory for certain, or is read at the same address whether it has or not."""
    if sum(n > 1 for n in t.shape) <= 1 or not isinstance(t, Compute) or editor.is_root(t):
        return True
    if contiguous_offset(t.definition) is not None:
        return _is_stored(editor, editor.inputs(t)[0])
    return isinstance(t.definition.body, Binder)


@remembered
def _skeleton(definition: Definition) -> _Skeleton | None:
    """None where there is no offset, or the definition is itself a run."""
    body = definition.body
    if isinstance(body, Scatter) or contiguous_offset(definition) is not None:
        return None
    outside = _outside_indices(body)
    reads: dict[int, list[Read]] = {}
    for e in outside:
        if isinstance(e, Read):
            reads.setdefault(e.slot, []).append(e)
    looked_up = {n.slot for r in definition.reads for i in r.indices for n in postorder(i) if isinstance(n, Read)}
    linear = {
        slot: tuple(found)
        for slot, found in reads.items()
        if slot not in looked_up and definition.slots[slot].shape and not any(map(_reads_data, found))
    }
    comparisons = tuple(e for e in outside if (form := comparison(e)) is not None and _fits(form[2]))
    if not linear and not comparisons:
        return None
    written = _Skeleton(body, linear, comparisons)
    moves = _Moves(tuple(linear), tuple(range(len(comparisons))))
    starts = {slot: min(address(r)[1] for r in of_slot) for slot, of_slot in linear.items()}
    runs = {slot: Slot(slot, (math.prod(s.shape),), s.dtype) for slot, s in enumerate(definition.slots)}
    return _Skeleton(_without_offsets(written, moves, runs, starts, len(runs)), linear, comparisons)


@remembered
def _kind(definition: Definition) -> tuple[tuple[int, ...], int] | None:
    """Equal for definitions that differ in offsets alone."""
    skeleton = _skeleton(definition)
    return None if skeleton is None else (definition.shape, skeleton.body.uid)


@remembered
def _kind_with_numbers(definition: Definition) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """Equal for definitions that differ in addresses alone."""
    skeleton = _skeleton(definition)
    return None if skeleton is None else (definition.shape, skeleton.body.uid, _compared_with(skeleton))


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


def _differences(kind: Sequence[Compute]) -> _Moves:
    found = [s for t in kind if (s := _skeleton(t.definition)) is not None]
    if not found:
        return _Moves((), ())
    first = found[0]
    slots = tuple(n for n, reads in first.reads.items() if not all(same(s.reads[n], reads) for s in found))
    numbers = [_compared_with(s) for s in found]
    return _Moves(slots, tuple(p for p, n in enumerate(numbers[0]) if any(other[p] != n for other in numbers)))


def _compared_with(skeleton: _Skeleton) -> tuple[int, ...]:
    return tuple(found[2] for e in skeleton.comparisons if (found := comparison(e)) is not None)


@remembered
def _numbers(definition: Definition, moves: _Moves) -> tuple[int, ...]:
    """What the conditions that differ compare with."""
    skeleton = _skeleton(definition)
    assert skeleton is not None
    found = _compared_with(skeleton)
    return tuple(found[p] for p in moves.conditions)


@remembered
def _reached(definition: Definition, moves: _Moves) -> dict[int, tuple[int, int]] | None:
    """By slot that is read elsewhere the first and the last address; None where a read stays inside its tensor only
    under conditions that differ."""
    skeleton = _skeleton(definition)
    assert skeleton is not None
    differing = {skeleton.comparisons[p] for p in moves.conditions}
    differing |= {c for e in differing for c in conjuncts(e, False)}
    found: dict[int, tuple[int, int]] = {}
    for read, guards in guarded_reads(definition.body):
        kept = tuple(g for g in guards if g not in differing)
        if read.slot in moves.slots:
            low, high = bounds_under(address(read), kept)
            if low < 0 or high >= math.prod(read.source.shape):
                return None
            first, last = found.get(read.slot, (low, high))
            found[read.slot] = min(first, low), max(last, high)
        elif len(kept) < len(guards) and not _reads_data(read) and not _stays_inside(read, kept):
            return None
    return found


def _stays_inside(read: Read, guards: tuple[Expr, ...]) -> bool:
    ranges = [bounds_under(affine.linear(i), guards) for i in read.indices]
    return all(low >= 0 and high < n for (low, high), n in zip(ranges, read.source.shape, strict=True))


def _moved(definition: Definition, moves: _Moves) -> Expr:
    """The body over its slots and, behind them, the runs it reads and the numbers it compares with."""
    skeleton, reached = _skeleton(definition), _reached(definition, moves)
    assert skeleton is not None and reached is not None
    first = len(definition.slots)
    runs = {
        slot: Slot(n, (high - low + 1,), definition.slots[slot].dtype)
        for n, (slot, (low, high)) in enumerate(reached.items(), first)
    }
    starts = {slot: low for slot, (low, _) in reached.items()}
    original = _Skeleton(definition.body, skeleton.reads, skeleton.comparisons)
    return _without_offsets(original, moves, runs, starts, first + len(runs))


def _without_offsets(
    of: _Skeleton, moves: _Moves, runs: Mapping[int, Slot], starts: Mapping[int, int], numbers: int
) -> Expr:
    """The body of a skeleton with reads of runs, which begin at addresses, and of the slot `numbers`."""
    new: dict[Expr, Expr] = {}
    for slot in moves.slots:
        for read in of.reads[slot]:
            terms, constant = address(read)
            new[read] = Read(runs[slot], (affine.from_linear((terms, constant - starts[slot])),))
    table = Slot(numbers, (len(moves.conditions),), NUMBER)
    for n, place in enumerate(moves.conditions):
        form = comparison(of.comparisons[place])
        assert form is not None
        left = Cast(NUMBER, affine.from_linear((dict(form[0]), 0)))
        new[of.comparisons[place]] = Apply(form[1], (left, Read(table, (affine.integer(n),))))
    made: dict[Expr, Expr] = {}
    for e in postorder(of.body):
        children = e.children if isinstance(e, Read) else tuple(made[c] for c in e.children)
        made[e] = new[e] if e in new else e if same(e.children, children) else e.rebuild(children)
    return made[of.body]

"""Constants of addresses and conditions, moved out of bodies: steps that differ in nothing else are then one kernel.

A step of a recurrence reads a diagonal of a table, or goes on where the last one stopped, under conditions that say how
far it has come. What it reads becomes the run of memory that begins where the step does, and costs nothing (`partition`
makes a view of it); the numbers of its conditions are read from a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.expr.close import build
from neoflow.expr.ir import Binder, Read
from neoflow.expr.tensor import Compute, Constant, Definition, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import contiguous_offset, is_move, run_of
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.graph.skeleton import (
    NUMBER,
    Moves,
    differences,
    kind,
    kind_with_numbers,
    moved,
    numbers,
    reached,
    slots,
)
from neoflow.verdict import Verdict

FEW, MANY = 8, 32
"""Bodies of a kind that may differ in where they read, and those that may differ in conditions, too. Read elsewhere, a
kernel is as fast as it was; but one that knows its conditions leaves out what they leave out: 63 steps over a table of
32 rows take 68 us with kernels of their own, which compile in 20 s, and 94 us with shared ones (Zen 5, two threads)."""


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
        return kind_with_numbers(definition)

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """All computes of a kind, found at the first of them."""
        alike = editor.alike(t, self.kind)
        if len(alike) <= self.few or alike[0] != editor.number(t):
            return
        steps = tuple(s for n in alike if isinstance(s := editor.tensor(n), Compute))
        if len({s.definition for s in steps}) > self.few:
            yield Match(steps)

    def legal(self, editor: Editor, match: Match) -> Verdict:
        steps, moves = _movable(editor, match.tensors)
        distinct = len({s.definition for s in steps})
        if distinct > self.few:
            what = "addresses and conditions" if moves.conditions else "addresses"
            return Verdict(True, f"{distinct} bodies differ in the constants of {what} alone")
        return Verdict(
            False, "what they read has no memory, they are moves of one sum, or a condition that differs guards them"
        )

    def apply(self, editor: Editor, match: Match) -> Edit:
        steps, moves = _movable(editor, match.tensors)
        rows = {n: row for row, n in enumerate(dict.fromkeys(numbers(t.definition, moves) for t in steps))}
        count = len(moves.conditions)
        table = Constant(np.array(list(rows), NUMBER), "numbers") if count else None
        runs: dict[tuple[Tensor, int, int], Compute] = {}
        edit: dict[Tensor, Tensor] = {}
        for t in reversed(steps):  # who reads another before that one, so that the editor looks at each once
            inputs, ranges = editor.inputs(t), reached(t.definition, moves) or ()
            pairs = zip(slots(t.definition, moves), ranges, strict=True)
            places = [(inputs[slot], low, high - low + 1) for slot, (low, high) in pairs]
            if table is not None:
                places.append((table, rows[numbers(t.definition, moves)] * count, count))
            runs.update({p: run_of(*p) for p in places if p not in runs})
            edit[t] = build(t.shape, moved(t.definition, moves), (*inputs, *map(runs.__getitem__, places)), t.name)
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
        return kind(definition)


def _movable(editor: Editor, alike: Sequence[Compute]) -> tuple[list[Compute], Moves]:
    """Those of a kind whose offsets can be moved, and where they differ."""
    moves = differences([t.definition for t in alike])
    sources = Counter(source for t in alike for source in _sources(editor, t, moves))
    moved_by = Counter(r for t in alike for r in editor.each_reader(t) if is_move(t.definition))

    def can_move(t: Compute) -> bool:
        readers = editor.readers(t)
        if is_move(t.definition) and len(readers) == 1 and moved_by[readers[0]] > FEW:
            return False  # it is computed in the kernels of that sum
        has_memory = all(_has_memory(editor, s, sources[s]) for s in _sources(editor, t, moves))
        return has_memory and reached(t.definition, moves) is not None

    steps = [t for t in alike if can_move(t)]
    return steps, differences([t.definition for t in steps])


def _sources(editor: Editor, t: Compute, moves: Moves) -> set[Tensor]:
    """What t reads at places that differ."""
    inputs = editor.inputs(t)
    return {inputs[slot] for slot in slots(t.definition, moves)}


def _has_memory(editor: Editor, t: Tensor, readers: int) -> bool:
    """Whether t is stored for certain, or is read at the same address whether it is or not."""
    if sum(n > 1 for n in t.shape) <= 1 or not isinstance(t, Compute) or editor.is_root(t):
        return True
    if contiguous_offset(t.definition) is not None:
        return _has_memory(editor, editor.inputs(t)[0], readers)
    body = t.definition.body
    return isinstance(body, Binder) or (readers > FEW and not isinstance(body, Read))

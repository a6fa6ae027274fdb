"""Recurrences in segments: what steps back read of steps forward is computed again, a segment at a time.

    forward   h[t+1] = f(h[t], x[t]),  kept: k[t]            all T steps
    back      g[t] = b(g[t+1], k[t], ...),  dw = sum[t](dw[t])
        ->
    forward   S segments of L steps, of which the state is kept where they begin; then the other R steps, with k kept
    back      those R steps;  then, for each segment, last ones first: k again from the state kept, the L steps back,
              and dw + the sum of the segment's dw

Both are loops over loops, and whatever is done to a loop is done to these. Sums over time are sums of segments' sums,
so that they may be rounded otherwise.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, section 3; the last segment is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from neoflow.expr.dsl import sum as total
from neoflow.expr.ir import Read, Reduce
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.shape.join import concat
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Compute, Placeholder, Tensor
from neoflow.graph import Graph


@dataclass(frozen=True, eq=False)
class Pair:
    """A run and the one that goes back through what its steps had.

    lost: what only that one reads of it, step by step. led: all that leads out of the two. sums: by what leads out of
    the second, sums over the steps where these alone read it.
    """

    forward: Run
    back: Run
    lost: tuple[Stacked, ...]
    led: tuple[Looped, ...]
    sums: dict[Looped, tuple[Compute, ...]]

    @property
    def steps(self) -> int:
        return self.forward.recurrence.steps

    @cached_property
    def row_bytes(self) -> int:
        """Of what is lost, in a step."""
        return sum(t.nbytes for t in self.lost) // self.steps

    @cached_property
    def state_bytes(self) -> int:
        """Of what a step gives to the next."""
        return sum(c.nbytes for c in self.forward.recurrence.carried)

    def length(self, segments: int) -> int:
        """The steps of so many segments, each; as many as are not computed again, or one more."""
        return -(-self.steps // (segments + 1))

    def rest(self, segments: int) -> int:
        """The steps that are not computed again."""
        return self.steps - segments * self.length(segments)

    def kept_bytes(self, segments: int) -> int:
        """Of what is kept of the steps while they go forward, and computed again for one segment at a time."""
        return segments * self.state_bytes + max(self.rest(segments), self.length(segments)) * self.row_bytes


def pairs(graph: Graph) -> tuple[Pair, ...]:
    """The runs of a graph of which another one that goes back reads what nobody else does, in their order."""
    readers: dict[Tensor, set[Run | Tensor | None]] = {t: {None} for t in graph.roots}
    for t in graph.order:
        for i in t.inputs:
            readers.setdefault(i, set()).add(t.run if isinstance(t, Looped) else t)
    found: list[Pair] = []
    for run in runs_of(graph.order):
        led = [t for t in graph.order if isinstance(t, Looped) and t.run is run]
        by_back: dict[Run, list[Stacked]] = {}
        for t in led:
            read = readers.get(t, set())
            back = next(iter(read)) if len(read) == 1 else None
            if isinstance(t, Stacked) and isinstance(back, Run) and _goes_back_through(back, run, t):
                by_back.setdefault(back, []).append(t)
        if not by_back:
            continue
        back = max(by_back, key=lambda b: sum(t.nbytes for t in by_back[b]))
        of_back = [t for t in graph.order if isinstance(t, Looped) and t.run is back]
        sums: dict[Looped, tuple[Compute, ...]] = {}
        for t in of_back:
            own = readers.get(t, set())
            totals = tuple(s for s in own if isinstance(s, Compute) and _is_sum_of_steps(s))
            if isinstance(t, Stacked) and len(totals) == len(own):
                sums[t] = totals
        found.append(Pair(run, back, tuple(by_back[back]), (*led, *of_back), sums))
    return tuple(found)


def in_segments(graph: Graph, segments: dict[Recurrence, int]) -> Graph:
    """The graph in which the pairs of these forward recurrences go in so many segments, and what is left at once."""
    for recurrence, count in segments.items():
        pair = next((p for p in pairs(graph) if p.forward.recurrence is recurrence), None)
        if pair is not None and count and pair.rest(count) > 0:
            graph = graph.with_roots(replaced(graph.roots, _Segments(pair, count).instead.get))
    return graph


def _goes_back_through(back: Run, run: Run, t: Stacked) -> bool:
    """Whether a run reads a stack of another one step by step, last ones first, and at no other place."""
    b, r = back.recurrence, run.recurrence
    as_slices = {p for p, i in back.by_placeholder.items() if i is t} <= set(b.slices)
    return back is not run and b.steps == r.steps and b.is_reversed != r.is_reversed and as_slices


def _is_sum_of_steps(t: Compute) -> bool:
    """s[i] = sum[t](v[t, i])"""
    match t.definition.body:
        case Reduce(op="sum", axes=(a,), body=Read(indices=(first, *rest))) if first is a and len(t.inputs) == 1:
            axes = t.definition.axes
            return len(rest) == len(axes) and all(i is b for i, b in zip(rest, axes, strict=True))
    return False


class _Segments:
    """instead: what there is in the place of all that leads out of a pair, and of its sums."""

    def __init__(self, pair: Pair, count: int):
        self.pair, self.count, self.length = pair, count, pair.length(count)
        self.rest = pair.rest(count)
        self.is_first = pair.forward.recurrence.is_reversed
        """whether what is not in segments has the first indices: it is what runs last"""
        self.instead: dict[Tensor, Tensor] = {}
        self.parts: dict[Tensor, tuple[Tensor, Tensor]] = {}
        """by stack: that of each segment [S, L, ...], and of the other steps [R, ...]"""
        self._forward()
        self._back()

    def _forward(self) -> None:
        run, r = self.pair.forward, self.pair.forward.recurrence
        outer = _Outer(self, r.is_reversed)
        self.states = [outer.carry(c, run.by_placeholder[c]) for c in r.carried]
        self.of_segment = replace(r, steps=self.length)
        inner = Run(self.of_segment, (*self.states, *outer.inputs(run)))
        led = [t for t in self.pair.led if t.run is run]
        kept = [t for t in led if isinstance(t, Stacked) and t not in self.pair.lost]
        self.first = outer.run([inner.last(n) for n in range(len(r.carried))])
        end = [self.first.last(n) for n in range(len(r.carried))]
        self.tail = Run(replace(r, steps=self.rest), (*end, *self._rests(run)))
        for t in kept:
            parts = self.first.stacked(inner.stacked(t.of, t.name)), self.tail.stacked(t.of, t.name)
            self.parts[t], self.instead[t] = parts, self._joined(*parts)
        self.instead |= {t: self.tail.last(t.number, t.name) for t in led if isinstance(t, Last)}

    def _back(self) -> None:
        run, back, r = self.pair.forward, self.pair.back, self.pair.back.recurrence
        lost = {t: t.of for t in self.pair.lost}
        tail_stacks = {t: self.tail.stacked(of, t.name) for t, of in lost.items()}
        first = [back.by_placeholder[c] for c in r.carried]
        tail = Run(replace(r, steps=self.rest), (*first, *self._rests(back, tail_stacks)))
        outer = _Outer(self, r.is_reversed)
        carried = [outer.carry(c, tail.last(n)) for n, c in enumerate(r.carried)]
        kept = [outer.slice(self.first.stacked(c), c) for c in self.states]
        again = Run(self.of_segment, (*kept, *outer.inputs(run)))
        stacks = {t: again.stacked(of, t.name) for t, of in lost.items()}
        inner = Run(replace(r, steps=self.length), (*carried, *outer.inputs(back, stacks)))
        then: list[Tensor] = [inner.last(n) for n in range(len(r.carried))]
        sums: dict[Tensor, int] = {}
        for t in self.pair.sums:
            sums[t] = len(then)
            so_far = outer.carry(t.of, total(tail.stacked(t.of, t.name), axis=0))
            then.append(so_far + total(inner.stacked(t.of, t.name), axis=0))
        found = outer.run(then)
        for t in self.pair.led:
            if t.run is not back:
                continue
            if isinstance(t, Last):
                self.instead[t] = found.last(t.number, t.name)
            elif t in sums:
                self.instead |= {s: found.last(sums[t], s.name) for s in self.pair.sums[t]}
            else:
                self.instead[t] = self._joined(found.stacked(inner.stacked(t.of, t.name)), tail.stacked(t.of, t.name))

    def _rests(self, run: Run, own: dict[Stacked, Tensor] | None = None) -> list[Tensor]:
        """What slices and what is fixed are of in the steps that are not in segments."""
        r, found = run.recurrence, list[Tensor]()
        for s in r.slices:
            t = run.by_placeholder[s]
            found.append(own[t] if own and isinstance(t, Stacked) and t in own else self.part(t)[1])
        return [*found, *(run.by_placeholder[p] for p in r.fixed)]

    def part(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Those of a stack, see `parts`."""
        if t not in self.parts:
            at = self.rest if self.is_first else self.count * self.length
            early, late = t[:at], t[at:]
            main, rest = (late, early) if self.is_first else (early, late)
            self.parts[t] = reshape(main, (self.count, self.length, *t.shape[1:])), rest
        return self.parts[t]

    def _joined(self, main: Tensor, rest: Tensor) -> Tensor:
        """The stack of all steps."""
        main = reshape(main, (self.count * self.length, *rest.shape[1:]))
        return concat([rest, main] if self.is_first else [main, rest])


class _Outer:
    """The loop over segments, while its body is written."""

    def __init__(self, segments: _Segments, is_reversed: bool):
        self.segments, self.is_reversed = segments, is_reversed
        self.carried: dict[Placeholder, Tensor] = {}
        self.slices: dict[Tensor, Placeholder] = {}
        self.fixed: dict[Tensor, Placeholder] = {}

    def carry(self, like: Tensor, first: Tensor) -> Placeholder:
        p = Placeholder(first.shape, first.dtype, like.name, like.where)
        self.carried[p] = first
        return p

    def slice(self, of: Tensor, like: Tensor) -> Placeholder:
        """What stands for the element of a segment; one for each tensor."""
        if of not in self.slices:
            self.slices[of] = Placeholder(of.shape[1:], of.dtype, like.name, like.where)
        return self.slices[of]

    def inputs(self, run: Run, own: dict[Stacked, Tensor] | None = None) -> list[Tensor]:
        """What slices and what is fixed are of in a segment. own: what there is of its own in the place of stacks."""
        found: list[Tensor] = []
        for s in run.recurrence.slices:
            t = run.by_placeholder[s]
            if own and isinstance(t, Stacked) and t in own:
                found.append(own[t])
            else:
                found.append(self.slice(self.segments.part(t)[0], s))
        for p in run.recurrence.fixed:
            t = run.by_placeholder[p]
            if t not in self.fixed:
                self.fixed[t] = Placeholder(t.shape, t.dtype, p.name, p.where)
            found.append(self.fixed[t])
        return found

    def run(self, then: Sequence[Tensor]) -> Run:
        own = (tuple(self.carried), tuple(self.slices.values()), tuple(self.fixed.values()))
        r = self.segments.pair.forward.recurrence
        recurrence = Recurrence(*own, tuple(then), self.segments.count, self.is_reversed, r.where)
        return Run(recurrence, (*self.carried.values(), *self.slices, *self.fixed))

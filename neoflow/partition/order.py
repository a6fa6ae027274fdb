"""The order in which kernels run: updates after all other readers of what they overwrite, memory freed early."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.interp.analysis import analysed
from neoflow.expr.ir import Scatter
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.graph import Graph
from neoflow.partition.calls import Call, KernelCall, LoopCall, Partition
from neoflow.partition.overwrite import can_overwrite

MORE = 0.05
"""Part of the memory that an order may need beside the least, at most and on the whole, in which chains of sums begin
as soon as they can. Two threads of an idle Zen 4, in turns: mi_lstm_mnist (0.04 more on the whole) takes 0.96 of the
time, scrnn_mnist and sublstm_mnist, which need less, 0.94 and 0.90, lltm_mnist 0.99; of one thread, busy, 0.95, 0.92,
0.96 and 1.00; mi_lstm_ptb (0.18 more) would take 1.00 to 1.03."""


def order_calls(graph: Graph, kernels: Partition) -> tuple[tuple[Call, ...], frozenset[Parameter]]:
    """The kernels in the order they run, and the parameters whose update may overwrite them.

    An update is in place when every other reader of the parameter can run before its writer, and the writer reads the
    parameter only at the point it writes. Of the order of the program, and two with every kernel moved forward which
    frees at least as much as it allocates, the one is taken that needs the least memory, at most or else on the whole;
    but one in which chains of sums begin as soon as they can where that needs hardly more: a weight's gradient then
    takes up what a step of the backward pass has just made, which is in a core's cache.
    Where it costs no memory, indices that are read from data are checked before anything is overwritten: a fault then
    leaves every parameter as it was.
    """
    needs, in_place = _needs_and_updates(graph, kernels)
    memory = _Memory.of(graph, kernels, in_place)
    best = _best(needs, memory)
    writers = _writers(graph, kernels, in_place)
    checks = _first_checks(needs, kernels, writers)
    place = {n: k for k, n in enumerate(best)}
    if any(place[w] < place[n] for n in checks for w in writers if n != w):
        safe = _best([before | (checks - {n}) if n in writers else before for n, before in enumerate(needs)], memory)
        best = safe if memory.most(safe)[0] <= memory.most(best)[0] else best
    return tuple(kernels.calls[n] for n in best), in_place


def _best(needs: Sequence[set[int]], memory: _Memory) -> list[int]:
    orders = (_natural(needs), _frugal(needs, memory), _frugal(needs, memory, is_greedy=True))
    best = min(map(list, orders), key=memory.most)
    if not any(memory.begun):
        return best
    early = list(_frugal(needs, memory, is_greedy=True, is_early=True))
    pairs = zip(memory.most(early), memory.most(best), strict=True)
    return early if all(needed <= (1 + MORE) * least for needed, least in pairs) else best


def _writers(graph: Graph, kernels: Partition, in_place: frozenset[Parameter]) -> set[int]:
    """The kernels that overwrite a parameter."""
    values = {value for p, value in graph.updates if p in in_place}
    return {n for n, c in enumerate(kernels.calls) if not values.isdisjoint(c.outputs)}


def _first_checks(needs: Sequence[set[int]], kernels: Partition, writers: set[int]) -> set[int]:
    """Of the kernels that check indices, the first for each set of integer tensors, where it can run before `writers`.

    Those after it most often check the same indices again, and find nothing.
    """
    after: set[int] = set()
    first: dict[frozenset[Tensor], int] = {}
    for n in _natural(needs):
        call = kernels.calls[n]
        if not needs[n].isdisjoint(writers | after):
            after.add(n)
        elif any(
            isinstance(node.definition.body, Scatter) or analysed(node.definition).faulty
            for node in call.subgraph.nodes
        ):
            first.setdefault(frozenset(kernels.base(t) for t in call.inputs if dt.is_int(t.dtype)), n)
    return set(first.values())


def _needs_and_updates(graph: Graph, kernels: Partition) -> tuple[list[set[int]], frozenset[Parameter]]:
    """For each kernel those that run before it; the parameters that are overwritten."""
    calls = kernels.calls
    producer = {t: n for n, c in enumerate(calls) for t in c.outputs}
    bases = [{kernels.base(t) for t in c.inputs} for c in calls]
    readers: dict[Tensor, set[int]] = {}
    for n, read in enumerate(bases):
        for t in read:
            readers.setdefault(t, set()).add(n)
    made = [{m for t in c.inputs for m in kernels.makers(t)} for c in calls]
    needs: list[set[int]] = [{producer[t] for t in read if t in producer} for read in made]
    in_place: set[Parameter] = set()
    for p, value in graph.updates:
        writer = producer.get(value)
        if writer is None or sum(root is value for root in graph.roots) > 1:
            continue
        maker = calls[writer]
        if isinstance(maker, LoopCall):
            continue
        is_viewed = any(t is not p and kernels.base(t) is p for t in calls[writer].inputs)
        if is_viewed or not can_overwrite(maker, p, value):
            continue
        before = readers.get(p, set()) - {writer}
        if _reaches(needs, before, writer):
            continue
        needs[writer] |= before
        in_place.add(p)
    return needs, frozenset(in_place)


def _reaches(needs: Sequence[set[int]], starts: Iterable[int], target: int) -> bool:
    """Whether one of some kernels must run after kernel `target`."""
    stack, seen = list(starts), set[int]()
    while stack:
        m = stack.pop()
        if m == target:
            return True
        if m not in seen:
            seen.add(m)
            stack.extend(needs[m])
    return False


@dataclass(frozen=True)
class _Memory:
    """Temporaries by kernel: bytes that it allocates, what it reads; and the kernels that read each."""

    made: tuple[int, ...]
    reads: tuple[frozenset[Tensor], ...]
    readers: dict[Tensor, tuple[int, ...]]
    begun: tuple[int, ...]
    """of what it allocates, that which a chain of sums has from its first link to its last"""

    @staticmethod
    def of(graph: Graph, kernels: Partition, in_place: frozenset[Parameter]) -> _Memory:
        lasting = set(graph.outputs) | {value for p, value in graph.updates if p in in_place}
        kept = lasting | {value for _, value in graph.updates}
        produced = {kernels.base(t) for c in kernels.calls for t in c.outputs} - kept
        made = tuple(sum(t.nbytes for t in c.outputs if t not in lasting) for c in kernels.calls)
        reads = tuple(frozenset(b for t in c.inputs if (b := kernels.base(t)) in produced) for c in kernels.calls)
        readers: dict[Tensor, list[int]] = {}
        for n, read in enumerate(reads):
            for t in read:
                readers.setdefault(t, []).append(n)
        sums = {t for t, found in readers.items() if len(found) == 1 and _adds_to(kernels.calls[found[0]], t)}
        begun = tuple(
            0 if not sums.isdisjoint(read) else sum(t.nbytes for t in c.outputs if t in sums)
            for c, read in zip(kernels.calls, reads, strict=True)
        )
        return _Memory(made, reads, {t: tuple(found) for t, found in readers.items()}, begun)

    def left(self) -> dict[Tensor, int]:
        """The readers to come of each, before the first kernel."""
        return {t: len(found) for t, found in self.readers.items()}

    def most(self, order: Sequence[int]) -> tuple[int, int]:
        """Bytes of the largest live set, and of the live sets of all kernels together."""
        left, live, most, total = self.left(), 0, 0, 0
        for n in order:
            live += self.made[n]
            most, total = max(most, live), total + live
            live -= self.free(n, left)
        return most, total

    def free(self, n: int, left: dict[Tensor, int]) -> int:
        """Run kernel n: bytes that nobody reads afterwards; `left` counts the readers to come."""
        for t in self.reads[n]:
            left[t] -= 1
        return sum(t.nbytes for t in self.reads[n] if not left[t])

    def growth(self, n: int, left: dict[Tensor, int]) -> int:
        return self.made[n] - sum(t.nbytes for t in self.reads[n] if left[t] == 1)


def _adds_to(call: Call, t: Tensor) -> bool:
    """Whether a kernel adds its products to a tensor that is nothing else: where that is, what it makes is then."""
    if not isinstance(call, KernelCall) or call.subgraph.anchor is None:
        return False
    alike = [o for o in call.outputs if (o.shape, o.dtype) == (t.shape, t.dtype)]
    return t in call.inputs and any(can_overwrite(call, t, o) for o in alike)


def _natural(needs: Sequence[set[int]]) -> Iterator[int]:
    """The order of the program, as far as `needs` allows."""
    done: set[int] = set()
    for start in range(len(needs)):
        stack = [start]
        while stack:
            n = stack[-1]
            waiting = [m for m in sorted(needs[n], reverse=True) if m not in done]
            stack += waiting
            if not waiting:
                stack.pop()
                if n not in done:
                    done.add(n)
                    yield n


def _frugal(
    needs: Sequence[set[int]], memory: _Memory, is_greedy: bool = False, is_early: bool = False
) -> Iterator[int]:
    """The order of the program, but first of what can run goes a kernel that does not make the live set grow; of these,
    where it is greedy, the one that makes it least. is_early: what a chain of sums begins with does not count as grown,
    as it has to be there once anyhow."""
    place = {n: k for k, n in enumerate(_natural(needs))}
    missing = [len(before) for before in needs]
    dependents: list[list[int]] = [[] for _ in needs]
    for n, before in enumerate(needs):
        for m in before:
            dependents[m].append(n)
    left, done = memory.left(), set[int]()
    ready: list[tuple[int, int]] = []
    """what can run, by its place in the order of the program"""
    frugal: list[tuple[int, int, int]] = []
    """those of them that do not make the live set grow; none comes to do so while it waits"""

    def offer(n: int) -> None:
        if not missing[n]:
            heapq.heappush(ready, (place[n], n))
            growth = memory.growth(n, left) - (memory.begun[n] if is_early else 0)
            if growth <= 0:
                heapq.heappush(frugal, (growth if is_greedy else 0, place[n], n))

    for n in range(len(needs)):
        offer(n)
    while ready:
        n = heapq.heappop(frugal)[-1] if frugal else heapq.heappop(ready)[-1]
        if n in done:
            continue
        done.add(n)
        memory.free(n, left)
        yield n
        for m in dependents[n]:
            missing[m] -= 1
            offer(m)
        last = {m for t in memory.reads[n] if left[t] == 1 for m in memory.readers[t] if m not in done}
        for m in last:  # the last reader of something frees more than it did
            offer(m)

"""The rules of fusion: what each proposes, and when that is legal. Whether it is worth doing is said in `choose`.

A rule never changes what a program computes. `legal` holds whatever was chosen before, and answers with a sentence.
What code generation needs of a kernel is said in one place, `Subgraph.check`, and asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from neoflow.errors import ExpressionError, PartitionError
from neoflow.expr.ir import Reduce
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import contiguous_offset, is_contraction, is_move, pieces, reads_at_own_point
from neoflow.partition.composed import is_at_own_row
from neoflow.partition.facts import (
    checked_axes,
    is_exact,
    looks_up,
    looks_up_by_element,
    reads_columns,
    reduces,
)
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import Kernel, Kernels, Merge, ReducedRows, RowDims, Rows
from neoflow.partition.storage import Storage, Storing
from neoflow.partition.turned import Turn, common_turns, in_blocks
from neoflow.verdict import Verdict

State = TypeVar("State")
Site = TypeVar("Site")
Candidate = TypeVar("Candidate")


@dataclass(frozen=True)
class Rule(Generic[State, Site, Candidate]):
    """One way to fuse.

    propose: the candidates at a site, asked for one by one: each sees what was applied before. legal: whether a
    candidate may be applied. apply: does it. subject: the candidate in words.
    """

    name: str
    propose: Callable[[State, Site], Iterator[Candidate]]
    legal: Callable[[Facts, State, Candidate], Verdict]
    apply: Callable[[State, Candidate], None]
    subject: Callable[[State, Candidate], str]


# ----------------------------------------------------------------------------------------- what is stored


def _itself(state: Storing, t: Compute) -> Iterator[Compute]:
    yield t


def _may_inline(facts: Facts, state: Storing, t: Compute) -> Verdict:
    """A compute is computed where it is read.

    memory a = exp(x)            kernel 1: b = exp(x) + 1
    kernel 1: b = a + 1    ->    kernel 2: c = exp(x) * y
    kernel 2: c = a * y
    """
    if t in facts.roots:
        return Verdict(False, "it is an output of the program")
    if reduces(t):
        return Verdict(False, "it is a reduction: recomputing it for each reader repeats the whole sum")
    if not is_exact(t.definition) and (reader := state.compared_by(t)) is not None:
        return Verdict(False, f"{reader.name} compares it for equality, so its bits must be stored once")
    if state.looked_up(t) - checked_axes(t.definition) and not _stays_in_place(facts, t):
        return Verdict(False, "it is looked up at indices from data, and they are checked by its own extents")
    return Verdict(
        True, "each reader recomputes it" if len(facts.readers_of(t)) > 1 else "its reader computes it in place"
    )


def _stays_in_place(facts: Facts, t: Compute) -> bool:
    """Whether t will be a view: a run of something that is stored for certain."""
    source = t.inputs[0] if contiguous_offset(t.definition) is not None else t
    return source is not t and (not isinstance(source, Compute) or source in facts.roots or reduces(source))


def _in_place(state: Storing, t: Compute) -> Iterator[Compute]:
    if contiguous_offset(t.definition) is not None:
        yield t


def _may_view(facts: Facts, state: Storing, t: Compute) -> Verdict:
    """A compute is a run of what it reads.

    memory x: 8 x 6                          memory x: 8 x 6
    a[i] = x[2, i]                     ->    a: x from element 12 on, nothing is computed
    """
    if t in facts.roots:
        return Verdict(False, "it is an output of the program, and has memory of its own")
    if (source := t.inputs[0]) in state.recomputed:
        return Verdict(False, f"{source.name} is recomputed where it is read, and has no memory")
    return Verdict(True, f"its elements lie in {source.name} in order, from {contiguous_offset(t.definition)} on")


def _make_view(state: Storing, t: Compute) -> None:
    state.view(t, contiguous_offset(t.definition) or 0)


def _put_together(state: Storing, t: Compute) -> Iterator[Compute]:
    if pieces(t.definition) is not None:
        yield t


def _may_write_parts(facts: Facts, state: Storing, t: Compute) -> Verdict:
    """What a compute is put together of is written where it stands in the whole.

    kernel 1: a[j] = sum[k](x[k] * w[k, j])                        kernel 1: y[0, j] = sum[k](x[k] * w[k, j])
    kernel 2: b[j] = exp(z[j])                               ->    kernel 2: y[1, j] = exp(z[j])
    kernel 3: y[i, j] = select(i == 0, a[j], b[j])
    """
    if t in facts.roots:
        return Verdict(False, "it is an output of the program, and its parts are not")
    if t in state.recomputed:
        return Verdict(False, "it is recomputed where it is read, and has no memory")
    for part in t.inputs:
        if not isinstance(part, Compute) or part in facts.roots:
            return Verdict(False, f"{part.name} has memory of its own")
        if part in state.recomputed or contiguous_offset(part.definition) is not None:
            return Verdict(False, f"{part.name} is not written by a kernel")
        if part in state.views or part in state.wholes:
            return Verdict(False, f"{part.name} is put together with others already")
    return Verdict(True, f"its {len(t.inputs)} parts are written where they stand in it")


def _tensor(state: Storing, t: Compute) -> str:
    return f"{t.name}{list(t.shape)}"


# ----------------------------------------------------------------------------------------- which kernels are one


def _what_it_reads(state: Kernels, t: Compute) -> Iterator[Merge]:
    """The kernels of what t reads, reductions first, until t is in one of them."""
    sources = sorted(state.storage.reads[t], key=lambda s: not reduces(s))
    numbers = dict.fromkeys(_kernel_of(state, s) for s in sources)
    for first in numbers:
        if first is not None and state.kernels[state.number[t]].head is t:
            yield Merge(first, state.number[t])


def _kernel_of(state: Kernels, source: Tensor) -> int | None:
    """The kernel that makes a tensor by itself."""
    made = state.storage.makers(source)
    return state.number.get(made[0]) if len(made) == 1 else None


def _may_ride(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """A kernel computes what reads its result at the point it has just computed.

    kernel 1: s[i,j] = sum[k](x[i,k] * w[k,j])    ->    kernel 1: s[i,j] = sum[k](x[i,k] * w[k,j])
    kernel 2: y[i,j] = relu(s[i,j] + b[j])                        y[i,j] = relu(s[i,j] + b[j])
    """
    head = state.kernels[merge.first].head
    for t in state.kernels[merge.second].members:
        if reduces(t):
            return Verdict(False, "it reduces, and a kernel has one reduction")
        for u in state.storage.closures[t] if is_contraction(head.definition) else ():
            if (looks_up_by_element if u.shape == t.shape else looks_up)(u.definition):
                return Verdict(False, f"{u.name} looks up each element, and a contraction writes whole vectors")
    return _at_own_point(state, merge) or Verdict(True, "it reads the kernel's result at its own point")


def _beside(state: Kernels, t: Compute) -> Iterator[Merge]:
    """The kernels of what t reads besides the one that it rides along in."""
    for source in state.storage.reads[t]:
        first, second = _kernel_of(state, source), state.number[t]
        if first is not None and first != second and state.kernels[second].head is not t:
            yield Merge(first, second)


def _may_share(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """A kernel takes in another that it reads besides, without reductions: their inputs are read once.

    kernel 1: a[i] = exp(x[i])                      kernel 2: a[i] = exp(x[i])
    kernel 2: b[i] = log(x[i])                ->              b[i] = log(x[i])
              c[i] = a[i] + b[i]                              c[i] = a[i] + b[i]
    """
    for m in state.merged(merge).members:
        if reduces(m):
            return Verdict(False, f"{m.name} reduces")
    return _at_own_point(state, merge) or Verdict(True, "one reads the other at its own point")


def _what_maps_the_same(state: Kernels, n: int) -> Iterator[Merge]:
    """The kernels without reductions that read what kernel n reads as well, if that is as large as what it writes;
    those of the largest tensor first."""
    for source, other in _readers_of_the_same(state, n):
        heads = [state.kernels[k].head for k in (n, other)]
        is_alike = heads[0].shape == heads[1].shape and source.nbytes >= heads[0].nbytes
        if is_alike and not any(reduces(m) for k in (n, other) for m in state.kernels[k].members):
            yield Merge(min(n, other), max(n, other))


def _readers_of_the_same(state: Kernels, n: int) -> Iterator[tuple[Tensor, int]]:
    """What kernel n reads, the largest first, each with the other kernels that read it, until n is one of them."""
    reads = dict.fromkeys(i for t in state.kernels[n].members for i in state.storage.reads[t])
    for source in sorted(reads, key=lambda i: -i.nbytes):
        for reader in state.storage.uses.get(source, ()):
            other = state.number.get(reader)
            if other is not None and n in state.kernels and other != state.number[state.kernels[n].head]:
                yield source, other


def _may_map_along(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """Kernels that go through the same points do so together, though neither reads the other: an input is read once.

    kernel 1: y[i] = x[i] * f(x[i])                 kernel 1: y[i] = x[i] * f(x[i])
    kernel 2: d[i] = g[i] * f(x[i])           ->              d[i] = g[i] * f(x[i])
    """
    if state.needs(merge.first, merge.second):
        first, second = state.kernels[merge.first].head, state.kernels[merge.second].head
        return Verdict(False, f"{first.name} needs {second.name} to have finished")
    for n in (merge.first, merge.second):
        if state.kernels[n].rows is not None:
            return Verdict(False, f"{state.kernels[n].head.name} is made row by row")
    return _at_own_point(state, merge) or Verdict(True, "they read the same at the same points")


def _at_own_point(state: Kernels, merge: Merge) -> Verdict | None:
    """Why the two are no kernel that goes through its points once; None when they are."""
    first, second, storage = state.kernels[merge.first], state.kernels[merge.second], state.storage
    for t in second.members:
        if t.shape != first.head.shape:
            return Verdict(False, f"its shape {list(t.shape)} is not the kernel's {list(first.head.shape)}")
    if (verdict := _apart(state, merge) or _ill_formed(state, merge)) is not None:
        return verdict
    for t in second.members:  # also without an anchor: elsewhere it would be another value, in its last bit
        for u, read, source in storage.reads_of(t, first.members):
            if u.shape != t.shape or not reads_at_own_point(read, t.shape):
                return Verdict(False, f"{u.name} reads {source.name} away from its own point")
    return None


def _what_a_kernel_reads(state: Kernels, n: int) -> Iterator[Merge]:
    """The kernels that kernel n reads, the last first, until it is one of them; by as many rows as they share."""
    for first in reversed(state.sources(state.kernels[n])):
        if first != n and n in state.kernels:
            yield from state.with_rows(first, n, _rows_of_reductions)


def _rows_of_reductions(storage: Storage, members: tuple[Compute, ...]) -> Rows:
    return _common_rows(storage, members) if any(map(reduces, members)) else (0, ())


def _may_go_by_rows(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """Kernels that go through the same rows do so together: what lies between them stays in the cache.

    kernel 1: m[i] = max[k](x[i,k])                 kernel 1: for each row i
    kernel 2: e[i,j] = exp(x[i,j] - m[i])     ->                  m = max[k](x[i,k])
                                                                  e[j] = exp(x[i,j] - m)
    """
    kernel = state.merged(merge)
    if not any(reduces(m) for m in kernel.members):
        return Verdict(False, "neither reduces")
    if not merge.rows:
        return Verdict(False, "they share no rows at which one reads the other")
    verdict = _apart(state, merge) or _ill_formed(state, merge)
    return verdict or Verdict(True, f"they go through the same rows, {merge.rows} dimensions of them")


def _what_it_moves(state: Kernels, n: int) -> Iterator[Merge]:
    """The kernel that makes what kernel n moves; by as many rows as they share, or by fewer, longer ones."""
    members = state.kernels[n].members if n in state.kernels else ()
    if members and all(len(state.storage.closures[m]) == 1 and is_move(m.definition) for m in members):
        for first in state.sources(state.kernels[n]):
            if first == n or n not in state.kernels:
                continue
            made = state.kernels[first].members
            rows = _leading_rows(state.storage, made + members)
            yield Merge(first, n, rows)
            has_own_loops = any(is_contraction(m.definition) for m in made)
            while n in state.kernels and rows > 1 and not has_own_loops:
                rows -= 1
                yield Merge(first, n, rows)


def _may_move_rows(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """What only moves elements within the rows of another kernel, as padding does, is written with them.

    kernel 1: e[i,j] = exp(x[i,j])                            kernel 1: for each row i
    kernel 2: p[i,j] = select(1 <= j <= n, e[i,j-1], 0)  ->               e[j] = exp(x[i,j])
                                                                          p[j] = select(1 <= j <= n, e[j-1], 0)
    """
    if not merge.rows:
        return Verdict(False, "they share no rows at which one reads the other")
    verdict = _apart(state, merge) or _ill_formed(state, merge)
    return verdict or Verdict(True, f"it moves what is made in the same rows, {merge.rows} dimensions of them")


def _leading_rows(storage: Storage, members: tuple[Compute, ...]) -> int:
    """How many leading dimensions all members share and read each other at."""
    rows = min(len(m.shape) for m in members)
    while rows and len({m.shape[:rows] for m in members}) > 1:
        rows -= 1
    own = frozenset(members)
    for m in members if rows else ():
        for source, indices in storage.places(m, own):
            while rows and not is_at_own_row(indices, source.shape, m.shape, rows):
                rows -= 1
    return rows


def _common_rows(storage: Storage, members: tuple[Compute, ...]) -> Rows:
    """How many dimensions all members share and read each other at: the leading ones, or else those that `Turn`s say.

    y[b, c] = x[b, c] - m[c]    shares with m its last dimension
    """
    rows = _leading_rows(storage, members)
    return (rows, ()) if rows else _turned_rows(storage, members)


def _turned_rows(storage: Storage, members: tuple[Compute, ...]) -> Rows:
    """The same where not all of these are leading dimensions: those of a reduction are."""
    if any(is_contraction(m.definition) for m in members):
        return 0, ()
    start = min(filter(reduces, members), key=lambda m: len(m.shape))
    if not start.shape or any(start.shape[0] not in m.shape for m in members):
        return 0, ()
    own = frozenset(members)
    places = {m: storage.places(m, own) for m in members}
    for rows in range(len(start.shape), 0, -1):
        if (turns := common_turns(start, rows, members, places)) is not None:
            return rows, turns
    return 0, ()


def _what_reads_the_same(state: Kernels, n: int) -> Iterator[Merge]:
    """The kernels that read what kernel n reads, where both reduce; those of the largest tensor first."""
    for _, other in _readers_of_the_same(state, n):
        first, second = sorted((n, other))
        if all(any(map(reduces, state.kernels[k].members)) for k in (n, other)):
            yield from state.with_rows(first, second, _rows_alongside)


def _rows_alongside(storage: Storage, members: tuple[Compute, ...]) -> Rows:
    """Rows that are shared; where these are columns in memory, blocks of them."""
    rows, turns = _common_rows(storage, members)
    if rows and not turns and any(reduces(m) and reads_columns(m.definition, rows) for m in members):
        turns = in_blocks([Turn(tuple(range(rows)))] * len(members), members[0].shape[rows - 1]) or ()
    return rows, turns


def _may_reduce_along(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """Kernels that reduce the same rows do so together, though neither reads the other: a row is read once.

    kernel 1: s[c] = sum[b](x[b,c])                 kernel 1: for each column c
    kernel 2: q[c] = sum[b](x[b,c] * x[b,c])  ->                  s = sum[b](x[b,c])
                                                                  q = sum[b](x[b,c] * x[b,c])
    """
    if not merge.rows:
        return Verdict(False, "they share no rows")
    if (source := _reduced_alike(state, merge)) is None:
        return Verdict(False, "they go through no rows of the same tensor")
    if state.needs(merge.first, merge.second):
        first, second = state.kernels[merge.first].head, state.kernels[merge.second].head
        return Verdict(False, f"{first.name} needs {second.name} to have finished")
    verdict = _apart(state, merge) or _ill_formed(state, merge)
    return verdict or Verdict(True, f"they reduce the same rows of {source.name}")


def _reduced_alike(state: Kernels, merge: Merge) -> Tensor | None:
    """The largest tensor of which both kernels reduce the same rows."""
    dims, count = state.row_dims(merge), len(state.kernels[merge.first].members)
    first = _reduced_rows(state, state.kernels[merge.first], dims[:count])
    second = _reduced_rows(state, state.kernels[merge.second], dims[count:])
    return max((t for t in first if first[t] == second.get(t)), key=lambda t: t.nbytes, default=None)


def _reduced_rows(state: Kernels, kernel: Kernel, dims: RowDims) -> ReducedRows:
    """What a kernel reduces, and the indices of it that are the same all along a row; the others are None."""
    if (known := state.reduced.get((kernel, dims))) is not None:
        return known
    found = state.reduced[kernel, dims] = {}
    for m, rows in zip(kernel.members, dims, strict=True):
        if not reduces(m):
            continue
        own = frozenset(m.definition.axes[d] for d in rows)
        for source, indices in state.storage.places(m, frozenset(state.storage.reads[m])):
            found.setdefault(source, set()).add(tuple(i if own.issuperset(i.free) else None for i in indices))
    return found


def _what_it_adds_up(state: Kernels, n: int) -> Iterator[Merge]:
    """The kernels that contract to what kernel n only adds up."""
    if n not in state.kernels or not _is_sum(state.kernels[n].head):
        return
    for first in state.sources(state.kernels[n]):
        if first != n and n in state.kernels and is_contraction(state.kernels[first].head.definition):
            yield Merge(first, n)


def _is_sum(t: Compute) -> bool:
    body = t.definition.body
    return isinstance(body, Reduce) and body.op == "sum" and not is_contraction(t.definition)


def _may_ride_in_tiles(facts: Facts, state: Kernels, merge: Merge) -> Verdict:
    """What a contraction makes is added up while its tiles are written: a partial sum a task, and the sum of these.

    kernel 1: y[m,n] = sum[k](x[m,k] * w[k,n])         kernel 1: y[m,n] = sum[k](x[m,k] * w[k,n])
    kernel 2: s[n] = sum[m](y[m,n])             ->               p[task,n] = sum[m of task](y[m,n])
                                                                 s[n] = sum[task](p[task,n])
    """
    first = state.kernels[merge.first]
    if first.rows is not None:
        return Verdict(False, f"{first.head.name} is made row by row, not in tiles")
    if (verdict := _apart(state, merge) or _ill_formed(state, merge)) is not None:
        return verdict
    subgraph = state.call(state.merged(merge)).subgraph
    if not subgraph.riders:
        return Verdict(False, "it adds up nothing of what the kernel makes")
    fit = state.in_tiles(subgraph)
    return Verdict(True, "it adds up what tiles have at hand") if fit.ok else fit


def _apart(state: Kernels, merge: Merge) -> Verdict | None:
    """Why the first must have finished before the second begins; None when it need not."""
    for t in state.kernels[merge.second].members:
        for source, maker in ((s, m) for s in state.storage.reads[t] for m in state.storage.makers(s)):
            n = state.number.get(maker)
            if n == merge.first and maker is not source:
                return Verdict(False, f"{t.name} reads {source.name}, which is memory of {maker.name}")
            if n is not None and n not in (merge.first, merge.second) and state.needs(n, merge.first):
                return Verdict(False, f"{t.name} also reads {source.name}, which needs the first to have finished")
    return None


def _ill_formed(state: Kernels, merge: Merge) -> Verdict | None:
    """What `Subgraph.check` has against the two as one kernel."""
    try:
        state.call(state.merged(merge))
    except (ExpressionError, PartitionError) as error:
        return Verdict(False, error.message)
    return None


def _into_the_first(state: Kernels, merge: Merge) -> None:
    state.merge(merge, merge.first)


def _into_the_second(state: Kernels, merge: Merge) -> None:
    state.merge(merge, merge.second)


def _pair(state: Kernels, merge: Merge) -> str:
    first, second = state.kernels[merge.first].head, state.kernels[merge.second].members[-1]
    return f"{second.name}{list(second.shape)} with the kernel of {first.name}"


INLINING = Rule("inlining", _itself, _may_inline, Storing.recompute, _tensor)
PARTS = Rule("parts", _put_together, _may_write_parts, Storing.put_together, _tensor)
VIEWS = Rule("views", _in_place, _may_view, _make_view, _tensor)
EPILOGUES = Rule("epilogues", _what_it_reads, _may_ride, _into_the_first, _pair)
SIBLINGS = Rule("siblings", _beside, _may_share, _into_the_second, _pair)
SHARING = Rule("sharing", _what_maps_the_same, _may_map_along, _into_the_first, _pair)
ALONGSIDE = Rule("alongside", _what_reads_the_same, _may_reduce_along, _into_the_first, _pair)
ROW_KERNELS = Rule("row kernels", _what_a_kernel_reads, _may_go_by_rows, _into_the_first, _pair)
RIDERS = Rule("riders", _what_it_adds_up, _may_ride_in_tiles, _into_the_first, _pair)
MOVES = Rule("moves", _what_it_moves, _may_move_rows, _into_the_first, _pair)

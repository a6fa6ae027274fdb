"""Reductions that are equal but for their operands as one, over operands side by side.

An unrolled recurrence projects the inputs of all steps by the same weights, and gives these one gradient a step; a
layer written as several of fewer outputs reads one image for each of them. Side by side, what differs is one operand
with one dimension more, and what is shared is read and packed once; terms of a sum are one sum of more terms. What is
put together is written there by the kernels that make it, or is a run of memory already; what is neither is copied,
which is counted.

The operations stay what they are: what is saved and spent is estimated in time (`cost`). What is put together waits for
the last step (`waiting`): where there is a limit to memory, which a program without a price does not know, each byte of
it has a price in seconds.
Source: parallel fusion, section 4.3 of NeoFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Binder, Expr, Read, Reduce, Slot, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.normal import is_normal
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import cost
from neoflow.graph.beside import Beside, beside, class_of, order_of, over, part_of, side_by_side, slots_behind
from neoflow.graph.chains import is_link, single_terms, terms
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, own_indices
from neoflow.graph.join import joined
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.graph.rivals import Links, Parallel, Timed
from neoflow.graph.waiting import Waiting, waiting
from neoflow.verdict import Verdict

MANY = 64
"""Reductions of which one is made at most: what is put together has a body of as many reads, and lives as long as the
first and the last of them."""
FAR = 64
"""Tensors among which is looked for a reduction that another one waits for."""


@dataclass(frozen=True)
class BatchSums(Rewrite):
    """Terms of a sum that are sums of different operands become one, with them side by side.

    d[i, j] = a[i, j] + b[i, j] + c[i, j]
    a[i, j] = sum[r](x[r, i] * u[r, j]);  b[i, j] = sum[r](y[r, i] * v[r, j]);  c[i, j] = sum[r](z[r, i] * w[r, j])
        ->  p[t, r, i] = x, y, z;  q[t, r, j] = u, v, w;  d[i, j] = sum[t, r](p[t, r, i] * q[t, r, j])

    price: seconds that each byte costs by which more are alive at once.
    """

    name: str = "batch sums"
    price: float = 0.0

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """The sum and its terms, those of one kind together; but not where it is a link of a chain."""
        if len(terms(t.definition)) < 2 or is_link(editor, t):
            return
        inputs = editor.inputs(t)
        groups: dict[Hashable, list[Compute]] = {}
        for n in single_terms(t.definition):
            c = inputs[n]
            if isinstance(c, Compute) and _is_sum(c.definition) and editor.is_read_once(c):
                groups.setdefault((c.definition, *map(class_of, editor.inputs(c))), []).append(c)
        for group in groups.values():
            for part in _in_order(editor, group) if len(group) > 1 else ():
                yield Match((t, *part))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        t, *links = match.tensors
        found = _operands(editor, links, (t,))
        if isinstance(found, str):
            return Verdict(False, found)
        first = links[0].definition
        chain = len(links) * cost.seconds(first, True)
        one = cost.seconds(Definition(t.shape, _longer(first, found, len(links)), _slots(first, found)))
        waits = partial(waiting, editor, links, found.values(), False)
        return _verdict(chain, one, _copied(first, found), found, waits, self.price, cost.LONGER)

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, *links = match.tensors
        found = _operands(editor, links, (t,))
        assert not isinstance(found, str)
        first = links[0]
        edit, bases = _bases(found)
        inputs = (*editor.inputs(first), *bases)
        one = build(t.shape, _longer(first.definition, found, len(links)), inputs, first.name)
        given = editor.inputs(t)
        gone = {n for n in single_terms(t.definition) if any(given[n] is c for c in links)}
        rest = [e for e in terms(t.definition) if not (isinstance(e, Read) and e.slot in gone)]
        if rest:
            own = Read(Slot(len(given), one.shape, one.dtype), own_indices(t.shape))
            total = build(t.shape, reduce(lambda a, b: Apply("add", (a, b)), [*rest, own]), (*given, one), t.name)
            return {**edit, t: total}
        return {**edit, t: one}


@dataclass(frozen=True)
class BatchShared(Parallel):
    """Reductions that share an operand and differ in others, none of which needs another, become one.

    a[i, j] = sum[k](x[i, k] * w[j, k]);  b[i, j] = sum[k](y[i, k] * w[j, k]);  c[i, j] = sum[k](z[i, k] * w[j, k])
        ->  p[t, i, k] = x, y, z;  q[t, i, j] = sum[k](p[t, i, k] * w[j, k])
            a[i, j] = q[0, i, j];  b[i, j] = q[1, i, j];  c[i, j] = q[2, i, j]

    Their number is the first dimension of the result, of which each is a run of memory then; where all that reads them
    is what puts them together in their order, it is the dimension along which that does. is_compared: whether one has
    to take less by the estimate, which packs at every call what is shared. price: see `BatchSums`.
    """

    name: str = "batch shared"
    is_compared: bool = True
    price: float = 0.0

    def groups(self, editor: Editor, t: Compute) -> Iterator[Links]:
        """All that share an operand with it, for each that they may share."""
        if not can_be_one(t.definition):
            return
        inputs = editor.inputs(t)
        classes = [class_of(i) for i in inputs]
        for slot, shared in enumerate(inputs):
            group = [
                r
                for r in editor.each_reader(shared)
                if r.definition is t.definition
                and editor.inputs(r)[slot] is shared
                and [class_of(i) for i in editor.inputs(r)] == classes
            ]
            if len(group) > 1:
                yield from (part for part in _in_order(editor, group) if any(r is t for r in part))

    def timed(self, editor: Editor, links: Links) -> Verdict:
        found = _operands(editor, links, links)
        if isinstance(found, str):
            return Verdict(False, found)
        if len(found) == len(editor.inputs(links[0])):
            return Verdict(False, "they share no operand")
        if (late := editor.dependent(links)) is not None:
            return Verdict(False, f"{late.name} needs another of them")
        first = links[0].definition
        if not self.is_compared:
            return Verdict(True, f"one for {len(links)}")
        at = joined(editor, links)
        body, shape = over(first, found, at or 0, len(links))
        one = cost.seconds(Definition(shape, body, _slots(first, found)))
        if is_contraction(first) and cost.sides(first) is None:
            return Verdict(False, "it is no product of two sides, one of which all of them could pack once")
        more = _copied(first, found) + sum(2 * t.nbytes for t in links if at is None and is_kept_apart(editor, t))
        waits = partial(waiting, editor, links, found.values(), at is None)
        return _verdict(len(links) * cost.seconds(first), one, more, found, waits, self.price)

    def apply(self, editor: Editor, match: Match) -> Edit:
        links = match.tensors[1:]
        found = _operands(editor, links, links)
        assert not isinstance(found, str)
        first = links[0]
        edit, bases = _bases(found)
        at = joined(editor, links) or 0
        body, shape = over(first.definition, found, at, len(links))
        one = build(shape, body, (*editor.inputs(first), *bases), f"{first.name}_steps")
        made: dict[Tensor, Tensor] = {}
        for n, t in enumerate(links):
            own = own_indices(t.shape)
            indices = (*own[:at], affine.integer(n), *own[at:])
            made[t] = build(t.shape, Read(Slot(0, shape, one.dtype), indices), (one,), t.name)
        return {**edit, **made}


@remembered
def can_be_one(definition: Definition) -> bool:
    """A reduction of two tensors or more, all read at indices that no data decide: those are checked by the extents of
    what they are in."""
    body = definition.body
    if not (isinstance(body, Reduce) and is_normal(definition) and len(definition.slots) > 1):
        return False
    return _knows_where(body)


@remembered
def _is_sum(definition: Definition) -> bool:
    """A sum of floats over axes, of tensors read at indices that no data decide."""
    body = definition.body
    if not (isinstance(body, Reduce) and body.op == "sum" and dt.is_float(body.dtype) and is_normal(definition)):
        return False
    return bool(definition.slots) and _knows_where(body)


def _knows_where(body: Expr) -> bool:
    reads = [n for n in postorder(body) if isinstance(n, Read)]
    return not any(isinstance(n, Read) for r in reads for i in r.indices for n in postorder(i))


def _in_order(editor: Editor, group: Sequence[Compute]) -> Iterator[tuple[Compute, ...]]:
    """Reductions in the order in which an operand of theirs is given, no more than `MANY` together."""
    columns = zip(*map(editor.inputs, group), strict=True)
    orders = [order_of(editor, c) for c in columns if any(t is not c[0] for t in c)]
    if orders:
        best = min(rank for rank, _ in orders)
        keys = min((keys for rank, keys in orders if rank == best), key=min)
        ordered = [group[n] for n in sorted(range(len(group)), key=lambda n: (keys[n], editor.number(group[n])))]
        parts = (tuple(ordered[start : start + MANY]) for start in range(0, len(group), MANY))
        yield from (part for part in parts if len(part) > 1)


def spared(editor: Editor, links: Sequence[Compute], made: Sequence[Compute]) -> float:
    """Seconds that one sum in the place of a chain of these would spare; none where something would be copied."""
    definition = links[0].definition
    found = _operands(editor, links, made) if _is_sum(definition) else "it is no sum"
    if isinstance(found, str) or _copied(definition, found):
        return 0.0
    one = Definition(definition.shape, _longer(definition, found, len(links)), _slots(definition, found))
    return len(links) * cost.seconds(definition, True) - cost.seconds(one)


def _operands(editor: Editor, links: Sequence[Compute], made: Sequence[Compute]) -> dict[int, Beside] | str:
    """The operands that differ side by side, by their slot; or what is against it. made: what is to read them."""
    found: dict[int, Beside] = {}
    for slot, column in enumerate(zip(*map(editor.inputs, links), strict=True)):
        if all(t is column[0] for t in column):
            continue
        if len(set(column)) < len(column):
            return "two of them share an operand that the others do not"
        found[slot] = beside(editor, column, made)
    replaced = [whole for b in found.values() for whole, _ in b.replaced]
    for p in (p for b in found.values() if b.base is None for p in b.parts):
        for whole in replaced:
            if editor.depends(p, whole):
                return f"{p.name} needs {whole.name}, which would be put together with it"
    return found


def _longer(definition: Definition, found: dict[int, Beside], count: int) -> Expr:
    """The sum over all of them: a reduced axis more, the first."""
    body = definition.body
    assert isinstance(body, Reduce)
    step = Axis(max([len(definition.shape), *(a.ident for a in body.axes)]) + 1, count)
    return Reduce("sum", (step, *body.axes), side_by_side(body.body, definition, found, step))


def _slots(definition: Definition, found: dict[int, Beside]) -> tuple[Slot, ...]:
    """What is read of the operands as they are, and those side by side behind all of these."""
    kept = [s for s in definition.slots if s.position not in found]
    return (*kept, *slots_behind(definition, found).values())


def _bases(found: dict[int, Beside]) -> tuple[dict[Tensor, Tensor], list[Tensor]]:
    """What is read in the place of what; the tensors that lie side by side, in order."""
    bases = [b.made() for b in found.values()]
    edit: dict[Tensor, Tensor] = {}
    for base, b in zip(bases, found.values(), strict=True):
        for whole, first in b.replaced:
            edit[whole] = part_of(base, first, whole.shape[0], whole.name)
    return edit, bases


def _copied(definition: Definition, found: dict[int, Beside]) -> int:
    """Bytes that are read and written to put operands side by side: copies, and what only a contraction has in memory
    by itself."""
    total = sum(b.copied for b in found.values())
    for b in found.values() if not is_contraction(definition) else ():
        is_stored = b.base is not None or b.copied or any(isinstance(_body(t), Binder) for t in b.parts)
        total += 0 if is_stored else sum(2 * t.nbytes for t in b.parts)
    return total


def _body(t: Tensor) -> Expr | None:
    return t.definition.body if isinstance(t, Compute) else None


def _verdict(
    before: float,
    after: float,
    nbytes: int,
    found: dict[int, Beside],
    waits: Callable[[], Waiting],
    price: float,
    least: float = cost.SURE,
) -> Verdict:
    """Whether one kernel in the place of several, with what is copied for it and what waits, takes less time."""
    count = len(next(iter(found.values())).parts)
    made = sum(t.nbytes for b in found.values() if b.base is None for t in b.parts)
    told = f"{made} bytes are put together" if made else "its operands lie side by side"
    after += cost.copied(nbytes)
    what = cost.told(before, after) + (f", with {nbytes} bytes for copies" if nbytes else "")
    if not cost.is_worth(before, after, least):
        return Verdict(False, f"one for {count} would take {what}")
    waiting = waits()
    most = ((1 - least) * before - after) / waiting.more if waiting.more else math.inf
    if price > most:
        return Verdict(False, f"one for {count} would take {what}, but {waiting}: {_cost_of(waiting, price)}")
    told += f"; {waiting}" if waiting.more else ""
    paid = price * waiting.more if waiting.more else 0.0
    return Timed(True, f"one for {count} takes {what}; {told}", before, after + paid, most)


def _cost_of(waiting: Waiting, price: float) -> str:
    if price == math.inf:
        return "memory is too scarce for any"
    return f"{waiting.more} more cost as much as {price * waiting.more * 1e6:.1f} us where memory is scarce"


def is_kept_apart(editor: Editor, t: Compute) -> bool:
    """Whether what now happens to t where it is computed would read it from memory: it is returned, or what reads it
    at its own points waits for nothing else that reduces."""
    seen, stack = {t}, [t]
    while stack:
        for r in editor.each_reader(stack.pop()):
            if r.shape != t.shape or isinstance(r.definition.body, Binder) or r in seen:
                continue
            if any(i not in seen and _waits(editor, i, t) for i in editor.inputs(r)):
                return False
            seen.add(r)
            stack.append(r)
    return len(seen) > 1 or editor.is_root(t)


def _waits(editor: Editor, i: Tensor, t: Compute) -> bool:
    """Whether a tensor is a reduction that comes after t, or is computed from one at its own points."""
    seen, stack = {i}, [i]
    while stack and len(seen) < FAR:
        u = stack.pop()
        if not isinstance(u, Compute) or u.shape != t.shape or u is t:
            continue
        if isinstance(u.definition.body, Binder):
            if editor.place(u) > editor.place(t):
                return True
            continue
        stack += [v for v in editor.inputs(u) if v not in seen]
        seen.update(editor.inputs(u))
    return False

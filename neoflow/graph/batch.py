"""Contractions that are equal but for their operands as one, over operands side by side.

An unrolled recurrence projects the inputs of all steps by the same weights, and gives these one gradient a step. Side
by side, the inputs are projected at once, and the gradients are one sum of more terms. What is put together is written
there by the kernels that make it, or is a run of memory already; what is neither is copied, which is counted.

The operations stay what they are: time is counted in the bytes that contractions no longer read or write.
Source: parallel fusion, section 4.3 of NeoFlow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Binder, Const, Expr, Read, Reduce, Slot, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.beside import Beside, beside, class_of, order_of, part_of
from neoflow.graph.chains import single_terms, terms
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, own_indices, points
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

FEW = 3
"""Contractions from which one takes their place. Chosen, not measured."""
MANY = 64
"""Contractions of which one is made at most: what is put together has a body of as many reads, and lives as long as the
first and the last of them."""
FAR = 64
"""Tensors among which is looked for a reduction that another one waits for."""
SHORT = 32
"""Terms of each contraction of a sum up to which they become one; chosen. At 64 terms a chain of 20 took 16.4 ms in one
profile of a model, one contraction alone 20.4 ms by the default schedule and 15.9 by the best of eleven others."""
GAIN = 2
"""So many times what is copied must be saved."""


@dataclass(frozen=True)
class BatchSums(Rewrite):
    """Terms of a sum that are contractions of different operands become one contraction, with them side by side.

    d[i, j] = a[i, j] + b[i, j] + c[i, j]
    a[i, j] = sum[r](x[r, i] * u[r, j]);  b[i, j] = sum[r](y[r, i] * v[r, j]);  c[i, j] = sum[r](z[r, i] * w[r, j])
        ->  p[t, r, i] = x, y, z;  q[t, r, j] = u, v, w;  d[i, j] = sum[t, r](p[t, r, i] * q[t, r, j])
    """

    name: str = "batch sums"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """The sum and the contractions, those of one kind together."""
        if len(terms(t.definition)) < FEW:
            return
        inputs = editor.inputs(t)
        groups: dict[Hashable, list[Compute]] = {}
        for n in single_terms(t.definition):
            c = inputs[n]
            if isinstance(c, Compute) and is_plain(c.definition) and editor.is_read_once(c):
                groups.setdefault((c.definition, *map(class_of, editor.inputs(c))), []).append(c)
        for group in groups.values():
            for part in _in_order(editor, group) if len(group) >= FEW else ():
                yield Match((t, *part))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        t, *links = match.tensors
        if (long := points(links[0].definition) // t.size) > SHORT:
            return Verdict(False, f"each has {long} terms, more than {SHORT}, and is as fast in a chain")
        found = _operands(editor, links, (t,))
        if isinstance(found, str):
            return Verdict(False, found)
        saved = 2 * (len(links) - 1) * t.nbytes
        copied = sum(b.copied for b in found.values())
        if saved < GAIN * copied:
            return Verdict(False, f"{copied} bytes would be copied, to save {saved}")
        return Verdict(True, f"one contraction for {len(links)} saves {saved} bytes; {_told(found)}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, *links = match.tensors
        found = _operands(editor, links, (t,))
        assert not isinstance(found, str)
        first = links[0]
        edit, bases = _bases(found)
        inputs = [*editor.inputs(first), *bases.values()]
        body = first.definition.body
        assert isinstance(body, Reduce)
        step = _new_axis(body.axes, len(links), len(t.shape))
        inner = _over(body.body, found, {n: k for k, n in enumerate(bases, len(editor.inputs(first)))}, bases, step)
        one = build(t.shape, Reduce("sum", (step, *body.axes), inner), tuple(inputs), first.name)
        given = editor.inputs(t)
        gone = {n for n in single_terms(t.definition) if any(given[n] is c for c in links)}
        rest = [e for e in terms(t.definition) if not (isinstance(e, Read) and e.slot in gone)]
        if rest:
            own = Read(Slot(len(given), one.shape, one.dtype), own_indices(t.shape))
            total = build(t.shape, reduce(lambda a, b: Apply("add", (a, b)), [*rest, own]), (*given, one), t.name)
            return {**edit, t: total}
        return {**edit, t: one}


@dataclass(frozen=True)
class BatchShared(Rewrite):
    """Contractions that share an operand and differ in the other, none of which needs another, become one.

    a[i, j] = sum[k](x[i, k] * w[j, k]);  b[i, j] = sum[k](y[i, k] * w[j, k]);  c[i, j] = sum[k](z[i, k] * w[j, k])
        ->  p[t, i, k] = x, y, z;  q[t, i, j] = sum[k](p[t, i, k] * w[j, k])
            a[i, j] = q[0, i, j];  b[i, j] = q[1, i, j];  c[i, j] = q[2, i, j]
    """

    name: str = "batch shared"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """All that share an operand, for each that they may share, found at the first."""
        if not is_plain(t.definition):
            return
        inputs = editor.inputs(t)
        for slot, shared in enumerate(inputs):
            classes = [class_of(i) for i in inputs]
            group = [
                r
                for r in editor.each_reader(shared)
                if r.definition is t.definition
                and editor.inputs(r)[slot] is shared
                and [class_of(i) for i in editor.inputs(r)] == classes
            ]
            if len(group) >= FEW and min(map(editor.number, group)) == editor.number(t):
                for part in _in_order(editor, group):
                    yield Match((t, *part))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        links = match.tensors[1:]
        found = _operands(editor, links, links)
        if isinstance(found, str):
            return Verdict(False, found)
        if (late := editor.dependent(links)) is not None:
            return Verdict(False, f"{late.name} needs another of them")
        inputs = editor.inputs(links[0])
        shared = sum(i.nbytes for n, i in enumerate(inputs) if n not in found)
        saved = (len(links) - 1) * shared
        copied = sum(b.copied for b in found.values()) + sum(2 * t.nbytes for t in links if _kept_apart(editor, t))
        if saved < GAIN * copied or not saved:
            return Verdict(False, f"{copied} bytes would be copied, to save {saved}")
        return Verdict(True, f"one contraction for {len(links)} saves {saved} bytes; {_told(found)}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        links = match.tensors[1:]
        found = _operands(editor, links, links)
        assert not isinstance(found, str)
        first = links[0]
        edit, bases = _bases(found)
        inputs = [*editor.inputs(first), *bases.values()]
        body = first.definition.body
        assert isinstance(body, Reduce)
        every = (*(Axis(d, n) for d, n in enumerate(first.shape)), *body.axes)
        moved: dict[Expr, Expr] = {a: Axis(a.ident + 1, a.extent) for a in every}
        step = Axis(0, len(links))
        slots = {n: k for k, n in enumerate(bases, len(editor.inputs(first)))}
        inner = _over(substitute(body.body, moved), found, slots, bases, step)
        axes = tuple(Axis(a.ident + 1, a.extent) for a in body.axes)
        shape = (len(links), *first.shape)
        one = build(shape, Reduce("sum", axes, inner), tuple(inputs), f"{first.name}_steps")
        made: dict[Tensor, Tensor] = {}
        for n, t in enumerate(links):
            indices = (affine.integer(n), *own_indices(t.shape))
            made[t] = build(t.shape, Read(Slot(0, shape, one.dtype), indices), (one,), t.name)
        return {**edit, **made}


@remembered
def is_plain(definition: Definition) -> bool:
    """A contraction of two tensors, each read once, at axes alone."""
    body = definition.body
    if not is_contraction(definition) or not isinstance(body, Reduce) or len(definition.slots) != 2:
        return False
    reads = body.body.args if isinstance(body.body, Apply) and body.body.fn == "mul" else ()
    return len({r.slot for r in reads if isinstance(r, Read)}) == 2 and all(
        isinstance(i, (Axis, Const)) for r in reads for i in r.children
    )


def _in_order(editor: Editor, group: Sequence[Compute]) -> Iterator[tuple[Compute, ...]]:
    """Contractions in the order in which an operand of theirs is given, no more than `MANY` together."""
    columns = zip(*map(editor.inputs, group), strict=True)
    orders = [order_of(editor, c) for c in columns if any(t is not c[0] for t in c)]
    if orders:
        best = min(rank for rank, _ in orders)
        keys = min((keys for rank, keys in orders if rank == best), key=min)
        ordered = [group[n] for n in sorted(range(len(group)), key=lambda n: (keys[n], editor.number(group[n])))]
        parts = (tuple(ordered[start : start + MANY]) for start in range(0, len(group), MANY))
        yield from (part for part in parts if len(part) >= FEW)


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


def _bases(found: dict[int, Beside]) -> tuple[dict[Tensor, Tensor], dict[int, Tensor]]:
    """What is read in the place of what; the tensors that lie side by side, by slot."""
    bases = {n: b.made() for n, b in found.items()}
    edit: dict[Tensor, Tensor] = {}
    for n, b in found.items():
        for whole, first in b.replaced:
            edit[whole] = part_of(bases[n], first, whole.shape[0], whole.name)
    return edit, bases


def _over(body: Expr, found: dict[int, Beside], slots: dict[int, int], bases: dict[int, Tensor], step: Axis) -> Expr:
    """A product of operands of number `step` of those that lie side by side."""

    def moved(e: Expr) -> Expr:
        if not (isinstance(e, Read) and e.slot in found):
            return e
        base = bases[e.slot]
        return found[e.slot].read(Slot(slots[e.slot], base.shape, base.dtype), e.indices, step)

    assert isinstance(body, Apply)
    return Apply(body.fn, tuple(map(moved, body.args)))


def _new_axis(axes: Sequence[Axis], extent: int, rank: int) -> Axis:
    return Axis(max([rank, *(a.ident for a in axes)]) + 1, extent)


def _told(found: dict[int, Beside]) -> str:
    made = sum(t.nbytes for b in found.values() if b.base is None for t in b.parts)
    return f"{made} bytes are put together" if made else "its operands lie side by side"


def _kept_apart(editor: Editor, t: Compute) -> bool:
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

"""Long bodies become several computes, so that no kernel is too long to compile: its time is not linear in its length.

A body is gone through in an order in which it can be computed, what is deep first. Where `PIECE` operations have come
together, what is still needed of them is stored: a chain of operations leaves one tensor, a tree as many as it is deep.
What is stored is computed at every point, whatever the conditions around it: what it reads outside is 0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Binder, Const, Expr, Read, Select, postorder, rewrite, same
from neoflow.expr.memo import remembered
from neoflow.expr.recipe import Recipe, derived, stand_ins
from neoflow.expr.tensor import Compute, Constant, Definition, Tensor, tensor_of
from neoflow.graph.edit import Editor
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

LONGEST, PIECE = 256, 192
"""Operations of a body that is left as it is, and of a piece of a longer one, which also reads other pieces.
One kernel of so many is compiled in some 100 ms (two cores of Zen 4)."""

REPEATED = 16
"""Operations that the parts of a piece each compute, rather than read what one of them has stored."""

NARROW = ("float16", "bfloat16")
"""Types that are computed in a wider one: what is stored of them is rounded."""

TABLED = ("float32", "float64")
"""Types of the numbers in a body that may become the elements of a tensor."""

NUMBERED = ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne")
"""Functions whose constant operand may be read from a tensor."""


@dataclass(frozen=True)
class SplitLong(Rewrite):
    """A body of many operations is computed in pieces, each stored for the next.

    y[i] = x[i] + x[i+1] + ... + x[i+9999]    ->    a[i] = x[i] + ... + x[i+127];  b[i] = a[i] + x[i+128] + ...
    """

    name: str = "split long bodies"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if operations(t.definition) > LONGEST and len(_stored(t.definition)) > 0:
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        definition = match.tensors[0].definition
        return Verdict(True, f"its {operations(definition)} operations are {len(_stored(definition)) + 1} computes")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        (last,) = _in_pieces(t.definition).instantiate(editor.inputs(t), (t.name,))
        assert last is not None
        return {t: last}


@remembered
def operations(definition: Definition) -> int:
    """Of one point of a body, roughly: instructions of its functions, one for a read; arithmetic of indices is free."""
    return sum(map(_operations, _computed(definition))) + sum([isinstance(n, Read) for n in definition.nodes])


def _operations(e: Expr) -> int:
    return FUNCTIONS[e.fn].instructions if isinstance(e, Apply) else 1


@remembered
def _stored(definition: Definition) -> frozenset[Expr]:
    """The parts of a body that become tensors."""
    if isinstance(definition.body, Binder):
        return frozenset()
    computed, whole, read = _computed(definition), _storable(definition), {e for e, _ in _numbers(definition)}
    nodes = [n for n in _in_order(definition) if n in computed]
    own = [_operations(n) + sum([isinstance(c, Read) for c in n.children]) + (n in read) for n in nodes]
    piece = _pieces(nodes, own)
    stored = {c for n in nodes for c in n.children if piece.get(c, piece[n]) < piece[n] and c in whole}
    return frozenset(stored | _shared(nodes, piece, stored) & whole)


def _pieces(nodes: Sequence[Expr], own: Sequence[int]) -> dict[Expr, int]:
    """The number of the piece that each node is computed in; `own` are their operations.

    A piece ends where the fewest values are needed later, in its last quarter; where these are equally many, late.
    """
    last = {c: at for at, n in enumerate(nodes) for c in n.children}
    change = [0] * (len(nodes) + 1)
    for at, n in enumerate(nodes):
        change[at] += 1
        change[last.get(n, at)] -= 1
    needed = list(accumulate(change))
    """behind each node"""
    behind = [0, *accumulate(own)]
    piece: dict[Expr, int] = {}
    number = begin = 0
    while behind[-1] - behind[begin] > PIECE:
        end = max(begin + 1, bisect_right(behind, behind[begin] + PIECE) - 1)
        first = min(end, bisect_left(behind, behind[begin] + PIECE * 3 // 4, begin + 1))
        end = min(range(first, end + 1), key=lambda at: (needed[at - 1], -at))
        piece.update(dict.fromkeys(nodes[begin:end], number))
        begin, number = end, number + 1
    return piece | dict.fromkeys(nodes[begin:], number)


def _shared(nodes: Sequence[Expr], piece: dict[Expr, int], stored: set[Expr]) -> set[Expr]:
    """What several stored parts of one piece need, where it is too much for each to compute it."""
    cost: dict[Expr, int] = {}
    for n in nodes:
        cost[n] = _operations(n) + sum(cost[c] for c in n.children if piece.get(c) == piece[n] and c not in stored)
        cost[n] = min(cost[n], PIECE)
    found: set[Expr] = set()
    owner: dict[Expr, Expr] = {}
    """the part that alone needs a node"""
    for n in reversed(nodes):
        part = owner[n] = n if n in stored or n in found else owner.get(n, n)
        for c in n.children:
            is_own = piece.get(c) == piece[n] and c not in stored
            if is_own and owner.setdefault(c, part) is not part and cost[c] > REPEATED:
                found.add(c)
    return found


@remembered
def _computed(definition: Definition) -> frozenset[Expr]:
    """What is computed from data, apart from indices: reads and constants are no work."""
    from_data: set[int] = set()
    for n in definition.nodes:
        if isinstance(n, Read) or not from_data.isdisjoint([c.uid for c in n.children]):
            from_data.add(n.uid)
    needed = {definition.body.uid}
    found: list[Expr] = []
    for n in reversed(definition.nodes):
        if n.uid in needed and n.uid in from_data and not isinstance(n, Read):
            found.append(n)
            needed.update([c.uid for c in n.children])
    return frozenset(found)


@remembered
def _in_order(definition: Definition) -> tuple[Expr, ...]:
    """Every distinct node, children first, of these the deepest first: so what a chain of choices chooses between is
    computed along the chain, and each condition where it decides."""
    depth: dict[Expr, int] = {}
    for n in definition.nodes:
        depth[n] = 1 + max([depth[c] for c in n.children], default=0)
    found: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(definition.body, False)]
    while stack:
        n, done = stack.pop()
        if done or not n.children:
            found[n] = None
        elif n not in found:
            stack.append((n, True))
            stack += [(c, False) for c in sorted(n.children[::-1], key=depth.__getitem__)]
    return tuple(found)


def _storable(definition: Definition) -> set[Expr]:
    """What may be computed at every point and stored: an index that is data is checked only where it is needed."""
    always, found = _always(definition), set[Expr]()
    for n in definition.nodes:
        if n in always or (all(c in found for c in n.children) and not (isinstance(n, Read) and _is_looked_up(n))):
            found.add(n)
    return {n for n in found if n.dtype not in NARROW}


def _is_looked_up(read: Read) -> bool:
    return any(isinstance(n, Read) for i in read.indices for n in postorder(i))


@remembered
def _always(definition: Definition) -> frozenset[Expr]:
    """What is computed at every point, so that all that it reads is known to lie inside."""
    needed = {definition.body.uid}
    for n in reversed(definition.nodes):
        if n.uid in needed:
            is_choice = isinstance(n, Select) or (isinstance(n, Apply) and n.fn in ("and", "or"))
            needed.update([c.uid for c in (n.children[:1] if is_choice else n.children)])
    return frozenset([n for n in definition.nodes if n.uid in needed])


def _within(read: Read) -> Expr | None:
    """The condition under which a read lies inside, of its indices alone; None where it always does."""
    found: Expr | None = None
    for index, extent in zip(read.indices, read.source.shape, strict=True):
        low, high = affine.bounds(index)
        limits = (("ge", 0, low < 0), ("lt", extent, high >= extent))
        for c in (Apply(fn, (index, affine.integer(limit))) for fn, limit, needed in limits if needed):
            found = c if found is None else Apply("and", (found, c))
    return found


def _anywhere(piece: Expr, certain: set[Expr]) -> Expr:
    """A piece that is computed at every point: what it reads outside is 0, which is chosen nowhere.

    select(x[i] > 0, x[i+3], 0.0)    ->    select(x[i] > 0, select(i + 3 < 20, x[i+3], 0.0), 0.0)
    """

    def rule(e: Expr) -> Expr | None:
        inside = None if not isinstance(e, Read) or e in certain else _within(e)
        return None if inside is None else Select(inside, e, Const(0, e.dtype))

    return rewrite(piece, rule)


@remembered
def _in_pieces(definition: Definition) -> Recipe:
    """The definition over its slots, each stored part a compute."""
    inputs, stored = stand_ins(definition), _stored(definition)
    numbers = _numbers(definition)
    table = Constant(np.array([c.value for _, c in numbers], dt.NUMPY[definition.body.dtype]), "numbers")
    place = {e: n for n, (e, _) in enumerate(numbers)}
    cut = frozenset((*inputs, table) if numbers else inputs)
    new: dict[Expr, Expr] = {}
    always = _always(definition)
    is_choosing = any([e not in always for e in definition.reads])
    certain: set[Expr] = set()
    """the reads that happen at every point"""
    for e in definition.nodes:
        children = tuple([new[c] for c in e.children])
        if e in place:
            number = Read(table, (affine.integer(place[e]),))
            new[e] = e.rebuild(tuple(number if isinstance(c, Const) else c for c in children))
        elif isinstance(e, Read):
            new[e] = Read(inputs[e.slot], children)
            if e in always:
                certain.add(new[e])
        else:
            new[e] = e if same(e.children, children) else e.rebuild(children)
        if e in stored:
            axes = tuple(sorted(e.free, key=lambda a: a.ident))
            name = derived(inputs[0].name, suffix="_part")
            piece = _of_runs(_anywhere(new[e], certain) if is_choosing else new[e], cut)
            new[e] = Read(define(tuple(a.extent for a in axes), axes, piece, name), axes)
    whole = _of_runs(new[definition.body], cut)
    return Recipe(inputs, (define(definition.shape, definition.axes, whole, "y"),))


@remembered
def _numbers(definition: Definition) -> tuple[tuple[Expr, Const], ...]:
    """Sums, products and comparisons with a number each, in the order of the body, when the numbers are many: then they
    are read from a tensor, so that pieces that differ in them are one kernel."""
    found: list[tuple[Expr, Const]] = []
    dtype = definition.body.dtype
    for e in _in_order(definition) if dtype in TABLED else ():
        if isinstance(e, Apply) and e.fn in NUMBERED and e.args[0].dtype == dtype:
            constants = [a for a in e.args if isinstance(a, Const)]
            found += [(e, c) for c in constants if len(constants) == 1]
    return tuple(found) if len({c for _, c in found}) * PIECE > operations(definition) else ()


def _of_runs(piece: Expr, inputs: Set[Tensor]) -> Expr:
    """The piece over the runs of its inputs that it reads, which are memory of them: so pieces that differ in where
    they read are one kernel.

    a[i] + x[i+96] + ... + x[i+191]    ->    r[j] = x[j+96];  a[i] + r[i] + ... + r[i+95]
    """
    ends: dict[Tensor, tuple[int, int]] = {}
    for e in postorder(piece):
        if isinstance(e, Read) and e.source in inputs and e.indices:
            low, high = affine.bounds(e.indices[0])
            source = tensor_of(e)
            first, last = ends.get(source, (low, high))
            ends[source] = min(first, low), max(last, high)
    runs: dict[Tensor, tuple[int, Compute]] = {}
    for source, (low, high) in ends.items():
        if low >= 0 and high < source.shape[0] and high - low + 1 < source.shape[0]:
            runs[source] = low, _run(source, low, high - low + 1)

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.source in runs:
            low, run = runs[tensor_of(e)]
            return Read(run, (affine.moved(e.indices[0], -low), *e.indices[1:]))
        return None

    return rewrite(piece, rule) if runs else piece


def _run(source: Tensor, low: int, length: int) -> Compute:
    """`length` elements of the first dimension, from `low` on."""
    shape = (length, *source.shape[1:])
    axes = tuple(Axis(d, n) for d, n in enumerate(shape))
    return define(
        shape, axes, Read(source, (affine.moved(axes[0], low), *axes[1:])), derived(source.name, suffix="_run")
    )

"""Long bodies become several computes, so that no kernel is too long to compile: its time is not linear in its length.

A body is gone through in the order in which it is computed. Where `PIECE` operations have come together, what is
still needed of them is stored: a chain of operations leaves one tensor, a tree as many as it is deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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

NARROW = ("float16", "bfloat16")
"""Types that are computed in a wider one: what is stored of them is rounded."""

TABLED = ("float32", "float64")
"""Types of the numbers in a body that may become the elements of a tensor."""


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
    body = definition.body
    return sum(map(_operations, _computed(body))) + sum(isinstance(n, Read) for n in postorder(body))


def _operations(e: Expr) -> int:
    return FUNCTIONS[e.fn].instructions if isinstance(e, Apply) else 1


@remembered
def _stored(definition: Definition) -> frozenset[Expr]:
    """The parts of a body that become tensors."""
    body = definition.body
    if isinstance(body, Binder):
        return frozenset()
    computed, safe, read = _computed(body), _safe(body), {e for e, _ in _numbers(definition)}
    nodes = [n for n in postorder(body) if n in computed]
    own = [_operations(n) + sum(isinstance(c, Read) for c in n.children) + (n in read) for n in nodes]
    piece: dict[Expr, int] = {}
    """the number of the piece that a node is computed in"""
    begins: list[int] = []
    """where what is computed for a node alone begins"""
    number = size = 0
    for at, n in enumerate(nodes):
        begin = at
        while begin and any(c is nodes[begin - 1] for c in n.children):
            begin = begins[begin - 1]
        begins.append(begin)
        if size + own[at] > PIECE:
            last = begins[at - 1] if at and any(c is nodes[at - 1] for c in n.children) else at
            number, size = number + 1, sum(own[last:at])
            if size > PIECE // 4:
                last, size = at, 0
            piece.update(dict.fromkeys(nodes[last:at], number))
        piece[n], size = number, size + own[at]
    return frozenset(c for n in nodes for c in n.children if piece.get(c, piece[n]) < piece[n] and c in safe)


def _computed(body: Expr) -> set[Expr]:
    """What is computed from data, apart from indices: reads and constants are no work."""
    from_data: set[Expr] = set()
    for n in postorder(body):
        if isinstance(n, Read) or any(c in from_data for c in n.children):
            from_data.add(n)
    found: set[Expr] = set()
    stack = [body]
    while stack:
        n = stack.pop()
        if n not in found and n in from_data and not isinstance(n, Read):
            found.add(n)
            stack.extend(n.children)
    return found


def _safe(body: Expr) -> set[Expr]:
    """What may be computed at every point and stored: what is read lies inside whatever the conditions around it."""
    always: set[Expr] = set()
    stack = [body]
    while stack:
        n = stack.pop()
        if n not in always:
            always.add(n)
            is_choice = isinstance(n, Select) or (isinstance(n, Apply) and n.fn in ("and", "or"))
            stack.extend(n.children[:1] if is_choice else n.children)
    inside: set[Expr] = set()
    for n in postorder(body):
        if all(c in inside for c in n.children) and not (isinstance(n, Read) and not _is_inside(n)):
            inside.add(n)
    return {n for n in inside | always if n.dtype not in NARROW}


def _is_inside(read: Read) -> bool:
    ranges = zip(read.indices, read.source.shape, strict=True)
    return all(low >= 0 and high < n for (low, high), n in ((affine.bounds(i), n) for i, n in ranges)) and not any(
        isinstance(n, Read) for i in read.indices for n in postorder(i)
    )


@remembered
def _in_pieces(definition: Definition) -> Recipe:
    """The definition over its slots, each stored part a compute."""
    inputs, stored = stand_ins(definition), _stored(definition)
    numbers = _numbers(definition)
    table = Constant(np.array([c.value for _, c in numbers], dt.NUMPY[definition.body.dtype]), "numbers")
    place = {e: n for n, (e, _) in enumerate(numbers)}
    cut = (*inputs, table) if numbers else inputs
    new: dict[Expr, Expr] = {}
    for e in postorder(definition.body):
        children = tuple(new[c] for c in e.children)
        if e in place:
            number = Read(table, (affine.integer(place[e]),))
            new[e] = e.rebuild(tuple(number if isinstance(c, Const) else c for c in children))
        elif isinstance(e, Read):
            new[e] = Read(inputs[e.slot], children)
        else:
            new[e] = e if same(e.children, children) else e.rebuild(children)
        if e in stored:
            axes = tuple(sorted(e.free, key=lambda a: a.ident))
            name = derived(inputs[0].name, suffix="_part")
            new[e] = Read(define(tuple(a.extent for a in axes), axes, _of_runs(new[e], cut), name), axes)
    whole = _of_runs(new[definition.body], cut)
    return Recipe(inputs, (define(definition.shape, definition.axes, whole, "y"),))


@remembered
def _numbers(definition: Definition) -> tuple[tuple[Expr, Const], ...]:
    """Sums and products with a number each, in the order of the body, when the numbers are many: then they are read
    from a tensor, so that pieces that differ in them are one kernel."""
    found: list[tuple[Expr, Const]] = []
    for e in postorder(definition.body):
        if isinstance(e, Apply) and e.fn in ("add", "sub", "mul") and e.dtype == definition.body.dtype in TABLED:
            constants = [a for a in e.args if isinstance(a, Const)]
            found += [(e, c) for c in constants if len(constants) == 1]
    return tuple(found) if len({c for _, c in found}) * PIECE > operations(definition) else ()


def _of_runs(piece: Expr, inputs: Sequence[Tensor]) -> Expr:
    """The piece over the runs of its inputs that it reads, which are memory of them: so pieces that differ in where
    they read are one kernel.

    a[i] + x[i+96] + ... + x[i+191]    ->    r[j] = x[j+96];  a[i] + r[i] + ... + r[i+95]
    """
    known, ends = set(inputs), dict[Tensor, tuple[int, int]]()
    for e in postorder(piece):
        if isinstance(e, Read) and e.source in known and e.indices:
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
            first = affine.simplify(Apply("sub", (e.indices[0], affine.integer(low))))
            return Read(run, (first, *e.indices[1:]))
        return None

    return rewrite(piece, rule) if runs else piece


def _run(source: Tensor, low: int, length: int) -> Compute:
    """`length` elements of the first dimension, from `low` on."""
    shape = (length, *source.shape[1:])
    axes = tuple(Axis(d, n) for d, n in enumerate(shape))
    first = affine.simplify(Apply("add", (axes[0], affine.integer(low))))
    return define(shape, axes, Read(source, (first, *axes[1:])), derived(source.name, suffix="_run"))

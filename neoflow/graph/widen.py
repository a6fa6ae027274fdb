"""Reductions that share an operand and agree but for how far one axis goes, as one over all of it.

Branches of a module read one image and give different numbers of channels, projections of one input different widths.
What they differ in is concatenated, along whatever dimension that axis reads; each result is a range of the one.
Source: parallel fusion, section 4.3 of NeoFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce, Select, Slot, rewrite
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import cost
from neoflow.graph.batch import can_be_one, is_kept_apart
from neoflow.graph.beside import can_be_part
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, own_indices
from neoflow.graph.pieces import pieces
from neoflow.graph.rewrite import Edit, Match
from neoflow.graph.rivals import Links, Parallel, Timed
from neoflow.verdict import Verdict

EVEN = 4
"""So many times as wide as the narrowest may be the widest: a narrow one reads what is shared in place, so that no
packing is saved. 1x1 convolutions of 96 channels to 16 and 128 took 1.1 times as long as one."""
SMALL = 4
"""So many times as large as what is copied is to be what is shared. 1x1 convolutions of one image to three widths were
1.25 and 1.36 times as fast as one, and their weight gradients 0.94 and 0.97, for which as much again is copied."""


@dataclass(frozen=True)
class Form:
    """A definition apart from the extent of dimension `at`, which the slots in `own` have as their dimension.

    shape, body: the rest; equal for definitions that agree but for that extent.
    """

    at: int
    shape: tuple[int, ...]
    body: Expr
    own: tuple[tuple[int, int], ...]

    @property
    def key(self) -> tuple[object, ...]:
        return self.at, self.shape, self.body.uid, self.own


@dataclass(frozen=True)
class WidenShared(Parallel):
    """Reductions that share an operand and agree but for how far one axis goes are one over all of it.

    a[i, j] = sum[k](x[i, k] * w[k, j]);  b[i, j] = sum[k](x[i, k] * v[k, j])
        ->  u[k, j] = w[k, j], v[k, j];  c[i, j] = sum[k](x[i, k] * u[k, j])
            a[i, j] = c[i, j];  b[i, j] = c[i, n + j]
    """

    name: str = "widen shared"

    def groups(self, editor: Editor, t: Compute) -> Iterator[Links]:
        """All that differ from it in one extent, for each dimension and each operand that they may share."""
        for form in forms(t.definition) if can_be_one(t.definition) else ():
            inputs = editor.inputs(t)
            own = {slot for slot, _ in form.own}
            kept = [n for n in range(len(inputs)) if n not in own]
            group = [r for r in editor.each_reader(inputs[kept[0]]) if _agrees(editor, r, form, kept, inputs)]
            if len({r.shape for r in group}) > 1:
                yield tuple(sorted(group, key=editor.number))

    def timed(self, editor: Editor, links: Links) -> Verdict:
        form = _form(links)
        if (late := editor.dependent(links)) is not None:
            return Verdict(False, f"{late.name} needs another of them")
        first = links[0].definition
        if is_contraction(first) and cost.sides(first) is None:
            return Verdict(False, "it is no product of two sides, one of which all of them could pack once")
        columns = {n: [editor.inputs(t)[n] for t in links] for n, _ in form.own}
        if any(len(set(column)) < len(column) for column in columns.values()):
            return Verdict(False, "two of them share an operand that the others do not")
        widths = [t.shape[form.at] for t in links]
        if max(widths) > EVEN * min(widths):
            return Verdict(False, f"they are from {min(widths)} to {max(widths)} wide: a narrow one packs nothing")
        nbytes = sum(_copied(editor, columns[n], m) for n, m in form.own)
        shared = sum(i.nbytes for n, i in enumerate(editor.inputs(links[0])) if n not in columns)
        if SMALL * nbytes > 2 * shared:
            return Verdict(False, f"{nbytes} bytes would be copied, to share {shared}")
        shapes = {n: _joined_shape(columns[n], m) for n, m in form.own}
        slots = tuple(Slot(s.position, shapes.get(s.position, s.shape), s.dtype) for s in first.slots)
        body, shape = _wide(first, form, {n: slots[n] for n in shapes}, sum(widths))
        before = sum(cost.seconds(t.definition) for t in links)
        nbytes += sum(2 * t.nbytes for t in links if is_kept_apart(editor, t))
        after = cost.seconds(Definition(shape, body, slots)) + cost.copied(nbytes)
        what = f"{cost.told(before, after)}, with {nbytes} bytes for copies"
        if not cost.is_worth(before, after):
            return Verdict(False, f"one for {len(links)} would take {what}")
        return Timed(True, f"one for {len(links)} takes {what}", before, after)

    def apply(self, editor: Editor, match: Match) -> Edit:
        links = match.tensors[1:]
        form, first = _form(links), links[0]
        inputs = list(editor.inputs(first))
        for n, m in form.own:
            inputs[n] = concatenated([editor.inputs(t)[n] for t in links], m, f"{inputs[n].name}_all")
        slots = {n: Slot(n, inputs[n].shape, inputs[n].dtype) for n, _ in form.own}
        body, shape = _wide(first.definition, form, slots, sum(t.shape[form.at] for t in links))
        one = build(shape, body, tuple(inputs), f"{first.name}_all")
        made: dict[Tensor, Tensor] = {}
        offset = 0
        for t in links:
            own = list(own_indices(t.shape))
            own[form.at] = affine.moved(own[form.at], offset)
            made[t] = build(t.shape, Read(Slot(0, shape, one.dtype), tuple(own)), (one,), t.name)
            offset += t.shape[form.at]
        return made


@remembered
def forms(definition: Definition) -> tuple[Form, ...]:
    """A definition apart from one extent, for each dimension for which some operands, not all, go as far as that."""
    found = (_without(definition, d) for d, n in enumerate(definition.shape) if n > 1)
    return tuple(f for f in found if f is not None and 0 < len(f.own) < len(definition.slots))


def _without(definition: Definition, at: int) -> Form | None:
    axis, own = Axis(at, definition.shape[at]), dict[int, int]()
    for read in definition.reads:
        places = [m for m, i in enumerate(read.indices) if axis in i.free]
        if not places and read.slot not in own:
            continue
        is_plain = len(places) == 1 and read.indices[places[0]] is axis
        if not is_plain or own.setdefault(read.slot, places[0]) != places[0]:
            return None
    if any(r.slot in own and axis not in r.free for r in definition.reads):
        return None

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.slot in own):
            return None
        m, shape = own[e.slot], definition.slots[e.slot].shape
        narrow = Slot(e.slot, (*shape[:m], 1, *shape[m + 1 :]), e.dtype)
        return Read(narrow, (*e.indices[:m], affine.integer(0), *e.indices[m + 1 :]))

    body = rewrite(definition.body, rule)
    if axis in body.free or any(definition.slots[n].shape[m] != axis.extent for n, m in own.items()):
        return None
    shape = (*definition.shape[:at], *definition.shape[at + 1 :])
    return Form(at, shape, body, tuple(sorted(own.items())))


def _agrees(editor: Editor, r: Compute, form: Form, kept: Sequence[int], inputs: Sequence[Tensor]) -> bool:
    """Whether a compute has this form, and reads the same where that is shared."""
    if not any(f.key == form.key for f in forms(r.definition)):
        return False
    given = editor.inputs(r)
    return len(given) == len(inputs) and all(given[n] is inputs[n] for n in kept)


def _form(links: Sequence[Compute]) -> Form:
    """What all have in common."""
    known = [{f.key for f in forms(t.definition)} for t in links]
    return next(f for f in forms(links[0].definition) if all(f.key in keys for keys in known))


def _wide(definition: Definition, form: Form, slots: dict[int, Slot], extent: int) -> tuple[Expr, tuple[int, ...]]:
    """The body that goes so far, over concatenated operands; and its shape."""
    own, axis = dict(form.own), Axis(form.at, extent)

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.slot in own):
            return None
        m = own[e.slot]
        return Read(slots[e.slot], (*e.indices[:m], axis, *e.indices[m + 1 :]))

    assert isinstance(definition.body, Reduce)
    shape = definition.shape
    return rewrite(definition.body, rule), (*shape[: form.at], extent, *shape[form.at + 1 :])


def _joined_shape(parts: Sequence[Tensor], m: int) -> tuple[int, ...]:
    shape = parts[0].shape
    return (*shape[:m], sum(t.shape[m] for t in parts), *shape[m + 1 :])


def concatenated(parts: Sequence[Tensor], m: int, name: str) -> Compute:
    """Tensors one behind the other along dimension m."""
    shape = _joined_shape(parts, m)
    own, axis, end = list(own_indices(shape)), Axis(m, shape[m]), shape[m]
    body: Expr | None = None
    for n in range(len(parts) - 1, -1, -1):
        begin = end - parts[n].shape[m]
        own[m] = affine.moved(axis, -begin) if parts[n].shape[m] > 1 else affine.integer(0)
        read = Read(Slot(n, parts[n].shape, parts[n].dtype), tuple(own))
        body = read if body is None else Select(Apply("lt", (axis, affine.integer(end))), read, body)
        end = begin
    assert body is not None
    return build(shape, body, tuple(parts), name)


def _copied(editor: Editor, parts: Sequence[Tensor], m: int) -> int:
    """Bytes that are read and written to concatenate; none where kernels write each where it is to be."""
    is_written = all(can_be_part(editor, t) for t in parts) and pieces(concatenated(parts, m, "all").definition)
    return 0 if is_written else 2 * sum(t.nbytes for t in parts)

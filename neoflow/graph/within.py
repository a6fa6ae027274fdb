"""Sums over all samples of what is made sample by sample, as sums within each and one of these: the first ride along.

The kernel that makes a sample has it at hand; by itself the sum reads all of it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Binder, Expr, Read, Reduce, Slot, substitute
from neoflow.expr.recipe import derived
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.cost import added_within, is_worth, moved, told
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, is_move, reads_at_own_point
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

STORED = 1.5
"""So many times its own bytes a compute reads that is stored for its readers, and not computed again by each."""
WIDE_BYTES = 4
"""Of an element, at least: sums of narrower ones are rounded to them."""


@dataclass(frozen=True)
class SumWithin(Rewrite):
    """A sum over samples of what is made for several readers adds up within each sample first.

    s[c] = sum[b, p](x[b, c, p] * y[b, c, p])
                      ->    w[b, c] = sum[p](x[b, c, p] * y[b, c, p]);  s[c] = sum[b](w[b, c])
    """

    name: str = "sum within"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        body = t.definition.body
        if not _adds(t) or dt.itemsize(body.dtype) < WIDE_BYTES:
            return
        for term in dict.fromkeys(editor.inputs(t)):
            source = _stored(editor, term) if _kept(editor, t, term) else None
            if source is not None and isinstance(term, Compute):
                yield Match((t, term, source))
                return

    def legal(self, editor: Editor, match: Match) -> Verdict:
        t, term, x = match.tensors
        kept = _kept(editor, t, term)
        if (other := _reads_anyhow(editor, t, x, kept)) is not None:
            return Verdict(False, f"{other.name} reads what follows from {x.name} in any case")
        if (first := _reduced(editor, x)) is not None:
            return Verdict(False, f"{x.name} is made along with {first.name}, not sample by sample")
        together = _along(editor, t, x, kept)
        before, after = moved(x.nbytes) / together, added_within(x.shape, kept)
        if not is_worth(before, after):
            others = f", together with {together - 1} other sums" if together > 1 else ""
            what = f"a sum for each of its samples takes {told(before, after)} for reading {x.name}"
            return Verdict(False, what + others)
        return Verdict(True, f"{x.name} is not read again: {told(before, after)}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, term, _ = match.tensors
        body, kept = t.definition.body, _kept(editor, t, term)
        assert isinstance(body, Reduce)
        (read,) = _reads(editor, t, term)
        axes = [i for i in read.indices if isinstance(i, Axis)]
        new = {a: Axis(n, a.extent) for n, a in enumerate(axes)}
        at: dict[Axis, Expr] = {**new}
        terms = Reduce("sum", tuple(new[a] for a in axes[kept:]), substitute(body.body, at))
        within = build(term.shape[:kept], terms, editor.inputs(t), derived(t.name, suffix="_within"))
        outer = _outer(t, axes[:kept])
        own = {a: Axis(n, a.extent) for n, a in enumerate([*t.definition.axes, *outer])}
        outside = tuple(own[a] for a in outer)
        total = Read(Slot(0, within.shape, within.dtype), tuple(own[a] for a in axes[:kept]))
        return {t: build(t.shape, Reduce("sum", outside, total), (within,), t.name)}


def _adds(t: Tensor) -> bool:
    """Whether it is a sum that is no contraction, over several axes."""
    body = t.definition.body if isinstance(t, Compute) else None
    if not (isinstance(t, Compute) and isinstance(body, Reduce) and body.op == "sum" and len(body.axes) > 1):
        return False
    return len(t.definition.reduction_axes) == len(body.axes) and not is_contraction(t.definition)


def _is_stored(editor: Editor, t: Tensor) -> bool:
    """Whether each of its points is computed by itself, from more than would be read again to compute it for each of
    its readers, which are not sums alone."""
    if not isinstance(t, Compute) or isinstance(t.definition.body, Binder) or is_move(t.definition):
        return False
    is_less = sum(i.nbytes for i in editor.inputs(t)) > STORED * t.nbytes
    readers = editor.readers(t) if is_less else []
    return len(readers) > 1 and not all(map(_adds, readers))


def _reduced(editor: Editor, t: Compute) -> Tensor | None:
    """A reduction that t reads at its own points, and is computed along with in its loops."""
    inputs = editor.inputs(t)
    at_own = (inputs[r.slot] for r in t.definition.reads if reads_at_own_point(r, t.shape))
    return next((i for i in at_own if isinstance(i, Compute) and isinstance(i.definition.body, Binder)), None)


def _stored(editor: Editor, term: Tensor) -> Compute | None:
    """What is stored that a term is, or is computed from in place, point by point."""
    seen, stack = {term}, [term]
    while stack:
        t = stack.pop()
        if not isinstance(t, Compute) or isinstance(t.definition.body, Binder):
            continue
        if _is_stored(editor, t):
            return t
        inputs = editor.inputs(t)
        at_own = [inputs[r.slot] for r in t.definition.reads if reads_at_own_point(r, t.shape)]
        stack += [i for i in reversed(at_own) if i.shape == t.shape and i not in seen]
        seen.update(at_own)
    return None


def _reads(editor: Editor, t: Compute, x: Tensor) -> list[Read]:
    inputs = editor.inputs(t)
    return [r for r in t.definition.reads if inputs[r.slot] is x]


def _outer(t: Compute, axes: list[Axis]) -> list[Axis]:
    """Those of some axes that t sums over."""
    return [a for a in axes if a.ident >= len(t.shape)]


def _kept(editor: Editor, t: Compute, x: Tensor) -> int:
    """How many of the dimensions of x, which t reads once, each by an axis of its own, are of a sample: all up to the
    last one that t has; 0 where t does not sum over some of these and over what is behind them."""
    reads = _reads(editor, t, x)
    axes = [i for i in reads[0].indices if isinstance(i, Axis)]
    every = len(t.shape) + len(t.definition.reduction_axes)
    if len(reads) != 1 or tuple(a.extent for a in axes) != x.shape or len({a.ident for a in axes}) != every:
        return 0
    kept = 1 + max((n for n, a in enumerate(axes) if a.ident < len(t.shape)), default=-1)
    return kept if kept < len(axes) and _outer(t, axes[:kept]) else 0


def _reads_anyhow(editor: Editor, t: Compute, x: Compute, kept: int) -> Compute | None:
    """Another sum to the same shape, of what is computed from x in place, that cannot ride along as t does: a variance,
    which reads x when the mean is known. Then one pass of them all is the least."""
    for reader, source in _sums(editor, x):
        if reader.shape == t.shape and reader is not t:
            needs = editor.depends(reader, t) or editor.depends(t, reader)
            if needs or _kept(editor, reader, source) != kept:
                return reader
    return None


def _along(editor: Editor, t: Compute, x: Compute, kept: int) -> int:
    """How many sums to the same shape, t among them, read what is computed from x in place: without sums within they
    are one kernel, and read it once."""
    return len({r for r, source in _sums(editor, x) if r.shape == t.shape and _kept(editor, r, source) == kept} | {t})


def _sums(editor: Editor, x: Compute) -> Iterator[tuple[Compute, Compute]]:
    """The sums of what is computed from x in place, each with what it reads of that."""
    seen, stack = {x}, [x]
    while stack:
        source = stack.pop()
        for reader in editor.each_reader(source):
            if _adds(reader):
                yield reader, source
            is_in_place = reader.shape == x.shape and not isinstance(reader.definition.body, Binder)
            if is_in_place and reader not in seen and not _is_stored(editor, reader):
                seen.add(reader)
                stack.append(reader)

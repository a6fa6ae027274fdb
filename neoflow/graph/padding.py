"""Guards of a contraction become zeros around an operand, so that the contraction itself has no condition.

Exact when the other factors are finite; where one is not, 0 * w differs from the masked 0. So it is only done where
every other factor is a plain read: what an infinite weight gives is then NaN in either reading of "zero padding", as in
every library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select, Slot, rewrite, substitute
from neoflow.expr.locality import stays_inside
from neoflow.expr.memo import remembered
from neoflow.expr.narrow import NARROW, holds
from neoflow.expr.normal import conjunction
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_move, own_indices, reads_at_own_point
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

Window = tuple[tuple[int, int], ...]
"""For each dimension the indices [low, high) where the tensor counts; outside it stands for zero."""

LARGER, SMALL = 4, 4096
"""A padded copy has at most so many times the elements of its source, or so many elements at all."""


@dataclass(frozen=True)
class _Masked:
    """A guarded contraction whose guards are all windows on one of its reads."""

    product: Expr
    read: Read
    window: Window


@dataclass(frozen=True)
class PadGuards(Rewrite):
    """All contractions that read one tensor through the same window read one padded copy of it instead.

    d[z] = sum[r](select(0 <= z - r & z - r < n, g[z - r] * w[r], 0))
        ->  p[u] = select(lo <= u < lo + n, g[u - lo], 0);   d[z] = sum[r](p[z - r + lo] * w[r])
    """

    name: str = "pad guards"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        """A guarded sum of products, and those that read the same operand through the same window."""
        if not _is_guarded(t.definition):
            return
        masked = _masked(t.definition)
        if not isinstance(masked, _Masked):
            yield Match((t,))
            return
        source = editor.inputs(t)[masked.read.slot]
        others = [
            r
            for r in editor.readers(source)
            if r is not t
            and isinstance(m := _masked(r.definition), _Masked)
            and m.window == masked.window
            and editor.inputs(r)[m.read.slot] is source
        ]
        yield Match((t, *sorted(others, key=editor.place)))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        t = match.tensors[0]
        masked = _masked(t.definition)
        if isinstance(masked, str):
            return Verdict(False, masked)
        source = editor.inputs(t)[masked.read.slot]
        is_whole = masked.window == tuple((0, n) for n in source.shape)
        window = "its extents" if is_whole else " x ".join(f"[{low}, {high})" for low, high in masked.window)
        return Verdict(True, f"its guards say no more than that {source.name} is zero outside {window}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        found = [(t, m) for t in match.tensors if isinstance(m := _masked(t.definition), _Masked)]
        first, masked = found[0]
        window = masked.window
        reached = [[affine.bounds(i) for i in m.read.indices] for _, m in found]
        low = [min(own, *(r[d][0] for r in reached)) for d, (own, _) in enumerate(window)]
        high = [max(own, *(r[d][1] + 1 for r in reached)) for d, (_, own) in enumerate(window)]
        padded = _padded(editor.inputs(first)[masked.read.slot], window, low, high)
        return {t: _unmasked(t, m, editor.inputs(t), padded, low) for t, m in found}


@dataclass(frozen=True)
class PadNarrow(Rewrite):
    """What was narrow before it was padded is padded so: half of the bytes, and contractions find it as it was.

    a[i] = float32(x[i]);  p[u] = select(lo <= u < lo + n, a[u - lo], 0)
        ->  q[u] = select(lo <= u < lo + n, x[u - lo], 0);  p[u] = float32(q[u])
    """

    name: str = "pad narrow"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if isinstance(t.definition.body, Select) and is_move(t.definition) and t.dtype == "float32":
            (source,) = editor.inputs(t)
            if isinstance(source, Compute) and _is_widening(source.definition):
                yield Match((t, source))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        _, cast = match.tensors
        (source,) = editor.inputs(cast)
        held = isinstance(match.tensors[0].definition.body, Select) and holds(source.dtype, _other(match.tensors[0]))
        if not held:
            return Verdict(False, f"around it stands {_other(match.tensors[0])}, which is no {source.dtype}")
        return Verdict(True, f"{cast.name} only widens {source.name}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t, cast = match.tensors
        (source,) = editor.inputs(cast)

        def rule(e: Expr) -> Expr | None:
            if isinstance(e, Read):
                return Read(Slot(0, source.shape, source.dtype), e.indices)
            return Const(e.value, source.dtype) if isinstance(e, Const) and e.dtype == t.dtype else None

        padded = build(t.shape, rewrite(t.definition.body, rule), (source,), f"{t.name}_narrow")
        own = Read(Slot(0, t.shape, source.dtype), own_indices(t.shape))
        return {t: build(t.shape, Cast(t.dtype, own), (padded,), t.name)}


def _other(t: Compute) -> float | int | bool:
    """What stands around the elements of a padding."""
    body = t.definition.body
    assert isinstance(body, Select) and isinstance(body.other, Const)
    return body.other.value


@remembered
def _is_widening(definition: Definition) -> bool:
    """Whether it is what it reads, narrow there, as float32."""
    match definition.body:
        case Cast(arg=Read() as read):
            is_narrow = read.dtype in NARROW and definition.body.dtype == "float32"
            return is_narrow and reads_at_own_point(read, definition.shape)
    return False


def factors(e: Expr) -> list[Expr]:
    """The operands of a tree of products, in the order of the text; equal ones once."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Apply) and e.fn == "mul":
            stack += reversed(e.args)
        else:
            found[e] = None
    return list(found)


def _is_guarded(definition: Definition) -> bool:
    """Whether a float sum of products has a guard: where it does not hold, zero is added."""
    body = definition.body
    if not (isinstance(body, Reduce) and body.op == "sum" and isinstance(body.body, Select)):
        return False
    choice = body.body
    is_zero = isinstance(choice.other, Const) and choice.other.value == 0 and dt.is_float(body.dtype)
    return is_zero and isinstance(choice.then, Apply) and choice.then.fn == "mul"


@remembered
def _masked(definition: Definition) -> _Masked | str:
    """How the guards mask one operand of a guarded sum of products; or why they do not."""
    if not _is_guarded(definition):
        return "it is no guarded sum of products"
    assert isinstance(definition.body, Reduce) and isinstance(definition.body.body, Select)
    choice = definition.body.body
    parts = factors(choice.then)
    if not all(isinstance(e, (Read, Const)) for e in parts):
        return "a factor is more than a read: where it is infinite, 0 times it is no 0"
    guards = conjuncts(choice.cond, True)
    reads = [e for e in parts if isinstance(e, Read)]
    reason = "its guards are no window on a single operand"
    for read in sorted(reads, key=lambda r: math.prod(r.source.shape)):
        window = _window(read, guards)
        if window is None:
            continue
        if not _is_worth_padding(read):
            reason = f"what it reaches is more than {LARGER} times the operand"
        elif not all(map(stays_inside, (*read.indices, *(r for r in reads if r is not read)))):
            reason = "another operand leaves its tensor where the guards do not hold"
        else:
            return _Masked(choice.then, read, window)
    return reason


def _is_worth_padding(read: Read) -> bool:
    """Whether what the indices reach is known and not much larger than the tensor."""
    bounds = [affine.bounds(index) for index in read.indices]
    return math.prod(high - low + 1 for low, high in bounds) <= max(LARGER * math.prod(read.source.shape), SMALL)


def _window(read: Read, guards: tuple[Expr, ...]) -> Window | None:
    """The window on `read` that says exactly what the guards say, or None."""
    window = [[0, n] for n in read.source.shape]
    for g in guards:
        if not (isinstance(g, Apply) and g.fn in ("ge", "lt") and g.args[0].dtype == dt.INDEX):
            return None
        terms, constant = affine.combine(affine.linear(g.args[0]), affine.linear(g.args[1]), -1)
        for dim, index in enumerate(read.indices):
            own, offset = affine.linear(index)
            if own == terms:
                # own + constant >= 0  <=>  index >= offset - constant
                limit = offset - constant
                if g.fn == "ge":
                    window[dim][0] = max(window[dim][0], limit)
                else:
                    window[dim][1] = min(window[dim][1], limit)
                break
        else:
            return None
    if any(low >= high for low, high in window):
        return None
    return tuple((low, high) for low, high in window)


def _padded(source: Tensor, window: Window, low: list[int], high: list[int]) -> Tensor:
    """The elements of `source` in its window, zero around it, from `low` to `high`; itself where nothing is around."""
    shape = tuple(h - n for n, h in zip(low, high, strict=True))
    axes = tuple(Axis(d, n) for d, n in enumerate(shape))
    indices = tuple(affine.simplify(Apply("add", (a, affine.integer(n)))) for a, n in zip(axes, low, strict=True))
    conditions: list[Expr] = []
    for index, (start, stop) in zip(indices, window, strict=True):
        for bound in (Apply("ge", (index, affine.integer(start))), Apply("lt", (index, affine.integer(stop)))):
            c = affine.simplify(bound)
            if not (isinstance(c, Const) and c.value):
                conditions.append(c)
    if not conditions:
        return source
    read = Read(Slot(0, source.shape, source.dtype), indices)
    body = Select(conjunction(tuple(conditions)), read, Const(0, source.dtype))
    return build(shape, body, (source,), f"{source.name}_padded")


def _unmasked(t: Compute, m: _Masked, inputs: tuple[Tensor, ...], padded: Tensor, low: list[int]) -> Tensor:
    """The contraction without its guards, over the padded operand, whose first element stands at `low`."""
    assert isinstance(t.definition.body, Reduce)
    indices = tuple(
        affine.simplify(Apply("add", (i, affine.integer(-n)))) for i, n in zip(m.read.indices, low, strict=True)
    )
    slot = Slot(len(inputs), padded.shape, padded.dtype)
    product = substitute(m.product, {m.read: Read(slot, indices)})
    body = Reduce("sum", t.definition.body.axes, product)
    return build(t.shape, body, (*inputs, padded), t.name)

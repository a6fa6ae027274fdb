"""Parts of a body that depend on less than the body does, as computes of their own.

What a transcendental function costs is paid once for each of its points, not once for each point of what it is in; a
contraction that looks its operands up reads them in place, and gets a register tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Scatter, Select, Slot, postorder, substitute
from neoflow.expr.locality import axes_met, memory_order
from neoflow.expr.memo import remembered
from neoflow.expr.normal import is_normal
from neoflow.expr.tensor import Compute, Definition
from neoflow.expr.traits import flops
from neoflow.graph.edit import Editor
from neoflow.graph.facts import is_contraction, points
from neoflow.graph.padding import factors
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

COSTLY = 10
"""Operations a point from which computing once and reading is less than computing again: a transcendental function."""
REPEATS = 4
"""How often each point of a part is computed, at least: what is stored is written once and read as often."""
SAVED = 1 << 12
"""Operations below which a kernel of its own saves nothing: a few hundred vectors, a fraction of a microsecond."""


@dataclass(frozen=True)
class _Part:
    """A part of a body, and the indices of the tensor that would hold it: axes, or `//` and `%` of them."""

    body: Expr
    indices: tuple[Expr, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(affine.bounds(i)[1] + 1 for i in self.indices)

    @property
    def points(self) -> int:
        return math.prod(self.shape)


def _part(e: Expr) -> _Part:
    """The part `e`, over the coarsest indices that it is made of."""
    indices = tuple(_coarse(e, a) for a in memory_order(axes_met([e]), [e]))
    return _Part(e, indices)


def _coarse(e: Expr, axis: Axis) -> Expr:
    """The one `axis // c` or `axis % c` through which alone e depends on the axis; if there is none, the axis."""
    users = {n for n in postorder(e) if any(c is axis for c in n.children)}
    one = next(iter(users)) if len(users) == 1 else None
    is_coarse = isinstance(one, Apply) and one.fn in ("floordiv", "mod") and one.args[0] is axis
    return one if one is not None and is_coarse and isinstance(one.children[1], Const) else axis


def _hoisted(t: Compute, found: tuple[_Part, ...], editor: Editor) -> Compute:
    """t with each part read from a compute of its own."""
    inputs, mapping = list(editor.inputs(t)), dict[Expr, Expr]()
    for part in found:
        own: dict[Expr, Expr] = {i: Axis(d, n) for d, (i, n) in enumerate(zip(part.indices, part.shape, strict=True))}
        made = build(part.shape, substitute(part.body, own), editor.inputs(t), f"{t.name}_part")
        mapping[part.body] = Read(Slot(len(inputs), made.shape, made.dtype), part.indices)
        inputs.append(made)
    return build(t.shape, substitute(t.definition.body, mapping), tuple(inputs), t.name)


@dataclass(frozen=True)
class HoistCostly(Rewrite):
    """What costs a transcendental function and depends on fewer axes, or on coarser indices, is computed once there.

    y[b, t, d] = x[b, t, d] * cos(a[t, d // 2])    ->    c[t, u] = cos(a[t, u]);  y[b, t, d] = x[b, t, d] * c[t, d // 2]
    """

    name: str = "hoist costly"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if _costly(t.definition):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        found, total = _costly(match.tensors[0].definition), points(match.tensors[0].definition)
        saved = sum(flops(p.body) * (total - p.points) for p in found)
        if saved < SAVED:
            return Verdict(False, f"its {saved} operations are too few for a kernel of their own")
        times = max(total // p.points for p in found)
        return Verdict(True, f"it is computed {times} times at each of its points: {saved} operations less")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        return {t: _hoisted(t, _costly(t.definition), editor)}


@remembered
def _costly(definition: Definition) -> tuple[_Part, ...]:
    """The largest parts of a body, or of what it reduces, that are worth it.

    Not what stands under a condition, where it may be all that keeps a read inside; nor what is the same along the
    innermost axes: compilers take that out of their loops. A contraction packs its operands: it computes them seldom.
    """
    body, total = definition.body, points(definition)
    if isinstance(body, Scatter) or is_contraction(definition) or not is_normal(definition):
        return ()
    inner = [a for a in definition.reduction_axes if a.extent > 1]
    inner = inner or [a for a in definition.axes if a.extent > 1][-1:]
    body = body.body if isinstance(body, Reduce) else body
    coarsest = _coarsest(body)
    found: dict[Expr, _Part] = {}
    stack, seen = [body], set[Expr]()
    while stack:
        e = stack.pop()
        if e in seen or isinstance(e, Read) or not e.free:
            continue
        seen.add(e)
        fewest = REPEATS * math.prod(coarsest[a] for a in e.free)
        if fewest <= total and isinstance(e, Apply) and dt.is_float(e.dtype) and not e.free.isdisjoint(inner):
            part = _part(e)
            if flops(e) >= COSTLY and REPEATS * part.points <= total:
                found[e] = part
                continue
        is_choice = isinstance(e, Select) or (isinstance(e, Apply) and e.fn in ("and", "or"))
        stack += e.children[:1] if is_choice else e.children
    return tuple(found.values())


def _coarsest(body: Expr) -> dict[Axis, int]:
    """The fewest values that any part of a body can take from each axis: those of one `//` or `%`, or of the axis."""
    found: dict[Axis, int] = {}
    for e in postorder(body):
        if isinstance(e, Axis):
            found.setdefault(e, e.extent)
        elif isinstance(e, Apply) and e.fn in ("floordiv", "mod") and isinstance(e.args[0], Axis):
            found[e.args[0]] = min(found[e.args[0]], affine.bounds(e)[1] + 1)
    return found


@dataclass(frozen=True)
class HoistLookups(Rewrite):
    """A contraction with a factor that is looked up reads a tensor of what is found.

    y[e, o] = sum[k](x[ids[e], k] * w[k, o])    ->    f[e, k] = x[ids[e], k];  y[e, o] = sum[k](f[e, k] * w[k, o])
    """

    name: str = "hoist lookups"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if _looked_up(t.definition):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        t = match.tensors[0]
        found = _looked_up(t.definition)
        total = points(t.definition)
        repeats = min(total // p.points for p in found)
        if repeats < REPEATS:
            return Verdict(False, f"what it looks up is read {repeats} times, which is no reuse")
        if not is_contraction(_hoisted(t, found, editor).definition):
            return Verdict(False, "its other operands are not reused, so that it would be no contraction")
        return Verdict(True, f"what it looks up is read {repeats} times, by a contraction then")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        return {t: _hoisted(t, _looked_up(t.definition), editor)}


@remembered
def _looked_up(definition: Definition) -> tuple[_Part, ...]:
    """The factors of a float sum of products that read at indices from data."""
    body = definition.body
    if not (isinstance(body, Reduce) and body.op == "sum" and dt.is_float(body.dtype) and is_normal(definition)):
        return ()
    parts = factors(body.body)
    found = [e for e in dict.fromkeys(parts) if _looks_up(e)]
    return tuple(map(_part, found)) if len(parts) > 1 else ()


def _looks_up(e: Expr) -> bool:
    return any(isinstance(n, Read) and any(isinstance(i, Read) for x in n.indices for i in postorder(x))
               for n in postorder(e))  # fmt: skip

"""Guards of a contraction become zeros around an operand, so that the contraction itself has no condition.

    d[z] = sum[r](select(0 <= z - r & z - r < n, g[z - r] * w[r], 0))
        ->  p[u] = select(lo <= u < lo + n, g[u - lo], 0);   d[z] = sum[r](p[z - r + lo] * w[r])

Exact when w is finite; where w is not, 0 * w differs from the masked 0. So it is only done where every other factor is
a plain read: what an infinite weight gives is then NaN in either reading of "zero padding", as in every library.
All contractions that read one tensor through the same window share one padded copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, Slot, Source, same, substitute
from neoflow.expr.normal import conjunction
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.canonicalize import map_graph
from neoflow.graph.graph import Graph

Window = tuple[tuple[int, int], ...]
"""For each dimension the indices [low, high) where the tensor counts; outside it stands for zero."""


@dataclass
class _Padding:
    """How far the reads of one (tensor, window) reach."""

    low: list[int]
    high: list[int]
    tensor: Tensor | None = field(default=None)

    def widen(self, dim: int, low: int, high: int) -> None:
        self.low[dim], self.high[dim] = min(self.low[dim], low), max(self.high[dim], high)


@dataclass(frozen=True)
class _Masked:
    """A guarded contraction whose guards are all windows on one of its reads."""

    product: Expr
    read: Read
    window: Window


def factors(e: Expr) -> list[Expr]:
    """The operands of a tree of products."""
    if isinstance(e, Apply) and e.fn == "mul":
        return factors(e.args[0]) + factors(e.args[1])
    return [e]


def _masked(definition: Definition) -> _Masked | None:
    body = definition.body
    if not (isinstance(body, Reduce) and body.op == "sum" and isinstance(body.body, Select)):
        return None
    choice = body.body
    if not (isinstance(choice.other, Const) and choice.other.value == 0 and dt.is_float(body.dtype)):
        return None
    reads = factors(choice.then)
    if len(reads) < 2 or not all(isinstance(r, (Read, Const)) for r in reads):
        return None
    guards = conjuncts(choice.cond, True)
    for read in sorted((r for r in reads if isinstance(r, Read)), key=lambda r: _size(r.source)):
        window = _window(read, guards)
        others = [r for r in reads if isinstance(r, Read) and r is not read]
        if window is not None and _is_worth_padding(read) and all(_stays_inside(r) for r in others):
            return _Masked(choice.then, read, window)
    return None


def _is_worth_padding(read: Read) -> bool:
    """Whether what the indices reach is known and not much larger than the tensor."""
    reach = 1
    for index in read.indices:
        low, high = affine.bounds(index)
        reach *= high - low + 1
    return reach <= max(4 * _size(read.source), 4096)


def _stays_inside(read: Read) -> bool:
    """Whether a read stays inside its tensor without any guard."""
    ranges = [affine.bounds(index) for index in read.indices]
    return all(low >= 0 and high < n for (low, high), n in zip(ranges, read.source.shape, strict=True))


def _size(source: Source) -> int:
    total = 1
    for n in source.shape:
        total *= n
    return total


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


def pad_guards(graph: Graph) -> Graph:
    """Replace guarded contractions by contractions over padded operands. See the module's text."""
    masked = {t: m for t in graph.nodes if (m := _masked(t.definition)) is not None}
    paddings: dict[tuple[Tensor, Window], _Padding] = {}
    for t, m in masked.items():
        source = t.inputs[m.read.slot]
        key = (source, m.window)
        if key not in paddings:
            paddings[key] = _Padding([low for low, _ in m.window], [high for _, high in m.window])
        for dim, index in enumerate(m.read.indices):
            low, high = affine.bounds(index)
            paddings[key].widen(dim, low, high + 1)
    new: dict[Tensor, Tensor] = {}
    for t in graph.nodes:
        inputs = tuple(new.get(i, i) for i in t.inputs)
        if t in masked:
            m = masked[t]
            position = m.read.slot
            padding = paddings[(t.inputs[position], m.window)]
            if padding.tensor is None:
                padding.tensor = _padded(inputs[position], m.window, padding)
            new[t] = _unmasked(t, m, inputs, padding)
        elif not same(inputs, t.inputs):
            new[t] = Compute(t.definition, inputs, t.name, t.axis_names, t.where)
    return map_graph(graph, new)


def _padded(source: Tensor, window: Window, padding: _Padding) -> Tensor:
    shape = tuple(h - low for low, h in zip(padding.low, padding.high, strict=True))
    axes = tuple(Axis(d, n) for d, n in enumerate(shape))
    indices = tuple(
        affine.simplify(Apply("add", (a, affine.integer(low)))) for a, low in zip(axes, padding.low, strict=True)
    )
    conditions: list[Expr] = []
    for index, (low, high) in zip(indices, window, strict=True):
        for bound in (Apply("ge", (index, affine.integer(low))), Apply("lt", (index, affine.integer(high)))):
            c = affine.simplify(bound)
            if not (isinstance(c, Const) and c.value):
                conditions.append(c)
    if not conditions:
        return source
    read = Read(Slot(0, source.shape, source.dtype), indices)
    body = Select(conjunction(tuple(conditions)), read, Const(0, source.dtype))
    return build(shape, body, (source,), f"{source.name}_padded")


def _unmasked(t: Compute, m: _Masked, inputs: tuple[Tensor, ...], padding: _Padding) -> Tensor:
    padded = padding.tensor
    assert padded is not None and isinstance(t.definition.body, Reduce)
    shift = [-low for low in padding.low]
    indices = tuple(
        affine.simplify(Apply("add", (i, affine.integer(s)))) for i, s in zip(m.read.indices, shift, strict=True)
    )
    slot = Slot(len(inputs), padded.shape, padded.dtype)
    product = substitute(m.product, {m.read: Read(slot, indices)})
    body = Reduce("sum", t.definition.body.axes, product)
    return build(t.shape, body, (*inputs, padded), t.name)

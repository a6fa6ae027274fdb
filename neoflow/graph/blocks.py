"""Linear recurrences, blocks of their steps side by side.

    h[t] = a[t] * h[t-1] + b[t], element by element;  K blocks of L steps
        ->
    p[l] = a[l] * p[l-1],  q[l] = a[l] * q[l-1] + b[l]      L steps of all K blocks at once, from p = 1 and q = 0
    h at the end of block k = p[k] * h at the end of block k-1 + q[k]      K steps
    the recurrence itself   L steps of all K blocks at once, each from where the block before it ends

That a step is linear is proved from its expressions: what is carried comes to what is carried on through sums, products
with and quotients by what is not carried, and choices by it, at its own point. Several carried tensors of one shape may
be mixed; p is a matrix at each point then. The last T - K L steps follow one by one.

Equal over real numbers: sums are rounded otherwise, and products of a block's factors are taken alone.

Source: Blelloch, Prefix Sums and Their Applications, 1990, section 1.4; the three phases are those of Merrill and
Grimshaw, Parallel Scan for Stream Architectures, 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from neoflow.expr import dtype as dt
from neoflow.expr.batched import batched
from neoflow.expr.close import define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Select, substitute
from neoflow.expr.normal import opened
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.shape.fill import full
from neoflow.expr.shape.join import concat
from neoflow.expr.shape.rearrange import broadcast_to, reshape
from neoflow.expr.tensor import Compute, Placeholder, Tensor, tensor_of, topological
from neoflow.graph.graph import Graph
from neoflow.verdict import Verdict

MOST_MIXED = 3
"""Carried tensors that are mixed: p has as many elements as their square at each point."""


@dataclass(frozen=True, eq=False)
class Linear:
    """A step, then[n] = sum[m](factors[n, m] * carried[m]) + terms[n] at each point, of tensors of the body; what is
    absent is zero."""

    factors: dict[tuple[int, int], Tensor]
    terms: dict[int, Tensor]
    count: int

    @property
    def reached(self) -> tuple[tuple[int, int], ...]:
        """Which of what is carried follows from which, after any number of steps."""
        found = {(n, n) for n in range(self.count)} | set(self.factors)
        while more := {(n, k) for n, m in found for j, k in found if m == j} - found:
            found |= more
        return tuple(sorted(found))


def linear(r: Recurrence) -> Linear | Verdict:
    """A step as what is linear in what it carries; why not, where it is not."""
    if not r.carried:
        return Verdict(False, "nothing is carried")
    if len(r.carried) > MOST_MIXED:
        return Verdict(False, f"{len(r.carried)} tensors are carried")
    shape = r.carried[0].shape
    for c in r.carried:
        if not dt.is_float(c.dtype):
            return Verdict(False, f"{c.name} is {c.dtype}")
        if (c.shape, c.dtype) != (shape, r.carried[0].dtype):
            return Verdict(False, f"{c.name} has another shape or type than {r.carried[0].name}")
    forms = _Forms(r.carried, shape)
    try:
        found = [forms.of(t) for t in r.then]
    except _NotLinear as error:
        return Verdict(False, str(error))
    factors: dict[tuple[int, int], Tensor] = {}
    terms: dict[int, Tensor] = {}
    for n, (parts, term) in enumerate(found):
        for m, e in parts.items():
            factors[n, m] = define(shape, forms.axes, e, f"factor of {r.carried[m].name}")
        if term is not None:
            terms[n] = define(shape, forms.axes, term, f"term of {r.then[n].name}")
    return Linear(factors, terms, len(r.carried))


class _NotLinear(Exception):
    """Why a tensor is not linear in what is carried."""


Form = tuple[dict[int, Expr], Expr | None]
"""Factors by number of what is carried, and what is added, at one point; what is absent is zero."""


class _Forms:
    """The forms of tensors of a body, over one set of axes."""

    def __init__(self, carried: Sequence[Placeholder], shape: tuple[int, ...]):
        self.shape, self.axes = shape, unnamed_axes(shape, None)
        self.number: dict[Tensor, int] = {c: n for n, c in enumerate(carried)}
        self.moving: set[Tensor] = set(carried)
        self.known: dict[Tensor, Form] = {}

    def of(self, root: Tensor) -> Form:
        order = topological([root])
        for t in order:
            if any(i in self.moving for i in t.inputs):
                self.moving.add(t)
        for t in order:
            if t in self.moving and t not in self.known:
                self.known[t] = self._tensor(t)
        return self.known[root] if root in self.known else ({}, Read(root, self.axes))

    def _tensor(self, t: Tensor) -> Form:
        if t in self.number:
            return {self.number[t]: Const(1, t.dtype)}, None
        if not isinstance(t, Compute):
            raise _NotLinear(f"{t.name} follows from a recurrence inside")
        if t.shape != self.shape:
            raise _NotLinear(f"{t.name} has another shape than what is carried")
        if t.definition.has_reduction:
            raise _NotLinear(f"{t.name} sums over what is carried")
        body = opened(t.definition.body, t.inputs)
        return self._form(substitute(body, dict(zip(t.definition.axes, self.axes, strict=True))), t)

    def _is_free(self, e: Expr) -> bool:
        stack = [e]
        while stack:
            e = stack.pop()
            if isinstance(e, Read) and e.source in self.moving:
                return False
            stack += e.children
        return True

    def _form(self, e: Expr, t: Tensor) -> Form:
        if self._is_free(e):
            return {}, e
        match e:
            case Read(source=source, indices=indices) if source.shape == self.shape and all(
                map(self._is_free, indices)
            ):
                if all(self._is_at(i, a) for i, a in zip(indices, self.axes, strict=True)):
                    return self.known[tensor_of(e)]
                raise _NotLinear(f"{t.name} reads {tensor_of(e).name} at other places than its own")
            case Apply(fn="neg", args=(a,)):
                return _each(self._form(a, t), lambda x: Apply("neg", (x,)))
            case Apply(fn="add" | "sub", args=(a, b)):
                return _added(self._form(a, t), self._form(b, t), e.fn)
            case Apply(fn="mul", args=(a, b)) if self._is_free(a):
                return _each(self._form(b, t), lambda x: _product(a, x))
            case Apply(fn="mul", args=(a, b)) if self._is_free(b):
                return _each(self._form(a, t), lambda x: _product(x, b))
            case Apply(fn="div", args=(a, b)) if self._is_free(b):
                return _each(self._form(a, t), lambda x: Apply("div", (x, b)))
            case Select(cond=cond, then=a, other=b) if self._is_free(cond):
                return _chosen(cond, self._form(a, t), self._form(b, t), e.dtype)
            case Cast(arg=a) if a.dtype == e.dtype:
                return self._form(a, t)
        raise _NotLinear(f"{t.name} is not linear in what is carried")

    def _is_at(self, index: Expr, axis: Axis) -> bool:
        return index is axis or (axis.extent == 1 and isinstance(index, Const))


def _each(form: Form, f: Callable[[Expr], Expr]) -> Form:
    parts, term = form
    return {m: f(e) for m, e in parts.items()}, None if term is None else f(term)


def _product(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and a.value == 1:
        return b
    return a if isinstance(b, Const) and b.value == 1 else Apply("mul", (a, b))


def _plus(a: Expr | None, b: Expr | None, fn: str) -> Expr | None:
    if b is None:
        return a
    if a is None:
        return b if fn == "add" else Apply("neg", (b,))
    return Apply(fn, (a, b))


def _added(a: Form, b: Form, fn: str) -> Form:
    parts = {m: e for m in {*a[0], *b[0]} if (e := _plus(a[0].get(m), b[0].get(m), fn)) is not None}
    return parts, _plus(a[1], b[1], fn)


def _chosen(cond: Expr, a: Form, b: Form, dtype: str) -> Form:
    zero = Const(0, dtype)

    def either(x: Expr | None, y: Expr | None) -> Expr | None:
        return None if x is None and y is None else Select(cond, zero if x is None else x, zero if y is None else y)

    parts = {m: e for m in {*a[0], *b[0]} if (e := either(a[0].get(m), b[0].get(m))) is not None}
    return parts, either(a[1], b[1])


def in_blocks(run: Run, wanted: Sequence[Looped], form: Linear, count: int) -> dict[Tensor, Tensor]:
    """What stands for those of some tensors that lead out of a run of a linear step, `count` blocks side by side."""
    r = run.recurrence
    wanted = [t for t in wanted if t.run is run]
    length = r.steps // count
    rest = r.steps - length * count
    blocks, rests = _parted(run, count, length)
    parts: dict[Tensor, Tensor] = {s: Placeholder((length, *s.shape), s.dtype, s.name, s.where) for s in r.slices}
    stacks = {parts[s]: blocks[s] for s in r.slices}
    fixed = [run.by_placeholder[p] for p in r.fixed]
    first = [run.by_placeholder[c] for c in r.carried]
    chain = _chain(_alone(r, form, length, [*parts.values(), *fixed], stacks, count), first, form, r, count)
    end: list[Tensor] = [chain.last(n) for n in range(form.count)]
    kept = list(dict.fromkeys(t.of for t in wanted if isinstance(t, Stacked)))
    begin = [Placeholder(c.shape, c.dtype, c.name, c.where) for c in r.carried]
    one = Run(replace(r, steps=length), (*begin, *parts.values(), *fixed))
    starts: dict[Tensor, Tensor] = {b: chain.stacked(c) for b, c in zip(begin, chain.recurrence.carried, strict=True)}
    made = batched([one.stacked(of) for of in kept], {**starts, **stacks}, count)
    of_blocks: dict[Tensor, Tensor] = {}
    for of, t in zip(kept, made, strict=True):
        if t.inputs is one.inputs:  # it follows from nothing that moves
            t = broadcast_to(replaced([of], run.by_placeholder.get)[0], (count, length, *of.shape))
        of_blocks[of] = reshape(t, (count * length, *of.shape))
    if rest:
        tail = Run(replace(r, steps=rest), (*end, *rests.values(), *fixed))
        end = [tail.last(n) for n in range(form.count)]
        for of in kept:
            late = tail.stacked(of)
            of_blocks[of] = concat([late, of_blocks[of]] if r.is_reversed else [of_blocks[of], late])
    return {t: end[t.number] if isinstance(t, Last) else of_blocks[t.of] for t in wanted}


def _parted(run: Run, count: int, length: int) -> tuple[dict[Tensor, Tensor], dict[Tensor, Tensor]]:
    """By slice the blocks [K, L, ...] and the other steps of what it is of."""
    r = run.recurrence
    rest = r.steps - count * length
    blocks: dict[Tensor, Tensor] = {}
    rests: dict[Tensor, Tensor] = {}
    for s in r.slices:
        t = run.by_placeholder[s]
        main = t if not rest else t[rest:] if r.is_reversed else t[:-rest]
        blocks[s] = reshape(main, (count, length, *s.shape))
        if rest:
            rests[s] = t[:rest] if r.is_reversed else t[-rest:]
    return blocks, rests


def _alone(
    r: Recurrence,
    form: Linear,
    length: int,
    inputs: Sequence[Tensor],
    stacks: dict[Tensor, Tensor],
    count: int,
) -> tuple[dict[tuple[int, int], Tensor], list[Tensor]]:
    """p and q of each block at its end, [K, ...], or for all blocks one."""
    like = r.carried[0]
    pairs = form.reached
    p = {at: Placeholder(like.shape, like.dtype, f"factor {at}", like.where) for at in pairs}
    q = [Placeholder(c.shape, c.dtype, c.name, c.where) for c in r.carried]
    then = [
        _sum([form.factors[n, k] * p[k, m] for k in range(form.count) if (n, k) in form.factors and (k, m) in p], like)
        for n, m in pairs
    ]
    for n in range(form.count):
        terms = [form.factors[n, k] * q[k] for k in range(form.count) if (n, k) in form.factors]
        then.append(_sum([*terms, *([form.terms[n]] if n in form.terms else [])], like))
    carried = (*p.values(), *q)
    first = [full(like.shape, float(n == m), like.dtype) for n, m in pairs]
    first += [full(like.shape, 0.0, like.dtype)] * len(q)
    moving = _moving(then, carried, r.slices)
    found: dict[int, Tensor] = {}
    for is_moving in (True, False):  # what is the same in all blocks is computed for one
        asked = [n for n in range(len(then)) if (n in moving) == is_moving]
        those = _needed(then, carried, asked)
        slices = r.slices if is_moving else ()
        own = inputs if is_moving else inputs[len(r.slices) :]
        if those:
            body = Recurrence(
                tuple(carried[n] for n in those),
                slices,
                r.fixed,
                tuple(then[n] for n in those),
                length,
                r.is_reversed,
                r.where,
            )
            run = Run(body, (*(first[n] for n in those), *own))
            lasts = [run.last(those.index(n)) for n in asked]
            found |= zip(asked, batched(lasts, stacks, count) if is_moving else lasts, strict=True)
    return {at: found[n] for n, at in enumerate(pairs)}, [found[len(pairs) + n] for n in range(len(q))]


def _needed(then: Sequence[Tensor], carried: Sequence[Tensor], asked: Sequence[int]) -> list[int]:
    """The numbers of what has to be carried for some of it."""
    found = set(asked)
    while True:
        read = set(topological([then[n] for n in sorted(found)]))
        more = {n for n, c in enumerate(carried) if c in read} - found
        if not more:
            return sorted(found)
        found |= more


def _moving(then: Sequence[Tensor], carried: Sequence[Tensor], slices: Sequence[Tensor]) -> set[int]:
    """By number what of it all follows from what is carried and follows from a slice, sooner or later."""
    moving, found = set(slices), set[int]()
    while True:
        new = {n for n, t in enumerate(then) if n not in found and not moving.isdisjoint(topological([t]))}
        if not new:
            return found
        found |= new
        moving |= {carried[n] for n in new}


def _chain(
    ends: tuple[dict[tuple[int, int], Tensor], list[Tensor]],
    first: Sequence[Tensor],
    form: Linear,
    r: Recurrence,
    count: int,
) -> Run:
    """From block to block: what is carried where each begins."""
    p, q = ends
    carried = [Placeholder(c.shape, c.dtype, c.name, c.where) for c in r.carried]
    slices: dict[Placeholder, Tensor] = {}
    fixed: dict[Placeholder, Tensor] = {}

    def given(t: Tensor) -> Tensor:
        shape = r.carried[0].shape
        here = Placeholder(shape, t.dtype, t.name, t.where)
        (fixed if t.shape == shape and len(t.shape) == len(shape) else slices)[here] = t
        return here

    factors = {at: given(t) for at, t in p.items()}
    then = []
    for n in range(form.count):
        terms = [factors[n, m] * carried[m] for m in range(form.count) if (n, m) in factors]
        then.append(_sum([*terms, given(q[n])], carried[0]))
    body = Recurrence(tuple(carried), tuple(slices), tuple(fixed), tuple(then), count, r.is_reversed, r.where)
    return Run(body, (*first, *slices.values(), *fixed.values()))


def _sum(terms: Sequence[Tensor], like: Tensor) -> Tensor:
    total: Tensor | None = None
    for t in terms:
        total = t if total is None else total + t
    return full(like.shape, 0.0, like.dtype) if total is None else total


@dataclass(frozen=True)
class Blocked:
    """A graph after it, and of each recurrence how many blocks it goes in, or why in none."""

    graph: Graph
    found: tuple[tuple[Run, Verdict], ...] = ()

    @property
    def summary(self) -> str:
        return f"{sum(v.ok for _, v in self.found)} of {len(self.found)} loops in blocks"

    def __str__(self) -> str:
        lines = []
        for run, verdict in self.found:
            names = ", ".join(c.name for c in run.recurrence.carried)
            lines.append(f"loop over {run.recurrence.steps} steps of {names}: {verdict}")
        return "\n".join(lines)


def blocked(graph: Graph, count: Callable[[Run, Linear, Sequence[Looped]], int | Verdict]) -> Blocked:
    """The graph with its linear recurrences in as many blocks as `count` says of each, of what leads out of it."""
    found: list[tuple[Run, Verdict]] = []
    for recurrence in dict.fromkeys(r.recurrence for r in runs_of(graph.order)):
        run = next(r for r in runs_of(graph.order) if r.recurrence is recurrence)
        form = linear(recurrence)
        if isinstance(form, Verdict):
            found.append((run, form))
            continue
        led = [t for t in graph.order if isinstance(t, Looped) and t.run is run]
        blocks = count(run, form, led)
        if isinstance(blocks, Verdict):
            found.append((run, blocks))
            continue
        text = f"{blocks} blocks of {recurrence.steps // blocks} steps side by side"
        found.append((run, Verdict(True, text)))
        graph = graph.with_roots(replaced(graph.roots, in_blocks(run, led, form, blocks).get))
    return Blocked(graph, tuple(found))

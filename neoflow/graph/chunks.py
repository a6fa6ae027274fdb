"""Linear recurrences of matrices whose steps add outer products, in chunks of steps.

    h[t, i] = a[t, i] * h[t-1, i] + b[t, i],  b[t, i] a product of factors with fewer axes each: k[t, i1] * v[t, i2]
    y[t, o] = sum[i](q[t, i, o] * h[t, i])                               K chunks of C steps
        ->
    r[l, s, i]  = a[s+1, i] * ... * a[l, i] of each chunk, 0 where s > l        what is left of step s after step l
    u[c, i]     = sum[s](r[C-1, s, i] * b[s, i])                                what a chunk adds
    g[c, i]     = r[C-1, -1, i] * g[c-1, i] + u[c-1, i]                         K steps: the state where each begins
    y[c, l, o]  = sum[i](q * r[l, -1, i] * g[c, i]) + sum[s, i](q * r[l, s, i] * b[s, i])

Sums of products are computed two factors at a time (`products`), so that of the last one sum[i1](q k) is there first, a
matrix of C by C for each chunk, and no state of a step is ever stored. What is left of a step is a product of factors
of a chunk, one after the other: nothing is divided, no logarithm is taken, so that factors may be zero or negative.

All of it is found in the graph in which steps do only what depends on what is carried: the recurrence is linear in it
at its own point, and all that is asked of it is the last state and sums of products with states, in steps of the same
number. Two states in one product, as the gradient of a has them, are both written so.

Source: the chunks are those of linear attention, Hua et al., Transformer Quality in Linear Time, 2022, section 3.2, and
of Dao and Gu, Transformers are SSMs, 2024, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

import numpy as np

from neoflow.expr.close import define
from neoflow.expr.constant import constant
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select, postorder, rewrite, substitute
from neoflow.expr.recurrence import Recurrence, Run
from neoflow.expr.replace import replaced
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Compute, Placeholder, Tensor, tensor_of, topological
from neoflow.graph.inline import Inliner
from neoflow.graph.products import MOST_FACTORS, summed

FLOATS = ("float32", "float64")
MOST_TERMS = 8
"""Products that a step adds, or that are summed of states; more are left as they are."""

Term = tuple[int, tuple[Expr, ...]]
"""A sign, and the factors of a product."""


class NotInChunks(Exception):
    """Why something is not computed in chunks."""


def terms_of(e: Expr, is_split: Callable[[Expr], bool]) -> list[Term]:
    """What is added up to an expression: its sums are opened where `is_split`, its products always."""
    match e:
        case Apply(fn="neg", args=(a,)):
            return [(-s, f) for s, f in terms_of(a, is_split)]
        case Apply(fn="add" | "sub", args=(a, b)) if is_split(e):
            sign = 1 if e.fn == "add" else -1
            found = [*terms_of(a, is_split), *((sign * s, f) for s, f in terms_of(b, is_split))]
        case Apply(fn="mul", args=(a, b)):
            found = [(s * r, (*f, *g)) for s, f in terms_of(a, is_split) for r, g in terms_of(b, is_split)]
        case Apply(fn="div", args=(a, b)) if not (isinstance(a, Const) or is_split(b)):
            found = [(s, (*f, Apply("div", (Const(1, e.dtype), b)))) for s, f in terms_of(a, is_split)]
        case Const(value=1):
            return [(1, ())]
        case _:
            return [(1, (e,))]
    if len(found) > MOST_TERMS:
        raise NotInChunks(f"more than {MOST_TERMS} products are added")
    return found


def reads_any(e: Expr, tensors: Collection[Tensor]) -> bool:
    return any(isinstance(n, Read) and n.source in tensors for n in postorder(e))


def is_pointwise(t: Tensor) -> bool:
    return isinstance(t, Compute) and not t.definition.has_reduction


class Step:
    """A step of a run, linear in what it carries at its own point: h = decay * h + sum of terms, over the program's
    tensors at `time`.

    axes: of what is carried. decay: None is 1. adds_products: no factor of a term has all of these axes. Raises
    `NotInChunks`.
    """

    def __init__(self, run: Run):
        r = self.recurrence = run.recurrence
        self.run = run
        if len(r.carried) != 1:
            raise NotInChunks(f"{len(r.carried)} tensors are carried")
        (self.carried,), (self.then,) = r.carried, r.then
        if self.carried.dtype not in FLOATS:
            raise NotInChunks(f"{self.carried.name} is {self.carried.dtype}")
        self.inside = Inliner(is_pointwise)
        self.axes = unnamed_axes(self.carried.shape, None)
        (self.time,) = unnamed_axes((r.steps,), None)
        full_axes = frozenset(a for a in self.axes if a.extent > 1)
        whole = self.inside.at(self.then, self.axes)
        own = {self.carried}

        def is_split(e: Expr) -> bool:
            return reads_any(e, own) or full_axes <= e.free

        decays: list[Expr] = []
        terms: list[Term] = []
        for sign, factors in terms_of(whole, is_split):
            states = [f for f in factors if reads_any(f, own)]
            if not states:
                terms.append((sign, factors))
                continue
            if len(states) > 1 or not self._is_state(states[0]):
                raise NotInChunks(f"{self.then.name} is not linear in {self.carried.name} at its own point")
            part = product([f for f in factors if f is not states[0]], self.carried.dtype)
            decays.append(Apply("neg", (part,)) if sign < 0 else part)
        if not decays:
            raise NotInChunks("it carries nothing on")
        if not terms:
            raise NotInChunks("nothing is added in a step")
        self.terms: list[Term] = [(s, tuple(self.outside(f, self.time) for f in factors)) for s, factors in terms]
        self.adds_products = all(not full_axes <= f.free for _, factors in self.terms for f in factors)
        total = decays[0]
        for d in decays[1:]:
            total = Apply("add", (total, d))
        is_one = isinstance(total, Const) and total.value == 1
        self.decay = None if is_one else self.outside(total, self.time)
        self.decay_axes = () if self.decay is None else tuple(a for a in self.axes if a in self.decay.free)

    def _is_state(self, e: Expr) -> bool:
        return (
            isinstance(e, Read)
            and e.source is self.carried
            and all(
                i is a or (a.extent == 1 and isinstance(i, Const)) for i, a in zip(e.indices, self.axes, strict=True)
            )
        )

    def outside(self, e: Expr, time: Expr) -> Expr:
        """What an expression of the body is in the program, in the step `time`."""
        r, given = self.recurrence, self.run.by_placeholder
        slices, fixed, moving = set(r.slices), set(r.fixed), {*r.slices, *r.carried}

        def rule(n: Expr) -> Expr | None:
            if not isinstance(n, Read):
                return None
            t = tensor_of(n)
            if t in slices:
                return Read(given[t], (time, *n.indices))
            if t is self.carried:
                return Read(self.run.stacked(t), (time, *n.indices))
            if t in fixed:
                return Read(given[t], n.indices)
            if not moving.isdisjoint(topological([t])):
                raise NotInChunks(f"{t.name} is no product of what a step is given")
            return Read(replaced([t], given.get)[0], n.indices)

        return rewrite(e, rule)

    def at(self, of: Tensor, time: Expr, indices: Sequence[Expr]) -> Expr:
        """A tensor of the body in a step, over states: as they were before it, or as this step leaves them."""
        if of is self.carried or of is self.then:
            return Read(self.run.stacked(of), (time, *indices))
        axes = unnamed_axes(of.shape, None)
        e = self.inside.at(of, axes)
        if of.shape == self.carried.shape and e is self.inside.at(self.then, axes):
            return Read(self.run.stacked(self.then), (time, *indices))
        return substitute(self.outside(e, time), dict(zip(axes, indices, strict=True)))


def product(factors: Sequence[Expr], dtype: str) -> Expr:
    if not factors:
        return Const(1, dtype)
    result = factors[0]
    for f in factors[1:]:
        result = Apply("mul", (result, f))
    return result


class Chunks:
    """A step in chunks of `length`: what is left of steps, and the states where chunks begin."""

    def __init__(self, step: Step, length: int):
        self.step, self.length = step, length
        self.steps = step.recurrence.steps
        self.count = -(-self.steps // length)
        self.is_reversed = step.recurrence.is_reversed

    def split(self, e: Expr, time: Axis, chunk: Axis, place: Axis, value: float = 0.0) -> Expr:
        """An expression of a step by chunk and place in it; value: what it is after the last step."""
        if time not in e.free:
            return e if self.is_whole else Select(self.inside(chunk, place), e, Const(value, e.dtype))
        over = [a for a in e.free if a is not time]
        over.sort(key=lambda a: -a.ident)
        if isinstance(e, Read) and _is_plain(e, time):
            over = [a for a in e.indices[1:] if isinstance(a, Axis)]
            t = tensor_of(e)
        else:
            own = unnamed_axes([a.extent for a in (time, *over)], None)
            body = substitute(e, dict(zip((time, *over), own, strict=True)))
            t = define(tuple(a.extent for a in own), own, body, "rows")
        if not self.is_whole:
            own = unnamed_axes((self.count * self.length, *t.shape[1:]), None)
            inside = Apply("lt", (own[0], Const(self.steps, "int64")))
            t = define(tuple(a.extent for a in own), own, Select(inside, Read(t, own), Const(value, t.dtype)), t.name)
        t = reshape(t, (self.count, self.length, *(a.extent for a in over)))
        return Read(t, (chunk, place, *over))

    def term(self, term: Term, indices: Sequence[Expr], chunk: Axis, place: Axis) -> Term:
        """A product that a step adds at these indices, by chunk and place."""
        step = self.step
        mapping = dict(zip(step.axes, indices, strict=True))
        sign, factors = term
        found = [self.split(f, step.time, chunk, place) if step.time in f.free else f for f in factors]
        if not any(step.time in f.free for f in factors):
            found += self.last(step.carried.dtype, chunk, place)
        return sign, tuple(substitute(f, mapping) for f in found)

    def last(self, dtype: str, chunk: Axis, place: Axis) -> list[Expr]:
        """A factor that is zero after the last step, where there is something."""
        return [] if self.is_whole else [Select(self.inside(chunk, place), Const(1, dtype), Const(0, dtype))]

    @property
    def is_whole(self) -> bool:
        """Whether nothing comes after the last step."""
        return self.count * self.length == self.steps

    def inside(self, chunk: Axis, place: Axis) -> Expr:
        """Whether a place is one of a step."""
        at = Apply("add", (Apply("mul", (chunk, Const(self.length, "int64"))), place))
        return Apply("lt", (at, Const(self.steps, "int64")))

    @cached_property
    def _left(self) -> Run | None:
        """The run whose state, [K, axes of the decay, C + 1], is what is left of each step of a chunk, and at C of the
        state where it begins."""
        step = self.step
        if step.decay is None:
            return None
        chunk, place = unnamed_axes((self.count, self.length), None)
        like = step.carried
        time, axes = step.time, step.decay_axes
        e = self.split(step.decay, time, chunk, place, 1.0)
        own = unnamed_axes((self.length, self.count, *(a.extent for a in axes)), None)
        body = substitute(e, {place: own[0], chunk: own[1], **dict(zip(axes, own[2:], strict=True))})
        decay = define(tuple(a.extent for a in own), own, body, "decay")
        shape = (*decay.shape[1:], self.length + 1)
        left = Placeholder(shape, like.dtype, "left", like.where)
        row = Placeholder(decay.shape[1:], like.dtype, "decay", like.where)
        number = Placeholder((), "int64", "place", like.where)
        own = unnamed_axes(shape, None)
        less = Apply("mul", (Read(row, own[:-1]), Read(left, own)))
        new = Select(Apply("eq", (own[-1], Read(number, ()))), Const(1, like.dtype), less)
        then = define(shape, own, new, "left")
        r = Recurrence((left,), (row, number), (), (then,), self.length, self.is_reversed, like.where)
        own = unnamed_axes(shape, None)
        is_start = Apply("eq", (own[-1], Const(self.length, "int64")))
        first = define(shape, own, Select(is_start, Const(1, like.dtype), Const(0, like.dtype)), "left")
        return Run(r, (first, decay, constant(np.arange(self.length))))

    def left(self, is_after: bool, indices: Sequence[Expr], chunk: Axis, place: Expr, of: Expr | None) -> list[Expr]:
        """The factors that say what is left at a place, before its step or after it, of another step; of None: of the
        state where the chunk begins."""
        step, dtype = self.step, self.step.carried.dtype
        run = self._left
        if run is not None:
            t = run.stacked(run.recurrence.then[0] if is_after else run.recurrence.carried[0])
            at = dict(zip(step.axes, indices, strict=True))
            own = [at[a] for a in step.decay_axes]
            return [Read(t, (place, chunk, *own, Const(self.length, "int64") if of is None else of))]
        if of is None:
            return []
        fn = {(0, 0): "lt", (0, 1): "le", (1, 0): "gt", (1, 1): "ge"}[self.is_reversed, is_after]
        return [Select(Apply(fn, (of, place)), Const(1, dtype), Const(0, dtype))]

    @cached_property
    def chain(self) -> Run:
        """From chunk to chunk: what is carried where each begins."""
        step, like = self.step, self.step.carried
        chunk, place = unnamed_axes((self.count, self.length), None)
        axes = step.axes
        run = self._left
        last = None if run is None else run.last(0)
        parts: list[tuple[int, Expr]] = []
        for term in step.terms:
            sign, factors = self.term(term, axes, chunk, place)
            if last is not None:
                factors = (*factors, Read(last, (chunk, *step.decay_axes, place)))
            parts.append((sign, sum_of(factors, (chunk, *axes), (place,), "added", like.dtype)))
        added = define((self.count, *like.shape), (chunk, *axes), total_of(parts), "added")
        h, u = (Placeholder(like.shape, like.dtype, n, like.where) for n in (like.name, "added"))
        state: Expr = Read(h, axes)
        slices: dict[Placeholder, Tensor] = {u: added}
        if last is not None:
            shape = tuple(a.extent for a in step.decay_axes)
            d = Placeholder(shape, like.dtype, "decay", like.where)
            own = unnamed_axes((self.count, *shape), None)
            slices[d] = define((self.count, *shape), own, Read(last, (*own, Const(self.length, "int64"))), "decay")
            state = Apply("mul", (Read(d, step.decay_axes), state))
        then = define(like.shape, axes, Apply("add", (state, Read(u, axes))), step.then.name)
        r = Recurrence((h,), tuple(slices), (), (then,), self.count, self.is_reversed, like.where)
        return Run(r, (step.run.by_placeholder[step.carried], *slices.values()))

    def state(self, is_after: bool, indices: Sequence[Expr], chunk: Axis, place: Axis) -> list[Term]:
        """A state at a place as a sum of products: of the state where the chunk begins, and of what its steps add."""
        begin = self.chain.stacked(self.chain.recurrence.carried[0])
        found: list[Term] = [(1, (*self.left(is_after, indices, chunk, place, None), Read(begin, (chunk, *indices))))]
        for term in self.step.terms:
            (of,) = unnamed_axes((self.length,), None)
            sign, factors = self.term(term, indices, chunk, of)
            found.append((sign, (*factors, *self.left(is_after, indices, chunk, place, of))))
        return found


def _is_plain(e: Read, time: Axis) -> bool:
    """Whether it reads a tensor as it lies, from a step on."""
    axes = [i for i in e.indices if isinstance(i, Axis)]
    extents = zip(e.indices, tensor_of(e).shape, strict=True)
    return (
        e.indices[0] is time
        and len(set(axes)) == len(axes)
        and all(i.extent == n if isinstance(i, Axis) else isinstance(i, Const) and n == 1 for i, n in extents)
    )


def merged(factors: Iterable[Expr]) -> list[Expr]:
    """Factors of the same axes as one; those of none go with another."""
    found: dict[frozenset[Axis], Expr] = {}
    for f in factors:
        found[f.free] = Apply("mul", (found[f.free], f)) if f.free in found else f
    alone = found.pop(frozenset(), None)
    if alone is not None:
        if not found:
            return [alone]
        axes = min(found, key=len)
        found[axes] = Apply("mul", (found[axes], alone))
    if len(found) > MOST_FACTORS:
        raise NotInChunks(f"a product has more than {MOST_FACTORS} factors")
    return list(found.values())


def sum_of(factors: Sequence[Expr], axes: Sequence[Axis], over: Sequence[Axis], name: str, dtype: str) -> Expr:
    """The sum over `over` of a product."""
    there = frozenset[Axis]().union(*(f.free for f in factors))
    times = math.prod(x.extent for x in over if x not in there)
    if times > 1 or not factors:
        factors = (*factors, Const(times, dtype))
    return summed(merged(factors), axes, name)


def total_of(parts: Sequence[tuple[int, Expr]]) -> Expr:
    total: Expr | None = None
    for sign, e in parts:
        if total is None:
            total = e if sign > 0 else Apply("neg", (e,))
        else:
            total = Apply("add" if sign > 0 else "sub", (total, e))
    assert total is not None
    return total

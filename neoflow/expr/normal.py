"""Normal form: a definition has no reduction, or is one `Reduce` at the root over a reduction-free body, or scatters
a tensor or a constant.

    y[i] = exp(x[i]) / sum[k](exp(x[k]))    ->    s[]  = sum[k](exp(x[k]))
                                                  y[i] = exp(x[i]) / s[]
"""

from __future__ import annotations

from operator import attrgetter

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.deep import Walk, run
from neoflow.expr.functions import ARG_REDUCERS, identity
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Const, Expr, Read, Reduce, Scatter, Select, Slot, rewrite, same
from neoflow.expr.locality import memory_order
from neoflow.expr.memo import from_below, remembered
from neoflow.expr.recipe import Recipe, stand_ins
from neoflow.expr.tensor import Definition, Tensor


@remembered
def is_normal(definition: Definition) -> bool:
    body = definition.body
    if isinstance(body, Scatter):
        return (isinstance(body.body, Const) or _is_own_read(body)) and not any(
            _contains_reduction(t) for t in body.targets
        )
    inner = body.body if isinstance(body, Reduce) else body
    return not definition.has_reduction or (isinstance(body, Reduce) and not _contains_reduction(inner))


def _is_own_read(body: Scatter) -> bool:
    """Whether what is scattered is a tensor over the scatter's axes."""
    e = body.body
    return isinstance(e, Read) and same(e.indices, tuple(affine.simplify(a) for a in body.axes))


@from_below(attrgetter("children"))
def _contains_reduction(e: Expr) -> bool:
    return isinstance(e, Reduce) or any(_contains_reduction(c) for c in e.children)


def opened(body: Expr, inputs: tuple[Tensor, ...]) -> Expr:
    """A closed body with its slots replaced by tensors."""

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and isinstance(e.source, Slot):
            return Read(inputs[e.slot], e.indices)
        return None

    return rewrite(body, rule)


def conjunction(conditions: tuple[Expr, ...]) -> Expr:
    result = conditions[0]
    for c in conditions[1:]:
        result = Apply("and", (result, c))
    return result


class _Hoister:
    def __init__(self) -> None:
        self.known: dict[tuple[Expr, tuple[Expr, ...]], Expr] = {}

    def strip(self, e: Expr) -> Expr:
        """`e` with every reduction replaced by a read of a compute of its own."""
        return run(self.stripped(e, ()))

    def stripped(self, e: Expr, guards: tuple[Expr, ...]) -> Walk[Expr]:
        """`strip`, what is replaced being evaluated only under the guards."""
        if not _contains_reduction(e):
            return e
        key = (e, guards)
        if key not in self.known:
            self.known[key] = yield from self._stripped(e, guards)
        return self.known[key]

    def _stripped(self, e: Expr, guards: tuple[Expr, ...]) -> Walk[Expr]:
        if isinstance(e, Select):
            cond = yield self.stripped(e.cond, guards)
            then = yield self.stripped(e.then, guards + conjuncts(cond, True))
            return Select(cond, then, (yield self.stripped(e.other, guards + conjuncts(cond, False))))
        if isinstance(e, Reduce):
            return self.hoist(e, (yield self.stripped(e.body, guards)), guards)
        children = []
        for c in e.children:
            children.append((yield self.stripped(c, guards)))
        return e.rebuild(tuple(children))

    def hoist(self, e: Reduce, body: Expr, guards: tuple[Expr, ...]) -> Read:
        """A read of the reduction `e` of `body` as a compute."""
        if guards:
            neutral = 0 if e.op in ARG_REDUCERS else identity(e.op, body.dtype)
            body = Select(conjunction(guards), body, Const(neutral, body.dtype))
        used = body.free.difference(e.axes)
        axes = tuple(sorted(used, key=lambda a: a.ident))
        tensor = define(tuple(a.extent for a in axes), axes, Reduce(e.op, e.axes, body), e.op)
        return Read(tensor, axes)


@remembered
def normal_form(definition: Definition) -> Recipe:
    """The definition's value over its slots, as computes in normal form.

    What is scattered becomes a tensor of its own:  t[f(i)] += F(i)   ->   v[i] = F(i);  t[f(i)] += v[i].
    """
    inputs = stand_ins(definition)
    body = opened(definition.body, inputs)
    hoister = _Hoister()
    if isinstance(body, Reduce):
        stripped: Expr = Reduce(body.op, body.axes, hoister.strip(body.body))
    elif isinstance(body, Scatter):
        axes = body.axes
        if not isinstance(body.body, Read):  # which is there, and in its own order
            axes = memory_order(axes, (*body.targets, body.body), [(definition.shape, body.targets)])
        value = define(tuple(a.extent for a in axes), axes, hoister.strip(body.body), "scattered")
        targets = tuple(hoister.strip(t) for t in body.targets)
        stripped = Scatter(axes, targets, Read(value, axes))
    else:
        stripped = hoister.strip(body)
    result = define(definition.shape, definition.axes, stripped, "y")
    return Recipe(inputs, (result,))

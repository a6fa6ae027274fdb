"""Parts of a graph that are patterns without a recurrence, and their implementations in their place.

    exp(x) / sum(exp(x))    ->    softmax(x)

From the outputs back to the inputs; what is left of a part that stands in another one goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Constant, Tensor, topological
from neoflow.mapping.cell import Filled, Pattern, Signs, signs_of
from neoflow.mapping.outside import ANY, DEPTHS, Outside, may_be, outside
from neoflow.mapping.unify import Looked, Unifier
from neoflow.verdict import Verdict

MOST = 500
"""Tensors and patterns of a graph that are compared in full: the time to compile stays small."""
FAR = 12
"""Tensors between the last and the first of a pattern, as users cut it."""
Make = Callable[[Tensor, Filled], Tensor | None]
"""A tensor that is a pattern, and what is in its holes -> what to compute in its place, None for itself."""


def placed(
    roots: Sequence[Tensor], patterns: Sequence[Pattern], looked: Looked, make: Make | None = None
) -> tuple[list[Tensor], tuple[Verdict, ...]]:
    """The roots with the implementations of what is found; what that was. make: other implementations."""
    edit: dict[Tensor, Tensor] = {}
    verdicts: list[Verdict] = []
    plain = [p for p in patterns if not p.cell_input]
    order, left = topological(list(roots)), MOST
    alike = _alike(order) if plain else {}
    near: dict[int, tuple[list[Pattern], Outside]] = {}
    done: set[tuple[object, ...]] = set()
    for t in reversed(order) if plain else ():
        if not isinstance(t, Compute):
            continue
        if alike[t] not in near:
            near[alike[t]] = _near(t, plain, looked)
        candidates, seen = near[alike[t]]
        if not candidates or (key := _form(t)) in done:
            continue
        for p in candidates:
            left -= 1
            other = _instead(t, p, looked, seen, make) if left >= 0 else None
            if other is not None and other is not t:
                verdicts.append(Verdict(True, f"{t.name}{list(t.shape)}: {p.name}, implemented"))
                edit[t] = other
            if other is not None:
                break
        if t not in edit:
            done.add(key)
    return (replaced(roots, edit.get) if edit else list(roots)), tuple(verdicts)


def _instead(t: Tensor, pattern: Pattern, looked: Looked, seen: Outside, make: Make | None) -> Tensor | None:
    """The implementation of what a tensor is, which may be itself; None where it is no such pattern."""
    known = pattern.told(t.shape)
    if known is None:
        return None
    for sizes in pattern.sizes(known, _extents(t)):
        done = pattern.implemented if make is None else None
        if done is not None and done.bound(sizes, {}, [t], looked, seen) is not None:
            return t
        bound = pattern.bound(sizes, {}, [t], looked, seen)
        if bound is not None and make is not None:
            other = make(t, bound)
            return t if other is None else other
        if bound is not None:
            (other,) = pattern.results(pattern.op_type, bound)
            return t if _is_same(t, other) else other
    return None


def _form(t: Tensor) -> tuple[object, ...]:
    """Equal for tensors that are computed alike, so many tensors far: what is none in one layer is none in all."""
    number: dict[Tensor, int] = {t: 0}
    level, form = [t], list[object]()
    for _ in range(FAR):
        after: list[Tensor] = []
        for u in level:
            after += [i for i in dict.fromkeys(u.inputs) if i not in number]
            number.update((i, len(number)) for i in dict.fromkeys(u.inputs) if i not in number)
            form.append(_own(u))
            form += [number[i] for i in u.inputs]
        level = after
    return (*form, *map(_own, level))


def _own(t: Tensor) -> object:
    if isinstance(t, Compute):
        return t.definition.uid
    is_number = isinstance(t, Constant) and not t.shape
    return (t.shape, t.dtype, t.uid if is_number else None)


def _extents(t: Tensor) -> set[int]:
    """Over which anything near a tensor is reduced."""
    found: set[int] = set()
    level = {t}
    for _ in range(FAR):
        found |= {a.extent for u in level if isinstance(u, Compute) for a in u.definition.reduction_axes}
        level = {i for u in level for i in u.inputs}
    return found


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are computed alike from the same ones."""
    stack, seen = [(a, b)], set[tuple[Tensor, Tensor]]()
    while stack:
        pair = stack.pop()
        a, b = pair
        if a is b or pair in seen:
            continue
        seen.add(pair)
        if not isinstance(a, Compute) or not isinstance(b, Compute) or a.definition is not b.definition:
            return False
        stack += zip(a.inputs, b.inputs, strict=True)
    return True


def _alike(order: Sequence[Tensor]) -> dict[Tensor, int]:
    """Equal for tensors that are computed by equal definitions, so many tensors far, of whichever tensors."""
    told: dict[tuple[object, ...], int] = {}
    own = {t: told.setdefault((_own(t),), len(told)) for t in order}
    found = own
    for _ in range(FAR):
        found = {t: told.setdefault((own[t], *(found[i] for i in t.inputs)), len(told)) for t in order}
    return found


def _near(t: Tensor, patterns: Sequence[Pattern], looked: Looked) -> tuple[list[Pattern], Outside]:
    """The patterns that a tensor may be, and what stands outermost in it."""
    signs, level = Signs(), {t}
    for _ in range(FAR + 1):
        signs = signs.union(*(signs_of(u.definition) for u in level if isinstance(u, Compute)))
        level = {i for u in level for i in u.inputs}
    found = [(p, n) for p in patterns for n, s in enumerate(p.signs) if s <= signs]
    seen = ANY
    for k, depth in enumerate(DEPTHS):
        if found:
            seen = outside(t, Unifier((), (), looked), depth)
            found = [(p, n) for p, n in found if may_be(p.outside[n][k], seen)]
    return list({id(p): p for p, _ in found}.values()), seen

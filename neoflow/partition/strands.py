"""A recurrence in strands: equal parts of the first axis of all it carries that is longer than 1, each of which goes
through all steps alone.

    h[t+1, b, i] = tanh(sum[j](h[t, b, j] * w[j, i]) + x[t, b, i])        no b needs another: some b are a strand

Threads that have strands of their own wait for nobody between steps, and what a strand carries stays in the cache of
one core. It is proved from the expressions: whatever follows from what is carried is read at its reader's own place
along the axis, and the axis stands nowhere else. Refused where a step reads at an index that is data, which is checked
when it runs, where there are recurrences inside, where what all strands read would not stay in a core's own cache, and
where a strand would carry next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Expr, Read, Scatter, Slot, postorder, rewrite
from neoflow.expr.recurrence import Looped, Recurrence, Run
from neoflow.expr.tensor import Compute, Constant, Placeholder, Tensor, topological
from neoflow.verdict import Verdict

LEAST_BYTES = 128
"""Of what a strand carries: two lines of a cache. Of less, two cores would write the same lines in every step."""


MOST_SHARED = 16
"""Bytes that all strands read in a step for each that is one's own: with more, as weights for a row or two, a core
would fetch them for little work, where two cores together fetch half of them each. By the sizes of cells, not timed."""


@dataclass(frozen=True, eq=False)
class Strands:
    """count: how many. recurrence: of one of them; kept: in it, what was asked for of every step, in that order.
    sources: by its placeholders, the inputs of the run; apart: those of which each strand has its own part."""

    count: int
    recurrence: Recurrence
    kept: tuple[Tensor, ...]
    sources: dict[Placeholder, Tensor]
    apart: frozenset[Placeholder]


def strands_of(
    run: Run,
    kept: Sequence[Tensor],
    threads: int,
    cache_bytes: int,
    least_bytes: int | None = None,
    most_shared: float | None = None,
) -> Strands | Verdict:
    """The strands of a run for so many threads, each with a cache; where there are none, or they do not pay, why.

    kept: the tensors of its body that are asked for of every step. least_bytes, most_shared: in the place of these
    constants.
    """
    least_bytes = LEAST_BYTES if least_bytes is None else least_bytes
    most_shared = MOST_SHARED if most_shared is None else most_shared
    r = run.recurrence
    roots = [*r.then, *kept]
    extents = {_extent(t) for t in (*r.carried, *roots)}
    if len(extents) != 1:
        return Verdict(False, "what is carried and kept has no axis in common")
    (extent,) = extents
    count = _count(extent, threads)
    order = topological(roots)
    if count == 1:
        return Verdict(False, f"an axis of {extent} places is nothing for {threads} threads")
    if min((c.nbytes for c in r.carried), default=0) < count * least_bytes:
        return Verdict(False, f"each would carry less than {least_bytes} bytes")
    demands = _demands(r, roots, order, extent)
    if isinstance(demands, Verdict):
        return demands
    shared = sum(p.nbytes for p in r.fixed if False in demands.get(p, ()))
    if shared > cache_bytes:
        return Verdict(False, f"all read {shared} bytes in every step, more than the {cache_bytes} of a core's cache")
    own = sum(p.nbytes for p in (*r.carried, *r.slices) if True in demands.get(p, ())) // count
    if shared > most_shared * own:
        return Verdict(False, f"each would read {shared} bytes that all share for {own} of its own in every step")
    return _built(run, roots, order, demands, extent, count)


def _lead(t: Tensor) -> int:
    """The number of the axis that strands part: those before it have one place, so that a part lies together."""
    return next((d for d, n in enumerate(t.shape) if n > 1), len(t.shape))


def _extent(t: Tensor) -> int:
    """The places along the axis that strands part; 1 where there is none."""
    return max((*t.shape[_lead(t) : _lead(t) + 1], 1))


def _count(extent: int, threads: int) -> int:
    """The fewest parts of an extent that leave the least to the thread that has the most."""
    whole = [n for n in range(1, extent + 1) if extent % n == 0]
    return min(whole, key=lambda n: (-(-n // threads) * (extent // n), n))


Demands = dict[Tensor, set[bool]]
"""Which tensors are needed for one strand alone (True), and which are needed as they are."""


def _demands(r: Recurrence, roots: Sequence[Tensor], order: Sequence[Tensor], extent: int) -> Demands | Verdict:
    """What the roots for a strand need; why not, where a strand needs another one."""
    found: Demands = {t: {True} for t in roots}
    for t in reversed(order):
        for is_apart in found.get(t, ()):
            if isinstance(t, Looped):
                return Verdict(False, f"{t.name} follows from a recurrence inside")
            if is_apart and isinstance(t, Constant):
                return Verdict(False, f"constant {t.name} is one for all")
            if not is_apart and any(t is c for c in r.carried):
                return Verdict(False, f"a step reads {t.name} at other places than its own")
            if not isinstance(t, Compute):
                continue
            read = _read_by(t, is_apart)
            if isinstance(read, Verdict):
                return read
            for i, slot in zip(t.inputs, t.definition.slots, strict=True):
                for part in read.get(slot.position, ()):
                    if part and _extent(i) != extent:
                        return Verdict(False, f"{t.name} reads {i.name} along another axis")
                    found.setdefault(i, set()).add(part)
    return found


def _read_by(t: Compute, is_apart: bool) -> dict[int, set[bool]] | Verdict:
    """How each slot is read, for one strand alone or not; why not, where it cannot be told."""
    body = t.definition.body
    if isinstance(body, Scatter):
        return Verdict(False, _by_data(t))
    own: Axis | None = t.definition.axes[_lead(t)] if is_apart else None
    found: dict[int, set[bool]] = {}
    stack, seen = [body], set[Expr]()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e is own:
            return Verdict(False, f"{t.name} is computed from the number of its place")
        if not isinstance(e, Read):
            stack += e.children
            continue
        if any(isinstance(n, Read) for i in e.indices for n in postorder(i)):
            return Verdict(False, _by_data(t))
        at = _lead(t.inputs[e.slot])
        is_own = own is not None and at < len(e.indices) and e.indices[at] is own
        found.setdefault(e.slot, set()).add(is_own)
        stack += [i for n, i in enumerate(e.indices) if not (is_own and n == at)]
    return found


def _by_data(t: Tensor) -> str:
    return f"{t.name} reads or writes at an index that is data"


def _built(
    run: Run, roots: Sequence[Tensor], order: Sequence[Tensor], demands: Demands, extent: int, count: int
) -> Strands:
    """The recurrence of one strand."""
    r = run.recurrence
    made: dict[tuple[Tensor, bool], Tensor] = {}
    sources: dict[Placeholder, Tensor] = {}
    for t in (*r.placeholders, *order):
        wanted = demands.get(t, {True} if any(t is c for c in r.carried) else ())
        for is_apart in sorted(wanted):
            if (t, is_apart) in made:
                continue
            at = _lead(t)
            shape = (*t.shape[:at], extent // count, *t.shape[at + 1 :]) if is_apart else t.shape
            if isinstance(t, Compute):
                made[t, is_apart] = _part(t, shape, made) if is_apart else _as_is(t, made)
            elif isinstance(t, Placeholder):
                p = made[t, is_apart] = Placeholder(shape, t.dtype, t.name, t.where)
                sources[p] = run.by_placeholder[t]
            else:
                made[t, is_apart] = t

    def of(placeholders: Sequence[Placeholder]) -> tuple[Placeholder, ...]:
        found = (made.get((p, is_apart)) for p in placeholders for is_apart in (False, True))
        return tuple(p for p in found if isinstance(p, Placeholder))

    then = [made[t, True] for t in roots]
    apart = frozenset(p for (_, is_apart), p in made.items() if is_apart and isinstance(p, Placeholder))
    one = Recurrence(
        of(r.carried), of(r.slices), of(r.fixed), tuple(then[: len(r.then)]), r.steps, r.is_reversed, r.where
    )
    return Strands(count, one, tuple(then[len(r.then) :]), sources, apart)


def _as_is(t: Compute, made: dict[tuple[Tensor, bool], Tensor]) -> Tensor:
    return t.over(tuple(made[i, False] for i in t.inputs))


def _part(t: Compute, shape: tuple[int, ...], made: dict[tuple[Tensor, bool], Tensor]) -> Tensor:
    """A compute of one strand: the same at fewer places along its first axis.

    y[b, i] = x[b, i] * w[i], b < 16    ->    y'[b, i] = x'[b, i] * w[i], b < 8
    """
    at = _lead(t)
    own, fewer = t.definition.axes[at], Axis(at, shape[at])
    inputs: list[Tensor] = []
    number: dict[Tensor, int] = {}

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read):
            there = _lead(t.inputs[e.slot])
            is_own = there < len(e.indices) and e.indices[there] is fewer
            i = made[t.inputs[e.slot], is_own]
            if i not in number:
                number[i] = len(inputs)
                inputs.append(i)
            return Read(Slot(number[i], i.shape, i.dtype), e.indices)
        return fewer if e is own else None

    body = rewrite(t.definition.body, rule)
    return build(shape, body, tuple(inputs), t.name)

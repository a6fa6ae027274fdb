"""What need not be done step by step leaves a recurrence: one operation over all steps before it, or after it.

    before    z[t] = x[t] @ w,  h[t+1] = f(h[t], z[t])      ->    z = x @ w of all steps, then the steps
    after     y[t] = h[t] @ v,  which no step reads         ->    the steps, then y = h @ v of all steps
    a sum     dw = sum[t](dw[t]),  dw[t] = a[t] @ b[t]      ->    one contraction, which sums over the steps too
    grown     y[t, i, j] = h[t, i] * z[t, j]                ->    the steps, then y of all steps

What is carried and leads to nothing goes. What follows element by element stays where it is: outside it would go
through memory. So does what of all steps would be large, and many times what it is computed of, as the scores of
attention in blocks of keys: who wrote it step by step did not want it whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from neoflow.expr.batched import batched
from neoflow.expr.close import build, define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Apply, Axis, Binder, Expr, Read, Reduce, Scatter, rewrite
from neoflow.expr.recurrence import Last, Looped, Recurrence, Run, Stacked, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.shape.rearrange import broadcast_to
from neoflow.expr.tensor import Compute, Constant, Placeholder, Tensor, topological
from neoflow.graph.graph import Graph
from neoflow.graph.kept_rows import KeptRow, kept_row


@dataclass(frozen=True)
class Fission:
    """A graph after it, and what left its recurrences: for `explain`."""

    graph: Graph
    moved: tuple[str, ...]
    origin: Mapping[Recurrence, Recurrence] = field(default_factory=dict)
    """of each recurrence that was made, which it was"""

    @property
    def summary(self) -> str:
        return f"{len(self.moved)} tensors of all steps at once"

    def __str__(self) -> str:
        return "\n".join(self.moved) or "every step needs all it computes"


def split_steps(graph: Graph, whole: Collection[Recurrence] = ()) -> Fission:
    """The graph in which recurrences do what depends on what is carried, and nothing else; later ones first, which tell
    what earlier ones are asked for. whole: those of which large tensors may be had of all steps, too."""
    moved: list[str] = []
    origin: dict[Recurrence, Recurrence] = {}
    done: set[Run] = set()
    while True:
        run = next((r for r in reversed(runs_of(graph.order)) if r not in done), None)
        if run is None:
            return Fission(graph, tuple(moved), origin)
        new, edit = _apart(graph, run, run.recurrence in whole)
        origin[new.run.recurrence] = origin.get(run.recurrence, run.recurrence)
        moved += new.moved
        done |= {run, new.run}
        graph = graph.with_roots(replaced(graph.roots, edit.get))


def _apart(graph: Graph, run: Run, is_whole: bool) -> tuple[_Split, dict[Tensor, Tensor]]:
    """A run split, and what there is in the place of what it led to and of the sums over its steps.

    What is read by sums over steps alone may be as large as it likes, as long as these turn out to be one contraction
    each, by which it is never there; if one does not, nothing is thought of that way.
    """
    wanted = [t for t in graph.order if isinstance(t, Looped) and t.run is run]
    readers: dict[Tensor, list[Tensor]] = {t: [] for t in wanted}
    for t in graph.order:
        for i in {*t.inputs} & readers.keys():
            readers[i].append(t)
    roots = set(graph.roots)
    summed = {t for t in wanted if t not in roots and readers[t] and all(map(_is_total, readers[t]))}
    for allowed in (summed, set[Tensor]()):
        new = _Split(run, wanted, is_whole, {t.of for t in allowed if isinstance(t, Stacked)})
        edit = new.results()
        found = {s: _total_over(s, edit) for t in wanted if t in edit for s in readers[t]}
        edit |= {s: total for s, total in found.items() if total is not None}
        if all(s in edit for t in allowed & edit.keys() for s in readers[t]):
            break
    return new, edit


def _is_total(t: Tensor) -> bool:
    """Whether it reads one tensor, which it may be a sum of over steps."""
    return isinstance(t, Compute) and len(t.inputs) == 1 and isinstance(t.definition.body, Reduce)


def _total_over(t: Tensor, edit: Mapping[Tensor, Tensor]) -> Compute | None:
    """A sum over steps, of what now stands for what it read: see `merged`."""
    if not isinstance(t, Compute) or len(t.inputs) != 1:
        return None
    return merged(t.over((edit[t.inputs[0]],)))


class _Split:
    """A run of which some results are wanted, and the run that gives what is needed for them. summed: of its body, what
    is had of all steps only to be summed over them."""

    def __init__(self, run: Run, wanted: Sequence[Looped], is_whole: bool, summed: Collection[Tensor]):
        self.old, self.wanted, self.is_whole = run, wanted, is_whole
        self.summed = {t for s in summed for t in _summands(s)}
        self.moved: list[str] = []
        r = run.recurrence
        self.carried = self._needed()
        self.going = set(topological([r.then[n] for n in self.carried]))
        self.cut: dict[Tensor, Placeholder] = {}
        """by tensor of the body: what stands for it where all steps are done at once"""
        self.later: dict[Looped, Tensor | None] = {t: self._outside(t.of) for t in wanted if isinstance(t, Stacked)}
        kept = [t for t in (*self.cut, *(t.of for t, y in self.later.items() if y is None)) if not self._is_slice(t)]
        self.kept = list(dict.fromkeys(kept))
        self.run, self.bodies = self._before()

    def _is_huge(self, t: Tensor) -> bool:
        return not self.is_whole and t not in self.summed and self.old.recurrence.is_huge(t)

    def _is_slice(self, t: Tensor) -> bool:
        return any(t is s for s in self.old.recurrence.slices)

    def _needed(self) -> list[int]:
        """The numbers of what has to be carried for what is wanted."""
        r = self.old.recurrence
        number = {c: n for n, c in enumerate(r.carried)}
        found = {t.number for t in self.wanted if isinstance(t, Last)}
        asked = topological([t.of for t in self.wanted if isinstance(t, Stacked)])
        while True:
            read = {number[t] for t in (*asked, *topological([r.then[n] for n in sorted(found)])) if t in number}
            if read <= found:
                return sorted(found)
            found |= read

    # -------------------------------------------------------------------------------------------------------- after

    def _outside(self, of: Tensor) -> Tensor | None:
        """A tensor of the body over what stands for others, where it is computed of all steps at once."""
        r = self.old.recurrence
        if of in self.going or not of.inputs:
            return None
        private = [t for t in topological([of]) if t not in self.going and t.inputs]
        fixed, carried = set(r.fixed), set(r.carried)
        edges = {i for t in private for i in t.inputs if i in self.going or i in carried or self._is_slice(i)}
        is_worth = any(_is_sum(t) for t in private) or _grows(of, edges)
        if not is_worth or any(isinstance(t, Looped) for t in private) or any(map(self._is_of_rows, edges)):
            return None
        if any(map(self._is_huge, (*private, *edges))):
            return None

        def instead(t: Tensor) -> Tensor | None:
            if (t in self.going or t in carried or self._is_slice(t)) and t not in fixed:
                if isinstance(t, Constant):
                    return None
                if t not in self.cut:
                    self.cut[t] = Placeholder(t.shape, t.dtype, t.name, t.where)
                return self.cut[t]
            return None

        self.moved.append(f"after: {of.name}{list(of.shape)} of {r.steps} steps")
        return replaced([of], instead)[0]

    def _is_of_rows(self, t: Tensor) -> bool:
        """Whether a step changes one row of it alone, so that all of it is not to be kept of every step."""
        r = self.old.recurrence
        if any(a.of is t for a in self.wanted if isinstance(a, Stacked)):
            return False
        numbers = [n for n, (c, then) in enumerate(zip(r.carried, r.then, strict=True)) if t is c or t is then]
        return any(isinstance(kept_row(self.old, n, ()), KeptRow) for n in numbers)

    # -------------------------------------------------------------------------------------------------------- before

    def _before(self) -> tuple[Run, dict[Tensor, Tensor]]:
        """The new run, and its tensors for those of the old body that are kept."""
        r, run = self.old.recurrence, self.old
        then = [r.then[n] for n in self.carried]
        roots = [*then, *self.kept]
        order = topological(roots)
        moving: set[Tensor] = {r.carried[n] for n in self.carried}
        for t in order:
            if any(i in moving for i in t.inputs):
                moving.add(t)
        edges = dict.fromkeys(i for t in order if t in moving for i in t.inputs if i not in moving)
        edges |= dict.fromkeys(t for t in roots if t not in moving)
        sliced: set[Tensor] = set(r.slices)
        for t in order:
            if any(i in sliced for i in t.inputs):
                sliced.add(t)
        early: dict[Tensor, Placeholder] = {}
        stacks: dict[Tensor, Tensor] = {}
        for t in edges:
            below = topological([t])
            is_loop = any(isinstance(i, Looped) for i in below)
            is_sum = t in sliced and t.inputs and any(map(_is_sum, below))
            if is_sum and not is_loop and not any(self._is_huge(i) for i in below if i in sliced):
                early[t] = Placeholder(t.shape, t.dtype, t.name, t.where)
                stacks[t] = self._all_steps(t, {s: run.by_placeholder[s] for s in r.slices})
                self.moved.append(f"before: {t.name}{list(t.shape)} of {r.steps} steps")
        made = replaced(roots, lambda t: early.get(t))
        read = set(topological(made))
        slices = {s: run.by_placeholder[s] for s in r.slices if s in read} | {p: stacks[t] for t, p in early.items()}
        fixed = {p: run.by_placeholder[p] for p in r.fixed if p in read}
        carried = tuple(r.carried[n] for n in self.carried)
        new = Recurrence(
            carried, tuple(slices), tuple(fixed), tuple(made[: len(then)]), r.steps, r.is_reversed, r.where
        )
        first = [run.by_placeholder[c] for c in carried]
        bodies = dict(zip(self.kept, made[len(then) :], strict=True))
        return Run(new, (*first, *slices.values(), *fixed.values())), bodies

    def _all_steps(self, t: Tensor, stacks: dict[Tensor, Tensor]) -> Tensor:
        """A tensor over placeholders in all steps at once, where these stacks stand for some of them."""
        steps = self.old.recurrence.steps
        (found,) = batched([t], stacks, steps)
        if found is t:
            found = broadcast_to(t, (steps, *t.shape))
        known = self.old.by_placeholder
        return replaced([found], lambda t: known.get(t))[0]

    # ------------------------------------------------------------------------------------------------------- results

    def results(self) -> dict[Tensor, Tensor]:
        """What there is in the place of each that is wanted."""
        at = {n: k for k, n in enumerate(self.carried)}
        found: dict[Tensor, Tensor] = {}
        for t in self.wanted:
            if isinstance(t, Last):
                found[t] = self.run.last(at[t.number], t.name)
            else:
                y = self.later[t]
                if y is None:
                    found[t] = self._stack(t.of, t.name)
                else:
                    stacks: dict[Tensor, Tensor] = {p: self._stack(c, c.name) for c, p in self.cut.items()}
                    found[t] = self._all_steps(y, stacks)
        return {a: b for a, b in found.items() if a is not b}

    def _stack(self, of: Tensor, name: str) -> Tensor:
        if self._is_slice(of):
            return self.old.by_placeholder[of]
        return self.run.stacked(self.bodies[of], name)


def _is_sum(t: Tensor) -> bool:
    return isinstance(t, Compute) and t.definition.has_reduction


def merged(t: Compute) -> Compute | None:
    """s[i] = sum[t](v[t, i]),  v[t, i] = sum[k](f(t, i, k))    ->    s[i] = sum[t, k](f(t, i, k))
       s[i] = sum[t](v[t, i]),  v[t, i] = a[t, i] + b[t, i]     ->    s[i] = sum[t](a[t, i]) + sum[t](b[t, i])

    Both where they lead to one contraction instead of a tensor of all steps; None where t is no such sum.
    """
    (v,) = t.inputs
    match t.definition.body:
        case Reduce(op="sum", axes=(a,), body=Read(indices=(first, *rest))) if first is a:
            is_plain = _are_in_order(rest, t.definition.axes)
        case _:
            return None
    if not is_plain or not isinstance(v, Compute) or isinstance(v.definition.body, Scatter):
        return None
    body, axes = v.definition.body, tuple[Axis, ...]()
    if isinstance(body, Apply) and body.fn == "add":
        return _of_terms(t, v, body)
    if not v.definition.has_reduction and _grows(v, v.inputs):
        inner = body
    elif isinstance(body, Reduce) and body.op == "sum":
        inner, axes = body.body, body.axes
    else:
        return None
    rank = len(v.shape)
    moved = {Axis(0, v.shape[0]): Axis(rank + len(axes), v.shape[0])}
    moved |= {Axis(n, e): Axis(n - 1, e) for n, e in enumerate(v.shape) if n}

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Binder):
            return e
        return moved.get(e) if isinstance(e, Axis) else None

    inner = rewrite(inner, rule)
    first = moved[Axis(0, v.shape[0])]
    return build(t.shape, Reduce("sum", (first, *axes), inner), v.inputs, t.name)


def _of_terms(t: Compute, v: Compute, body: Apply) -> Compute | None:
    """The sum of the sums over steps of what v adds up, where each is one contraction."""
    parts: list[Compute] = []
    for e in _terms(body):
        if not isinstance(e, Read) or not _are_in_order(e.indices, v.definition.axes):
            return None
        part = merged(t.over((v.inputs[e.slot],)))
        if part is None:
            return None
        parts.append(part)
    axes = unnamed_axes(t.shape, t.where)
    total: Expr = Read(parts[0], axes)
    for part in parts[1:]:
        total = Apply("add", (total, Read(part, axes)))
    return define(t.shape, axes, total, t.name, t.where)


def _summands(t: Tensor) -> Iterator[Tensor]:
    """The tensor, and what it adds up where it is a sum of tensors as they are."""
    yield t
    if isinstance(t, Compute) and isinstance(t.definition.body, Apply) and t.definition.body.fn == "add":
        for e in _terms(t.definition.body):
            if isinstance(e, Read) and _are_in_order(e.indices, t.definition.axes):
                yield from _summands(t.inputs[e.slot])


def _grows(t: Tensor, inputs: Iterable[Tensor]) -> bool:
    """Whether it has more elements than what it follows from, as a product of two vectors has."""
    return t.size > sum(i.size for i in inputs)


def _terms(e: Expr) -> Iterator[Expr]:
    """What is added up."""
    if isinstance(e, Apply) and e.fn == "add":
        for arg in e.args:
            yield from _terms(arg)
    else:
        yield e


def _are_in_order(indices: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    return len(indices) == len(axes) and all(i is a for i, a in zip(indices, axes, strict=True))

"""Recurrences as calls of another library's implementation of the whole of them: PyTorch's LSTM, GRU and plain RNN.

    h = scan(lstm_cell(w, u, b, a), (h0, c0), x)    ->    h, last h, last c = torch.lstm(x, h0, c0, w, u, b, a)

Gates that lie in another order are brought into PyTorch's, and a recurrence from the last step to the first reads its
inputs turned round: by expressions of ours, before the call and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from neoflow.expr import dsl
from neoflow.expr.foreign import Called, Foreign
from neoflow.expr.recurrence import Last, Looped, Run, Stacked
from neoflow.expr.replace import replaced
from neoflow.expr.scan import scan
from neoflow.expr.shape.join import concat
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Placeholder, Tensor, topological
from neoflow.mapping.catalogue.rnn import FUNCTIONS
from neoflow.mapping.cell import Filled, Pattern
from neoflow.mapping.unify import Looked
from neoflow.nn import functional as F
from neoflow.verdict import Verdict

TYPES = ("float32", "float64")


@dataclass(frozen=True)
class Kind:
    """implementation: its name. states: what it carries, the one that it gives of all steps first. gates: of whose
    weights it has rows, in its order; with_biases: of the cell by itself, or with one, two or no biases."""

    implementation: str
    states: tuple[str, ...]
    gates: int
    order: tuple[int, ...]
    pattern: Pattern


def _lstm(
    x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor, order: str = "ifgo", **p: Tensor
) -> tuple[Tensor, ...]:
    return F.lstm_cell(x, h, c, w, u, p.get("b"), p.get("a"), order)


def _gru(x: Tensor, h: Tensor, w: Tensor, u: Tensor, **p: Tensor) -> tuple[Tensor, ...]:
    return (F.gru_cell(x, h, w, u, p.get("b"), p.get("a")),)


def _rnn(x: Tensor, h: Tensor, w: Tensor, u: Tensor, name: str = "tanh", **p: Tensor) -> tuple[Tensor, ...]:
    return (FUNCTIONS[name](F.linear(x, w, p.get("b")) + F.linear(h, u, p.get("a"))),)


BIASES = ("ba", "b", "")
LSTM_ORDERS = ("ifgo", "iofg")


@cache
def kinds() -> tuple[Kind, ...]:
    """All that are known."""
    found: list[Kind] = []
    for biases in BIASES:
        for order in LSTM_ORDERS:
            name = f"torch's LSTM, gates {order}, {len(biases)} biases"
            holes = {"x": "BI", "h": "BH", "c": "BH", "w": "4HI", "u": "4HH"} | dict.fromkeys(biases, "4H")
            cell = partial(_lstm, order=order)
            rows = tuple(order.index(g) for g in "ifgo")
            found.append(Kind("torch.lstm", ("h", "c"), 4, rows, Pattern(name, holes, cell, {"h": 0, "c": 1}, cell)))
        holes = {"x": "BI", "h": "BH", "w": "3HI", "u": "3HH"} | dict.fromkeys(biases, "3H")
        made = Pattern(f"torch's GRU, {len(biases)} biases", holes, _gru, {"h": 0}, _gru)
        found.append(Kind("torch.gru", ("h",), 3, (0, 1, 2), made))
        for name in FUNCTIONS:
            holes = {"x": "BI", "h": "BH", "w": "HI", "u": "HH"} | dict.fromkeys(biases, "H")
            own = partial(_rnn, name=name)
            made = Pattern(f"torch's RNN, {name}, {len(biases)} biases", holes, own, {"h": 0}, own)
            found.append(Kind(f"torch.rnn_{name}", ("h",), 1, (0,), made))
    return tuple(found)


def found_in(run: Run, looked: Looked | None = None) -> tuple[Kind, Filled] | None:
    """Which of them a run is, and what is in its holes."""
    carried = run.recurrence.carried
    for kind in kinds():
        if len(carried) == len(kind.states) and (bound := kind.pattern.found_in(run.recurrence, looked)) is not None:
            return kind, bound
    return None


def handed(run: Run, wanted: Sequence[Looped], kind: Kind, bound: Filled) -> Mapping[Tensor, Tensor] | Verdict:
    """What stands for those tensors that lead out of a run where another implementation has all of it."""
    r = run.recurrence
    name = kind.pattern.name
    number = {t: n for n, t in enumerate(r.then)}
    place = {bound[s]: n for n, s in enumerate(kind.states)}
    slot = {n: place[c] for n, c in enumerate(r.carried)}
    for t in wanted:
        if isinstance(t, Stacked) and not any(
            slot[n] == 0 for n in (_number(t.of, number, r.carried),) if n is not None
        ):
            return Verdict(False, f"{name}: it gives all steps of h alone, and {t.of.name} is read of all steps")
    x = bound["x"]
    if not any(x is s for s in r.slices):
        return Verdict(False, f"{name}: its input {x.name} is computed in every step")
    if x.dtype not in TYPES or any(t.dtype != x.dtype for t in bound.values()):
        return Verdict(False, f"{name}: it is of {' or '.join(TYPES)}, not {x.dtype}")
    weights = {n: t for n, t in bound.items() if n not in ("x", *kind.states)}
    inside = {*r.carried, *r.slices}
    moving = [n for n, t in weights.items() if not inside.isdisjoint(topological([t]))]
    if moving:
        return Verdict(False, f"{name}: {bound[moving[0]].name} is another one in every step")
    outer = dict(zip(weights, replaced(list(weights.values()), run.by_placeholder.get), strict=True))
    xs = run.by_placeholder[x]
    ordered = {n: _ordered(outer[n], kind) for n in ("w", "u", "b", "a") if n in outer}
    given = {"x": _turned(xs) if r.is_reversed else xs}
    given |= {s: run.by_placeholder[bound[s]] for s in kind.states} | ordered
    results = called(kind, given)
    ys = _turned(results[0]) if r.is_reversed else results[0]
    edit: dict[Tensor, Tensor] = {}
    for t in wanted:
        if isinstance(t, Last):
            edit[t] = results[1 + slot[t.number]]
        elif t.of in number:
            edit[t] = ys
        else:
            edit[t] = _before(ys, given["h"], r.is_reversed)
    return edit


def called(kind: Kind, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """What the implementation gives of tensors by the names of the holes of its pattern, gates in its own order: the
    first state of all steps, then all states after the last one."""
    holes = {n: Placeholder(t.shape, t.dtype, n, t.where) for n, t in given.items()}
    names = (("holes", " ".join(given)),)
    foreign = Foreign(kind.implementation, names, tuple(holes.values()), meaning(kind, holes))
    return Called(foreign, tuple(given.values())).results


def meaning(kind: Kind, holes: Mapping[str, Tensor], loop: Callable[..., Any] = scan) -> tuple[Tensor, ...]:
    """What it gives, as our own loop, or by `unrolled` as steps written out."""
    fixed = {n: p for n, p in holes.items() if n not in ("x", *kind.states)}
    own = {4: partial(_lstm, order="ifgo")}.get(kind.gates, kind.pattern.cell)

    def step(state: tuple[Tensor, ...], row: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        then = own(x=row, **dict(zip(kind.states, state, strict=True)), **fixed)
        return then, then[0]

    last, ys = loop(step, tuple(holes[s] for s in kind.states), holes["x"])
    return (ys, *last)


def _number(t: Tensor, number: Mapping[Tensor, int], carried: Sequence[Tensor]) -> int | None:
    """Which state a tensor of the body is, before the step or after it."""
    return number[t] if t in number else next((n for n, c in enumerate(carried) if c is t), None)


def _ordered(t: Tensor, kind: Kind) -> Tensor:
    """Weights or a bias with its blocks of rows in the order of the implementation."""
    if kind.order == tuple(range(kind.gates)):
        return t
    size = t.shape[0] // kind.gates
    return concat([t[n * size : (n + 1) * size] for n in kind.order])


def _turned(t: Tensor) -> Tensor:
    """From the last step to the first."""
    return dsl.compute(t.shape, lambda *at: t[(t.shape[0] - 1 - at[0], *at[1:])], t.name)


def _before(ys: Tensor, first: Tensor, is_reversed: bool) -> Tensor:
    """What was carried before each step."""
    head = reshape(first, (1, *first.shape))
    if ys.shape[0] == 1:
        return head
    return concat([ys[1:], head] if is_reversed else [head, ys[:-1]])

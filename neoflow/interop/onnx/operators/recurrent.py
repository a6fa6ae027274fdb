"""Recurrent layers, written out step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neoflow import language as nf
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row, expect
from neoflow.nn import functional as F

MOST = 1024
"""Steps that are written out."""
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: nf.relu(x),
    "tanh": lambda x: nf.tanh(x),
    "sigmoid": lambda x: nf.sigmoid(x),
    "softsign": lambda x: x / (1.0 + nf.abs(x)),
    "softplus": F.softplus,
}
_State = tuple[Tensor, ...]
_Cell = Callable[[Tensor, _State], _State]
"""From the products of a step's input [B, gates H] and the state to the new state; its first part is the output."""


def _directions(
    gates: int, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, initial: Sequence[Tensor | None],
    cell: Callable[[int, Tensor, Tensor | None], _Cell], direction: str, layout: int, lengths: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """y [T, D, B, H] and the last states [D, B, H]; with layout 1 batches are first.

    w [D, gates H, I], r [D, gates H, H], b [D, 2 gates H]: biases of both products.
    """
    expect(direction in ("forward", "reverse", "bidirectional"), f"direction {direction!r} is not known")
    x = nf.transpose(x, (1, 0, 2)) if layout else x
    steps, batch, _ = x.shape
    hidden = r.shape[2]
    expect(steps <= MOST, f"a sequence of {steps} steps is not written out; at most {MOST} are")
    if lengths is not None:
        expect((lengths == steps).all(), "sequences of different lengths are not known; cut them to one length")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    outputs, last = [], []
    for d, is_backward in enumerate(backwards):
        product = nf.einsum("tbi,gi->tbg", x, w[d])
        if b is not None:
            product = product + b[d, : gates * hidden]
        state: _State = tuple(
            nf.zeros((batch, hidden), x.dtype) if s is None else s[:, d] if layout else s[d] for s in initial
        )
        step = cell(d, r[d], None if b is None else b[d, gates * hidden :])
        found: list[Any] = [None] * steps
        for t in reversed(range(steps)) if is_backward else range(steps):
            state = step(product[t], state)
            found[t] = state[0]
        outputs.append(nf.stack(found))
        last.append(state)
    y = nf.stack(outputs, 1)
    states = tuple(nf.stack([s[n] for s in last]) for n in range(len(initial)))
    if layout:
        return nf.transpose(y, (2, 0, 1, 3)), *(nf.transpose(s, (1, 0, 2)) for s in states)
    return y, *states


def _functions(names: Sequence[str] | None, default: Sequence[str], d: int) -> list[Callable[[Any], Any]]:
    given = [n.lower() for n in (names or [])][d * len(default) : (d + 1) * len(default)] or list(default)
    expect(all(n in _FUNCTIONS for n in given), f"activations {given} are not all of {', '.join(_FUNCTIONS)}")
    return [_FUNCTIONS[n] for n in given]


def _gates(product: Tensor, h: Tensor, r: Tensor, b: Tensor | None, count: int) -> list[Tensor]:
    total = product + nf.einsum("bh,gh->bg", h, r)
    total = total if b is None else total + b
    n = h.shape[1]
    return [total[:, k * n : (k + 1) * n] for k in range(count)]


def _rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Any = None, h: Tensor | None = None, *,
    hidden_size: int | None = None, direction: str = "forward", activations: Sequence[str] | None = None,
    layout: int = 0, outputs: tuple[str, ...],
) -> Any:  # fmt: skip
    def cell(d: int, own: Tensor, bias: Tensor | None) -> _Cell:
        (f,) = _functions(activations, ["tanh"], d)
        return lambda product, state: (f(_gates(product, state[0], own, bias, 1)[0]),)

    return _directions(1, x, w, r, b, [h], cell, direction, layout, lengths)[: len(outputs)]


def _gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Any = None, h: Tensor | None = None, *,
    hidden_size: int | None = None, direction: str = "forward", activations: Sequence[str] | None = None,
    linear_before_reset: int = 0, layout: int = 0, outputs: tuple[str, ...],
) -> Any:  # fmt: skip
    def cell(d: int, own: Tensor, bias: Tensor | None) -> _Cell:
        f, g = _functions(activations, ["sigmoid", "tanh"], d)
        n = own.shape[1]

        def step(product: Tensor, state: _State) -> _State:
            (before,) = state
            update, reset = map(
                f, _gates(product[:, : 2 * n], before, own[: 2 * n], None if bias is None else bias[: 2 * n], 2)
            )
            carried = nf.einsum("bh,gh->bg", before if linear_before_reset else reset * before, own[2 * n :])
            carried = carried if bias is None else carried + bias[2 * n :]
            new = g(product[:, 2 * n :] + (reset * carried if linear_before_reset else carried))
            return ((1.0 - update) * new + update * before,)

        return step

    return _directions(3, x, w, r, b, [h], cell, direction, layout, lengths)[: len(outputs)]


def _lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Any = None, h: Tensor | None = None,
    c: Tensor | None = None, peepholes: Tensor | None = None, *, hidden_size: int | None = None,
    direction: str = "forward", activations: Sequence[str] | None = None, input_forget: int = 0, layout: int = 0,
    outputs: tuple[str, ...],
) -> Any:  # fmt: skip
    def cell(d: int, own: Tensor, bias: Tensor | None) -> _Cell:
        f, g, k = _functions(activations, ["sigmoid", "tanh", "tanh"], d)
        n = own.shape[1]

        def step(product: Tensor, state: _State) -> _State:
            before, cell_before = state
            i, o, forget, new = _gates(product, before, own, bias, 4)
            if peepholes is not None:
                i, forget = i + peepholes[d, :n] * cell_before, forget + peepholes[d, 2 * n :] * cell_before
            i, forget = f(i), f(forget)
            cell_now = (1.0 - i if input_forget else forget) * cell_before + i * g(new)
            o = o if peepholes is None else o + peepholes[d, n : 2 * n] * cell_now
            return f(o) * k(cell_now), cell_now

        return step

    return _directions(4, x, w, r, b, [h, c], cell, direction, layout, lengths)[: len(outputs)]


ROWS = (
    Row("RNN", _rnn, known=(4,), counts=True),
    Row("GRU", _gru, known=(4,), counts=True),
    Row("LSTM", _lstm, known=(4,), counts=True),
)

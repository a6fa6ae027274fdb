"""Piece e: recurrences that are PyTorch's, computed by cuDNN through it and by our own kernels, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import neoflow as nf
from benchmarks.gpu import dry, theirs
from benchmarks.gpu.ours import TARGET, compiled
from benchmarks.gpu.rows import Outcome, Setting, Task
from neoflow import devices, trials
from neoflow.expr.tensor import Parameter, Placeholder, Tensor
from neoflow.graph import make_graph
from neoflow.nn import functional as F
from neoflow.pipeline import Compiled
from neoflow.rewriting.handing import handing

CELLS = {"lstm": 4, "gru": 3, "rnn_tanh": 1}
"""By PyTorch's name: gates, of which a weight has rows."""
SIZES = ((20, 20, 200, 200), (35, 20, 650, 650), (35, 20, 1500, 1500), (128, 64, 512, 512), (1024, 32, 128, 128))
"""Steps, samples, inputs, hidden units: three language models of Zaremba et al. (2014), and longer ones."""
SMALL = (3, 2, 4, 5)
ROWS = (
    *(("lstm", size, trains) for size in SIZES for trains in (False, True)),
    *((cell, size, True) for cell in ("gru", "rnn_tanh") for size in SIZES[1::2]),
)
OURS, THEIRS, ALONE = "seconds", "cuDNN seconds", "PyTorch seconds"


def title(cell: str, size: tuple[int, ...], trains: bool) -> str:
    """What a row is called."""
    what = "and gradients" if trains else "forward"
    return f"{cell} {what}, " + " ".join(f"{n} {e}" for n, e in zip("TBIH", size, strict=True))


def program(cell: str, size: tuple[int, ...], trains: bool) -> tuple[list[Tensor], Placeholder, list[Parameter]]:
    """All steps of the state, or a loss of these and its gradients; the input; parameters in PyTorch's order."""
    steps, batch, inputs, hidden = size
    x, rows = nf.placeholder((steps, batch, inputs), name="x"), CELLS[cell] * hidden
    shapes = ((rows, inputs), (rows, hidden), (rows,), (rows,))
    own = [nf.parameter(s, name=n) for n, s in zip("wuba", shapes, strict=True)]
    zeros = nf.zeros((batch, hidden))

    def step(state: tuple[Tensor, ...], row: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        if cell == "lstm":
            state = F.lstm_cell(row, *state, *own)
        elif cell == "gru":
            state = (F.gru_cell(row, *state, *own),)
        else:
            state = (nf.tanh(F.linear(row, own[0], own[2]) + F.linear(state[0], own[1], own[3])),)
        return state, state[0]

    _, ys = nf.scan(step, (zeros, zeros) if cell == "lstm" else (zeros,), x)
    if not trains:
        return [ys], x, own
    loss = nf.mean(ys * ys)
    return [loss, *nf.grad(loss, [x, *own])], x, own


def ours(cell: str, size: tuple[int, ...], trains: bool, setting: Setting) -> Outcome:
    """What the compiler itself finds where it is asked for "torch cells": whether cuDNN's results are within the bounds
    of kernels, and what both take in turns; beside them PyTorch's own module, called from Python."""
    if setting.dry:
        with dry.torch() as stood:
            return tried(cell, SMALL, trains, setting) if stood else Outcome(said=theirs.ABSENT)
    try:
        theirs.torch()
    except theirs.Absent as absent:
        return Outcome(said=str(absent))
    found = tried(cell, size, trains, setting)
    if found.figures:
        found.figures[ALONE] = theirs.seconds_of(module(cell, size, trains)[0], setting)
    return found


def tried(cell: str, size: tuple[int, ...], trains: bool, setting: Setting) -> Outcome:
    """The verdict of the compiler, and the seconds that it saw."""
    outputs, x, _ = program(cell, size, trains)
    figures: dict[str, float] = {}

    def make(roots: Sequence[Tensor], inputs: Sequence[Placeholder], *_: Any) -> Compiled:
        return compiled(roots, inputs)  # nobody asks for calls here: those that are there stay

    ways = trials.Trials(devices.resolve_target(TARGET), make)

    def beside(own: Sequence[Tensor], other: Sequence[Tensor], inputs: Sequence[Placeholder]) -> tuple[float, float]:
        figures[OURS], figures[THEIRS] = ways.beside(own, other, inputs)
        return figures[OURS], figures[THEIRS]

    found = handing(make_graph(outputs, [x]), ways.values, beside, ways.refusal)
    said = str(found).replace("\n", "; ")
    return Outcome(figures, f"WRONG: {said}" if " is wrong by " in said else said)


def module(cell: str, size: tuple[int, ...], trains: bool) -> tuple[Callable[[], Any], list[Any]]:
    """The same by PyTorch's module of the name, whose weights are packed; of what it is computed."""
    found = theirs.module()
    steps, batch, inputs, hidden = size
    kind = {"lstm": found.nn.LSTM, "gru": found.nn.GRU, "rnn_tanh": found.nn.RNN}[cell]
    with theirs.on_gpu():
        own = kind(inputs, hidden)
        x = found.randn(steps, batch, inputs, requires_grad=trains)
    leaves = [x, *own.parameters()]

    def run() -> Any:
        with found.set_grad_enabled(trains):
            ys, _ = own(x)
            return found.autograd.grad((ys * ys).mean(), leaves) if trains else ys

    return run, leaves


TASKS = tuple(Task(f"e/{title(*row)}", partial(ours, *row)) for row in ROWS)

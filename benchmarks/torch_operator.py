"""Operators of neoflow inside PyTorch, forward and backward, beside the best form that PyTorch has of them.

    python -m benchmarks.torch_operator [--only REGEX] [--tune 30] [--rounds 7] [--expert] [--small] [--calls] [--write]

Each line: the time of a value and all its gradients, of PyTorch's fastest form eager and under torch.compile in the
same process, in turns, a block of 0.15 s each; ratios above 1: neoflow is faster. The geometric mean is over the ratios
to the better of the two; at least 2 is wanted. `--expert` does so in PyTorch's expert setting, `--tune` searches for so
many seconds a program first. `--calls` has what a call costs beside an empty operator of `torch.library`; at most 10 us
more are wanted. `--write` puts the tables into RESULTS.md.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import neoflow as nf
from benchmarks.results import write
from benchmarks.timing import block
from neoflow.contest.contenders import PEERS, build_expert, environment
from neoflow.machine import processor

WANTED, MICROSECONDS = 2.0, 10.0
"""Limits: the geometric mean of the ratios, and what a call takes beyond an empty one."""
INSIDE = "BENCHMARK_IS_EXPERT"


def capsules(x, w, stride: int = 1):
    """Convolution of capsules: x [B, C, H, W, I, K], w [O, C, R, S, K, J]."""
    return nf.nn.functional.capsule_conv(x, w, stride)


def capsules_einsum(x, w, stride=1):
    windows = x.unfold(2, w.shape[2], stride).unfold(3, w.shape[3], stride)
    return torch.einsum("bcpqikrs,ocrskj->bopqij", windows, w)


def capsules_conv2d(x, w, stride=1):
    """Rows of the capsules as samples, their columns as channels."""
    b, c, h, v, i, k = x.shape
    o, _, r, s, _, j = w.shape
    images = x.permute(0, 4, 1, 5, 2, 3).reshape(b * i, c * k, h, v)
    y = F.conv2d(images, w.permute(0, 5, 1, 4, 2, 3).reshape(o * j, c * k, r, s), stride=stride)
    return y.unflatten(0, (b, i)).unflatten(2, (o, j)).permute(0, 2, 4, 5, 1, 3)


def circulant(x, w):
    """x [B, J, K], w [I, J, K]: blocks that are given by their first columns; y [B, I, K]."""
    j, k = nf.axis(x.shape[1], "j"), nf.axis(x.shape[2], "k")
    size = x.shape[2]
    return nf.compute(
        (x.shape[0], w.shape[0], size),
        lambda b, i, n: nf.sum(x[b, j, k] * w[i, j, (n - k) % size], axis=[j, k]),
        name="y",
    )


def circulant_fft(x, w):
    return torch.fft.irfft(torch.einsum("bjk,ijk->bik", torch.fft.rfft(x), torch.fft.rfft(w)), n=x.shape[2])


def circulant_dense(x, w):
    size = x.shape[2]
    n = torch.arange(size)
    dense = w[:, :, (n[:, None] - n) % size].permute(0, 2, 1, 3).reshape(w.shape[0] * size, -1)
    return F.linear(x.flatten(1), dense).unflatten(1, (-1, size))


def gate(x, h, w, u, alpha, beta1, beta2, bias=None):
    """The gate of a multiplicative LSTM: alpha * Wx * Uh + beta1 * Wx + beta2 * Uh + bias."""
    a = nf.expr("a[b,n] = sum(x[b,i] * w[n,i])", x=x, w=w)
    c = nf.expr("c[b,n] = sum(h[b,i] * u[n,i])", h=h, u=u)
    y = alpha * a * c + beta1 * a + beta2 * c
    return nf.sigmoid(y if bias is None else y + bias)


def gate_linear(x, h, w, u, alpha, beta1, beta2, bias=None):
    a, c = F.linear(x, w), F.linear(h, u)
    y = alpha * a * c + beta1 * a + beta2 * c
    return torch.sigmoid(y if bias is None else y + bias)


def involution(x, kernel):
    """x [B, C, H+r-1, W+s-1], kernel [B, G, r, s, H, W]: the kernel of each place, for a group of channels."""
    group = x.shape[1] // kernel.shape[1]
    r, s = nf.axis(kernel.shape[2], "r"), nf.axis(kernel.shape[3], "s")
    return nf.compute(
        (x.shape[0], x.shape[1], *kernel.shape[4:]),
        lambda b, c, p, q: nf.sum(x[b, c, p + r, q + s] * kernel[b, c // group, r, s, p, q], axis=[r, s]),
        name="y",
    )


def involution_einsum(x, kernel):
    b, g, r, s, h, w = kernel.shape
    windows = x.unfold(2, r, 1).unfold(3, s, 1).reshape(b, g, -1, h, w, r, s)
    return torch.einsum("bgchwrs,bgrshw->bgchw", windows, kernel).reshape(b, -1, h, w)


def involution_unfold(x, kernel):
    b, g, r, s, h, w = kernel.shape
    windows = F.unfold(x, (r, s)).view(b, g, -1, r * s, h, w)
    return (windows * kernel.view(b, g, 1, r * s, h, w)).sum(3).view(b, -1, h, w)


@dataclass(frozen=True)
class Row:
    """An operator, the forms that PyTorch has of it, and shapes of its tensors: as measured, and small ones."""

    name: str
    ours: Callable[..., Any]
    theirs: tuple[Callable[..., Any], ...]
    shapes: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]


def _gate(batch: int, inputs: int, hidden: int) -> tuple[tuple[int, ...], ...]:
    return ((batch, inputs), (batch, hidden), (hidden, inputs), (hidden, hidden), *((hidden,) for _ in range(4)))


ROWS = (
    Row(
        "capsule convolution",
        capsules,
        (capsules_einsum, capsules_conv2d),
        ((16, 16, 14, 14, 4, 4), (32, 16, 3, 3, 4, 4)),
        ((2, 2, 5, 5, 2, 3), (3, 2, 3, 3, 3, 2)),
    ),
    Row(
        "block-circulant linear",
        circulant,
        (circulant_fft, circulant_dense),
        ((64, 32, 32), (32, 32, 32)),
        ((3, 2, 4), (3, 2, 4)),
    ),
    Row("MI-LSTM gate", gate, (gate_linear,), _gate(64, 128, 512), _gate(2, 3, 4)),
    Row(
        "involution",
        involution,
        (involution_einsum, involution_unfold),
        ((8, 64, 34, 34), (8, 4, 3, 3, 32, 32)),
        ((2, 4, 5, 6), (2, 2, 2, 3, 4, 4)),
    ),
)


@dataclass(frozen=True)
class Measured:
    """Seconds of a value with its gradients. eager, compiled: of PyTorch's fastest form, whose name is `form`."""

    name: str
    ours: float
    eager: float
    compiled: float
    form: str
    error: float

    @property
    def ratio(self) -> float:
        return min(self.eager, self.compiled) / self.ours


def drawn(shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(s, generator=generator) * 0.3).requires_grad_() for s in shapes]


def step(f: Callable[..., torch.Tensor], values: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """A value and the gradients of all arguments."""
    cotangent = torch.ones_like(f(*values)).detach()

    def run() -> list[torch.Tensor]:
        y = f(*values)
        return [y.detach(), *torch.autograd.grad(y, values, cotangent)]

    return run


def measure(row: Row, rounds: int, tune: float | None, is_small: bool) -> Measured:
    values = drawn(row.small if is_small else row.shapes)
    operator = nf.torch.operator(row.ours, tune=tune)
    ours = step(operator, values)
    eager = {f.__name__: step(f, values) for f in row.theirs}
    compiled = {f.__name__: step(torch.compile(f, dynamic=False), values) for f in row.theirs}
    wanted = next(iter(eager.values()))()
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours(), wanted, strict=True))
    runs = {("ours", ""): ours, **{("eager", n): f for n, f in eager.items()}}
    runs.update({("compiled", n): f for n, f in compiled.items()})
    times: dict[tuple[str, str], list[float]] = {k: [] for k in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for k, run in runs.items():
            times[k].append(block(run))
    medians = {k: statistics.median(t) for k, t in times.items()}
    best = min((k for k in medians if k[0] != "ours"), key=lambda k: medians[k])
    fastest = {kind: min(t for k, t in medians.items() if k[0] == kind) for kind in ("eager", "compiled")}
    return Measured(row.name, medians["ours", ""], fastest["eager"], fastest["compiled"], best[1], error)


def table(found: Sequence[Measured]) -> list[str]:
    lines = [
        "| operator | neoflow | eager | torch.compile | ratio | fastest form | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for m in found:
        times = " | ".join(f"{t * 1e3:.3f} ms" for t in (m.ours, m.eager, m.compiled))
        lines.append(f"| {m.name} | {times} | {m.ratio:.2f} | {m.form} | {m.error:.1e} |")
    mean = math.exp(statistics.fmean(math.log(m.ratio) for m in found))
    return [*lines, "", f"Geometric mean of the ratios {mean:.2f}; at least {WANTED:g} is wanted."]


# ---------------------------------------------------------------------------------------------- what a call costs


def calls(rounds: int) -> list[str]:
    """Microseconds of a call beside an empty operator that allocates its result: the least of so many rounds, since
    what else runs only adds."""
    empty = torch.library.custom_op(
        "benchmarks::empty", _empty, mutates_args=(), schema="(Tensor x, Tensor w) -> Tensor"
    )
    empty.register_fake(_empty)
    empty.register_autograd(
        lambda ctx, g: empty_backward(*ctx.saved_tensors, g),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    empty_backward = torch.library.custom_op(
        "benchmarks::empty_backward",
        lambda x, w, g: (torch.empty(8, 8), torch.empty(8, 8)),
        mutates_args=(),
        schema="(Tensor x, Tensor w, Tensor g) -> (Tensor, Tensor)",
    )
    product = nf.torch.operator(lambda x, w: x * w, name="product")
    lines = ["| 8 x 8 | empty operator | neoflow | more |", "|---|---|---|---|"]
    for what, needs_grad in (("without gradients", False), ("with gradients, forward", True), ("and backward", True)):
        x, w = torch.ones(8, 8, requires_grad=needs_grad), torch.ones(8, 8, requires_grad=needs_grad)
        both = [_call(f, x, w, what == "and backward") for f in (empty, product)]
        for run in both:
            run()
        least = [min(times) for times in zip(*([block(run) for run in both] for _ in range(rounds)), strict=True)]
        lines.append(
            f"| {what} | {least[0] * 1e6:.1f} us | {least[1] * 1e6:.1f} us | {(least[1] - least[0]) * 1e6:.1f} us |"
        )
    return [*lines, "", f"At most {MICROSECONDS:g} us more are wanted for the value."]


def _empty(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.empty(8, 8)


def _call(
    f: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor, with_backward: bool
) -> Callable[[], object]:
    cotangent = torch.ones(8, 8)
    if with_backward:
        return lambda: torch.autograd.grad(f(x, w), (x, w), cotangent)
    return lambda: f(x, w)


def enter_expert() -> None:
    """This command again, in PyTorch's expert setting."""
    contender = next(c for c in PEERS if c.expert)
    library = build_expert(Path(tempfile.mkdtemp()))
    if isinstance(library, str):
        raise SystemExit(library)
    found = environment(contender, Path(tempfile.mkdtemp()), library)
    os.execve(
        sys.executable, [sys.executable, "-m", "benchmarks.torch_operator", *sys.argv[1:]], {**found, INSIDE: "1"}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--tune", type=float, default=None, help="seconds of search for each program")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--expert", action="store_true", help="in PyTorch's expert setting")
    parser.add_argument("--small", action="store_true", help="tiny sizes: whether it works")
    parser.add_argument("--calls", action="store_true", help="what a call costs, and no more")
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args(arguments)
    if options.expert and INSIDE not in os.environ:
        enter_expert()
    if options.calls:
        section, title, lines = "torch-calls", "A call of an operator inside PyTorch", calls(options.rounds)
    else:
        rows = [r for r in ROWS if re.search(options.only, r.name)]
        found = []
        for r in rows:
            found.append(measure(r, options.rounds, options.tune, options.small))
            print(f"{r.name}: {found[-1].ratio:.2f}", file=sys.stderr, flush=True)
        lines = table(found)
        section, title = "torch-operator", "Operators inside PyTorch"
    print("\n".join(lines))
    if options.write:
        flags = "".join(f" --{n}" for n in ("expert", "small") if getattr(options, n))
        tuned = f" --tune {options.tune:g}" if options.tune else ""
        how = f"{processor()}, PyTorch {torch.__version__}; `python -m benchmarks.torch_operator{tuned}{flags}`"
        write(section, title, how, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Default schedules against PyTorch eager, kernel by kernel, in one run.

    python -m benchmarks.kernels [--rounds 5] [--only NAME] [--write]

Each round times neoflow and PyTorch in turn (a block of calls each); the ratio is the median over the rounds of their
time over ours, so above 1 neoflow is faster. `floor` is the time of the work at this machine's measured peak or
bandwidth, whichever is longer. `--write` puts the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import neoflow as nf
from benchmarks.results import write
from benchmarks.timing import aligned, block, error_of
from neoflow.expr.count import count_ops
from neoflow.nn import functional as F
from neoflow.report.machine import Machine, examine

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """What is computed: roots over inputs, the same in PyTorch, and the ratio the default schedule must reach."""

    name: str
    roots: list[nf.Tensor]
    inputs: list[nf.Tensor]
    peer: Callable[..., object]
    target: float


def tensor(*shape: int, name: str = "") -> nf.Tensor:
    return nf.placeholder(shape, name=name)


def matmul(name: str, m: int, n: int, k: int, left: str, right: str, target: float) -> Case:
    """left: "mk" or "km"; right: "kn" or "nk"."""
    sizes = {"m": m, "n": n, "k": k}
    a = tensor(*(sizes[c] for c in left), name="a")
    b = tensor(*(sizes[c] for c in right), name="b")
    y = nf.expr(f"y[m,n] = sum(a[{','.join(left)}] * b[{','.join(right)}])", a=a, b=b)

    def peer(a: torch.Tensor, b: torch.Tensor) -> object:
        return (a if left == "mk" else a.t()) @ (b if right == "kn" else b.t())

    return Case(name, [y], [a, b], peer, target)


def capsule(batch: int) -> Case:
    x, w, g = tensor(batch, 32, 20, 20, 4, 4), tensor(32, 32, 9, 9, 4, 4), tensor(batch, 32, 6, 6, 4, 4)
    y = F.capsule_conv(x, w, stride=2)

    def peer(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> object:
        x, w = x.requires_grad_(), w.requires_grad_()
        planes = x.permute(0, 4, 1, 5, 2, 3).reshape(batch * 4, 32 * 4, 20, 20)
        kernel = w.permute(0, 5, 1, 4, 2, 3).reshape(32 * 4, 32 * 4, 9, 9)
        y = torch.nn.functional.conv2d(planes, kernel, stride=2).reshape(batch, 4, 32, 4, 6, 6)
        return torch.autograd.grad(y.permute(0, 2, 4, 5, 1, 3), (x, w), g)

    return Case(f"capsule convolution b{batch}, y dx dw", [y, *nf.vjp(y, [x, w], g)], [x, w, g], peer, 0.8)


def convolution(part: str, groups: int = 1) -> Case:
    batch, c, size = 16, 64, 56
    x, w, g = tensor(batch, c, size, size), tensor(c, c // groups, 3, 3), tensor(batch, c, size, size)
    y = F.depthwise_conv2d(x, w, padding=1) if groups == c else F.conv2d(x, w, padding=1)
    name = ("depthwise" if groups == c else "conv") + f" 3x3 {c} {size}x{size} b{batch}, {part}"
    conv = torch.nn.functional.conv2d
    if part == "y":
        return Case(name, [y], [x, w], lambda x, w: conv(x, w, padding=1, groups=groups), 1.0 if groups > 1 else 0.5)
    if part == "dx":
        roots, inputs = nf.vjp(y, [x], g), [w, g]

        def dx(w: torch.Tensor, g: torch.Tensor) -> object:
            return torch.nn.grad.conv2d_input((batch, c, size, size), w, g, padding=1, groups=groups)

        return Case(name, roots, inputs, dx, 1.0 if groups > 1 else 0.5)

    def dw(x: torch.Tensor, g: torch.Tensor) -> object:
        return torch.nn.grad.conv2d_weight(x, (c, c // groups, 3, 3), g, padding=1, groups=groups)

    return Case(name, nf.vjp(y, [w], g), [x, g], dw, 1.0 if groups > 1 else 0.5)


def rows(rows: int, width: int) -> list[Case]:
    x, g, b = tensor(rows, width, name="x"), tensor(width, name="g"), tensor(width, name="b")
    norm = torch.nn.functional.layer_norm
    return [
        Case(f"softmax {rows}x{width}", [F.softmax(x)], [x], lambda x: torch.softmax(x, 1), 1.2),
        Case(
            f"layer norm {rows}x{width}",
            [F.layer_norm(x, g, b)],
            [x, g, b],
            lambda x, g, b: norm(x, (width,), g, b),
            1.2,
        ),
        Case(f"gelu(x*g+b) {rows}x{width}", [F.gelu(x * g + b)], [x, g, b], _gelu, 1.2),
        Case(f"tanh(x)*sigmoid(x)+x {rows}x{width}", [nf.tanh(x) * nf.sigmoid(x) + x], [x], _gate, 1.2),
    ]


def _gelu(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> object:
    return torch.nn.functional.gelu(x * g + b)


def _gate(x: torch.Tensor) -> object:
    return torch.tanh(x) * torch.sigmoid(x) + x


def cases() -> list[Case]:
    return [
        matmul("matmul 1024", 1024, 1024, 1024, "mk", "kn", 1.4),
        matmul("matmul 64x512x2048", 64, 2048, 512, "mk", "kn", 1.0),
        matmul("matmul 64x512x2048 A^T B", 64, 2048, 512, "km", "kn", 1.0),
        matmul("matmul 64x512x2048 A B^T", 64, 2048, 512, "mk", "nk", 1.0),
        capsule(1),
        capsule(16),
        *(convolution(part) for part in ("y", "dx", "dw")),
        *(convolution(part, 64) for part in ("y", "dx", "dw")),
        *rows(2048, 768),
        *rows(64, 512),
    ]


def measure(case: Case, rounds: int) -> tuple[float, float, float, float]:
    """(seconds of neoflow, of PyTorch, median ratio, largest relative difference of the results)."""
    function = nf.compile(case.roots, case.inputs)
    arrays = [RNG.standard_normal(t.shape).astype(np.float32) for t in case.inputs]
    held, given = [torch.from_numpy(a.copy()) for a in arrays], [aligned(a) for a in arrays]
    found, wanted = function(*given), case.peer(*held)
    outputs = list(wanted) if isinstance(wanted, tuple) else [wanted]
    error = error_of(found[-len(outputs) :], outputs)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(block(lambda: function(*given)))
        theirs.append(block(lambda: case.peer(*held)))
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    return statistics.median(ours), statistics.median(theirs), ratio, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    machine = examine()
    peak, bandwidth = (machine.fma_gflops or 1) * 1e9, (machine.cache_gb_s or 1) * 1e9
    lines = [
        "| kernel | neoflow ms | floor ms | GFLOP/s | GB/s | PyTorch ms | ratio | wanted | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    print("\n".join(lines))
    for case in cases():
        if options.only not in case.name:
            continue
        work = count_ops(case.roots)
        ours, theirs, ratio, error = measure(case, options.rounds)
        least = sum(t.nbytes for t in case.inputs) + sum(t.nbytes for t in case.roots)
        floor = max(work.flops / peak, least / bandwidth)
        mark = ("reached" if ratio >= case.target else "missed") + ("" if error < 1e-3 else f", differs by {error:.1e}")
        line = (
            f"| {case.name} | {ours * 1e3:.3f} | {floor * 1e3:.3f} | {work.flops / ours / 1e9:.0f} | "
            f"{least / ours / 1e9:.0f} | {theirs * 1e3:.3f} | {ratio:.2f} | {case.target} | {mark} |"
        )
        lines.append(line)
        print(line, flush=True)
    if options.write:
        publish(lines, machine)


def publish(lines: list[str], machine: Machine) -> None:
    """Replace the section of this benchmark in RESULTS.md."""
    title = f"Kernels, default schedules, against PyTorch {torch.__version__} eager as installed"
    how = (
        f"{machine.processor}, {torch.get_num_threads()} threads, measured peak {machine.fma_gflops:.0f} GFLOP/s, "
        f"{machine.cache_gb_s:.0f} GB/s in cache; `python -m benchmarks.kernels --write`"
    )
    write("kernels", title, how, lines)


if __name__ == "__main__":
    main()

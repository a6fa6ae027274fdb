"""Operators with parts that depend on less than the whole, and with indices from data, beside PyTorch.

    python -m benchmarks.gallery.indexed [--rounds 7] [--count] [--write]

Each line: operations of the value and of value and gradients, as written and after the passes over the graph; then, but
with `--count`, the times of `benchmarks.gallery` (ratios above 1: neoflow is faster) and the largest relative error.
`--write` puts the times into RESULTS.md.
"""

from __future__ import annotations

import argparse

import torch

import neoflow as nf
from benchmarks.gallery.__main__ import Case, make_case, measure
from benchmarks.gallery.operators import Operator, Tensors, rotary_embedding
from benchmarks.gallery.operators import _rotary_embedding as rotary_peer
from benchmarks.results import write
from neoflow.expr.count import count_ops
from neoflow.graph import make_graph, optimize
from neoflow.machine import processor


def tensor_product(b: int = 256, p: int = 9, c: int = 32, o: int = 32, t: int = 51) -> tuple[nf.Tensor, Tensors]:
    """Paths of a product of irreducible representations: component left[t] of x by z, through a weight a path."""
    x, z, w = (nf.placeholder(s, name=n) for n, s in (("x", (b, p, c)), ("z", (b, t)), ("w", (t, c, o))))
    left = nf.placeholder((t,), "int64", name="left")
    y = nf.expr("y[b,o] = sum[t,c](x[b,left[t],c] * z[b,t] * w[t,c,o])", x=x, z=z, w=w, left=left)
    return y, (x, z, w, left)


def tensor_product_peer(x: torch.Tensor, z: torch.Tensor, w: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
    return torch.einsum("btc,bt,tco->bo", x[:, left], z, w)


def _sampled(x: nf.Tensor, offset: nf.Tensor):
    """The bilinear samples of x at offsets from a tap's place, clamped to the border, as an expression of indices."""
    h, w = x.shape[2:]

    def sample(n: nf.Tensor, channel: nf.Tensor, tap: nf.Tensor, p: nf.Tensor, q: nf.Tensor):
        row = offset[n, 0, tap, p, q] + nf.cast(p + tap // 3 - 1, "float32")
        column = offset[n, 1, tap, p, q] + nf.cast(q + tap % 3 - 1, "float32")
        top, left = nf.floor(row), nf.floor(column)

        def element(down: int, right: int):
            i = nf.minimum(nf.maximum(nf.cast(top, "int64") + down, 0), h - 1)
            j = nf.minimum(nf.maximum(nf.cast(left, "int64") + right, 0), w - 1)
            return x[n, channel, i, j]

        below, after = row - top, column - left
        upper = (1.0 - after) * element(0, 0) + after * element(0, 1)
        lower = (1.0 - after) * element(1, 0) + after * element(1, 1)
        return (1.0 - below) * upper + below * lower

    return sample


def _deformable_inputs(b: int, c: int, o: int, h: int, w: int) -> Tensors:
    shapes = {"x": (b, c, h, w), "offset": (b, 2, 9, h, w), "kernel": (o, c, 9)}
    return tuple(nf.placeholder(shape, name=name) for name, shape in shapes.items())


def deformable_convolution(b: int = 4, c: int = 32, o: int = 32, h: int = 28, w: int = 28) -> tuple[nf.Tensor, Tensors]:
    """A 3x3 convolution whose taps are bilinear samples at learned offsets, clamped to the border; as one body."""
    x, offset, kernel = _deformable_inputs(b, c, o, h, w)
    sample, channel, tap = _sampled(x, offset), nf.axis(c, "c"), nf.axis(9, "k")
    y = nf.compute(
        (b, o, h, w), lambda n, f, p, q: nf.sum(sample(n, channel, tap, p, q) * kernel[f, channel, tap], [channel, tap])
    )
    return y, (x, offset, kernel)


def deformable_in_two(b: int = 4, c: int = 32, o: int = 32, h: int = 28, w: int = 28) -> tuple[nf.Tensor, Tensors]:
    """The same, its samples a tensor of their own, so that its gradients are sums of sums."""
    x, offset, kernel = _deformable_inputs(b, c, o, h, w)
    samples = nf.compute((b, c, 9, h, w), _sampled(x, offset))
    y = nf.expr("y[n,f,p,q] = sum(s[n,c,k,p,q] * w[f,c,k])", s=samples, w=kernel)
    return y, (x, offset, kernel)


def deformable_peer(x: torch.Tensor, offset: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    b, c, h, w = x.shape
    tap = torch.arange(9)
    row = offset[:, 0] + (torch.arange(h)[:, None] + (tap // 3 - 1)[:, None, None])
    column = offset[:, 1] + (torch.arange(w)[None, :] + (tap % 3 - 1)[:, None, None])
    top, left = row.floor(), column.floor()
    below, after = (row - top)[:, None], (column - left)[:, None]
    flat = x.flatten(2)

    def element(down: int, right: int) -> torch.Tensor:
        i, j = (top.long() + down).clamp(0, h - 1), (left.long() + right).clamp(0, w - 1)
        at = (i * w + j).flatten(1)[:, None].expand(b, c, -1)
        return flat.gather(2, at).view(b, c, 9, h, w)

    upper = (1 - after) * element(0, 0) + after * element(0, 1)
    lower = (1 - after) * element(1, 0) + after * element(1, 1)
    return torch.einsum("bckpq,ock->bopq", (1 - below) * upper + below * lower, kernel)


OPERATORS = (
    Operator("rotary embedding", "Su et al., RoFormer, 2021", rotary_embedding, rotary_peer,
             {"b": 5, "t": 8, "h": 8, "d": 16}),
    Operator("tensor product", "Thomas et al., Tensor field networks, 2018", tensor_product, tensor_product_peer,
             {"b": 5, "p": 3, "c": 7, "o": 9, "t": 5}, {"left": "p"}),
    Operator("deformable convolution", "Dai et al., Deformable convolutional networks, 2017", deformable_convolution,
             deformable_peer, {"b": 2, "c": 5, "o": 8, "h": 5, "w": 6}),
    Operator("deformable convolution in two steps", "the same", deformable_in_two, deformable_peer,
             {"b": 2, "c": 5, "o": 8, "h": 5, "w": 6}),
)  # fmt: skip


def operations(case: Case, roots: int) -> tuple[int, int]:
    """Of the first `roots` results: as written, and after the passes."""
    graph = make_graph(case.roots[:roots], case.inputs)
    return count_ops(list(graph.outputs)).flops, count_ops(list(optimize(graph).outputs)).flops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", action="store_true", help="operations alone")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [
        "| operator, value and gradients | neoflow ms | PyTorch ms | PyTorch / neoflow | error |",
        "|---|--:|--:|--:|--:|",
    ]
    for operator in OPERATORS:
        case = make_case(operator)
        for what, roots in (("value", 1), ("value and gradients", len(case.roots))):
            before, after = operations(case, roots)
            print(f"{operator.name}, {what}: {before / 1e6:.1f} -> {after / 1e6:.1f} million operations", flush=True)
        if not options.count:
            lines.append(measure(operator, options.rounds, compiled=False))
            print(lines[-1], flush=True)
    if options.write:
        how = f"{processor()}, PyTorch {torch.__version__} as installed; `python -m benchmarks.gallery.indexed --write`"
        write("indexed", "Operators with parts that depend on less, and with indices from data", how, lines)


if __name__ == "__main__":
    main()

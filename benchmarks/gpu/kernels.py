"""Piece b: kernels beside PyTorch's, and as shares of the measured ceilings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import neoflow as nf
from benchmarks.gpu import theirs
from benchmarks.gpu.forms import matmul
from benchmarks.gpu.ours import Resident, by_template, compiled
from benchmarks.gpu.rows import Figures, Outcome, Setting, Task
from neoflow.devices import gpu
from neoflow.expr import dtype as dt
from neoflow.expr.count import count_ops
from neoflow.nn import functional as F
from neoflow.report.gpu import measure_gpu

CEILINGS = "b/ceilings"
BANDWIDTH = "copy"
ARITHMETIC = {
    "float32": "float32 multiply-adds",
    "float16": "float16 tensor cores",
    "bfloat16": "bfloat16 tensor cores",
}
OF_COPY = 0.85
"""Of the copy bandwidth, to reach in the end by what memory bounds."""
OF_CUBLAS = {"float32": 0.9, "float16": 0.7, "bfloat16": 0.7}
OF_CAPSULES = {"float32": 2.0, "float16": 2.31}
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Of the largest entry, between ours and PyTorch's."""

Build = Callable[..., Sequence[nf.Tensor]]
Peer = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """build: roots over placeholders of the shapes. peers: by name, of PyTorch's module what takes the same tensors.

    ceiling: by name. goal: to reach in the end, of the time of the best peer over ours, or, where memory bounds it, of
    the ceiling. ids: an input of integers below this comes last. template: by which its kernels are, where it fits.
    """

    name: str
    build: Build
    shapes: tuple[tuple[int, ...], ...]
    dry: tuple[tuple[int, ...], ...]
    peers: dict[str, Peer]
    ceiling: str
    goal: float
    dtype: str = "float32"
    ids: int = 0
    template: str = ""

    @property
    def is_of_peer(self) -> bool:
        return self.ceiling != BANDWIDTH

    def program(self, dry: bool) -> tuple[list[nf.Tensor], list[nf.Tensor], list[np.ndarray]]:
        """Roots, inputs, and arrays for these."""
        inputs = [nf.placeholder(s, self.dtype) for s in (self.dry if dry else self.shapes)]
        if self.ids:
            inputs.append(nf.placeholder(inputs[0].shape[:1], "int64"))
        rng = np.random.default_rng(0)
        return list(self.build(*inputs)), inputs, [drawn(t, rng, self.ids) for t in inputs]


def matmul_case(n: int, dtype: str, template: str = "") -> Case:
    peers: dict[str, Peer] = {"cuBLAS": lambda torch: torch.matmul}
    shapes, dry = ((n, n), (n, n)), ((16, 16), (16, 16))
    name = f"matmul {n} {dtype}" + f" by {template}" * bool(template)
    given = (peers, ARITHMETIC[dtype], OF_CUBLAS[dtype], dtype)
    return Case(name, matmul, shapes, dry, *given, template=template)


def capsule_forms(torch: Any, how: str) -> Callable[..., Any]:
    """The capsule convolution, stride 2, in a form of PyTorch: [B,C,H,W,I,K], [O,C,R,S,K,J] -> [B,O,P,Q,I,J]."""

    def plain(x: Any, w: Any) -> Any:
        """One convolution of (b, i) images with (k, c) channels."""
        b, c, height, width, i, k = x.shape
        o, _, r, s, _, j = w.shape
        images = x.permute(0, 4, 5, 1, 2, 3).reshape(b * i, k * c, height, width)
        kernel = w.permute(5, 0, 4, 1, 2, 3).reshape(j * o, k * c, r, s)
        if how == "channels last":
            images = images.contiguous(memory_format=torch.channels_last)
            kernel = kernel.contiguous(memory_format=torch.channels_last)
        y = torch.nn.functional.conv2d(images, kernel, stride=2)
        return y.reshape(b, i, j, o, *y.shape[2:]).permute(0, 3, 4, 5, 1, 2)

    def windows(x: Any, w: Any) -> Any:
        """All windows, then one product."""
        r, s = w.shape[2:4]
        seen = x.unfold(2, r, 2).unfold(3, s, 2)  # [B, C, P, Q, I, K, R, S]
        return torch.einsum("bcpqikrs,ocrskj->bopqij", seen, w)

    return windows if how == "windows" else plain


def capsule_case(batch: int, part: str, dtype: str) -> Case:
    """part: "y", the convolution; "dx dw", its gradients."""
    x, w, g = (batch, 32, 20, 20, 4, 4), (32, 32, 9, 9, 4, 4), (batch, 32, 6, 6, 4, 4)
    dry = ((1, 2, 5, 5, 2, 2), (3, 2, 3, 3, 2, 2), (1, 3, 2, 2, 2, 2))

    def convolved(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
        c, r, s, k = (nf.axis(w.shape[d], n) for d, n in ((1, "c"), (2, "r"), (3, "s"), (4, "k")))
        places = ((size - w.shape[2]) // 2 + 1 for size in x.shape[2:4])

        def product(b: Any, o: Any, p: Any, q: Any, i: Any, j: Any) -> Any:
            left, right = x[b, c, 2 * p + r, 2 * q + s, i, k], w[o, c, r, s, k, j]
            return nf.sum(nf.cast(left, "float32") * nf.cast(right, "float32"), axis=[c, r, s, k])

        return nf.compute((x.shape[0], w.shape[0], *places, x.shape[4], w.shape[5]), product, name="y")

    def build(x: nf.Tensor, w: nf.Tensor, *g: nf.Tensor) -> list[nf.Tensor]:
        y = convolved(x, w)
        found = nf.vjp(y, [x, w], nf.cast(g[0], "float32")) if g else [y]
        return [nf.cast(t, dtype) for t in found]

    def peer(how: str) -> Peer:
        def of(torch: Any) -> Any:
            forward = capsule_forms(torch, how)

            def gradients(x: Any, w: Any, g: Any) -> Any:
                x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
                return torch.autograd.grad(forward(x, w), (x, w), g)

            return gradients if part == "dx dw" else forward

        return of

    peers = {how: peer(how) for how in ("convolution", "channels last", "windows")}
    shapes = (x, w, g) if part == "dx dw" else (x, w)
    name = f"capsule convolution b{batch} {part} {dtype}"
    small = dry if part == "dx dw" else dry[:2]
    return Case(name, build, shapes, small, peers, ARITHMETIC[dtype], OF_CAPSULES[dtype], dtype)


def bandwidth(name: str, build: Build, peer: Peer, *shapes: tuple[int, ...], ids: int = 0) -> Case:
    """A kernel that memory bounds."""
    dry = tuple((5, 32) if len(s) == 2 else (32,) for s in shapes)
    sizes = "x".join(map(str, shapes[0]))
    return Case(f"{name} {sizes}", build, shapes, dry, {"eager": peer}, BANDWIDTH, OF_COPY, ids=ids)


def embedding_gradient(g: nf.Tensor, ids: nf.Tensor) -> list[nf.Tensor]:
    table = nf.parameter((IDS, g.shape[1]), name="table", init=0.0)
    return nf.vjp(F.embedding(table, ids), [table], g)


def torch_embedding_gradient(torch: Any) -> Callable[..., Any]:
    return lambda g, ids: torch.zeros((IDS, g.shape[1]), device=g.device).index_add_(0, ids, g)


IDS = 10000
LONG, WIDE, ROW = 1 << 26, (1 << 16, 1024), (1024,)
CASES = (
    *(matmul_case(n, "float32") for n in (1024, 2048, 4096)),
    *(matmul_case(4096, dtype, how) for dtype in ("float16", "bfloat16") for how in ("", "gpu_wgmma")),
    *(capsule_case(b, part, "float32") for b in (16, 64) for part in ("y", "dx dw")),
    *(capsule_case(64, part, "float16") for part in ("y", "dx dw")),
    bandwidth("softmax", lambda x: [F.softmax(x)], lambda t: lambda x: t.softmax(x, 1), WIDE),
    bandwidth(
        "layer norm",
        lambda x, g, b: [F.layer_norm(x, g, b)],
        lambda t: lambda x, g, b: t.nn.functional.layer_norm(x, g.shape, g, b),
        WIDE,
        ROW,
        ROW,
    ),
    bandwidth(
        "gelu(x*g+b)",
        lambda x, g, b: [F.gelu(x * g + b)],
        lambda t: lambda x, g, b: t.nn.functional.gelu(x * g + b),
        WIDE,
        ROW,
        ROW,
    ),
    bandwidth("x*2+1", lambda x: [x * 2.0 + 1.0], lambda t: lambda x: x * 2.0 + 1.0, (LONG,)),
    bandwidth(
        "tanh(x)*sigmoid(x)+x",
        lambda x: [nf.tanh(x) * nf.sigmoid(x) + x],
        lambda t: lambda x: t.tanh(x) * t.sigmoid(x) + x,
        (LONG,),
    ),
    bandwidth("sum of all", lambda x: [nf.sum(x)], lambda t: lambda x: x.sum(), (LONG,)),
    bandwidth("sum of rows", lambda x: [nf.sum(x, axis=1)], lambda t: lambda x: x.sum(1), WIDE),
    bandwidth("sum of columns", lambda x: [nf.sum(x, axis=0)], lambda t: lambda x: x.sum(0), WIDE),
    bandwidth("embedding gradient", embedding_gradient, torch_embedding_gradient, (1 << 17, 512), ids=IDS),
)


def drawn(t: nf.Tensor, rng: np.random.Generator, ids: int) -> np.ndarray:
    """Normal values around 0.5, whose sums are far from 0; integers below `ids`."""
    if dt.is_float(t.dtype):
        return (rng.standard_normal(t.shape, np.float32) + np.float32(0.5)).astype(dt.NUMPY[t.dtype])
    return rng.integers(0, ids, t.shape)


def measure(case: Case, setting: Setting) -> Outcome:
    """Seconds of ours and of each peer, the work, the largest difference from the first peer."""
    roots, inputs, arrays = case.program(setting.dry)
    program = Resident(by_template(compiled(roots, inputs), case.template), arrays)
    program.run()
    found = program.results()
    figures = {
        "seconds": program.seconds(setting),
        "operations": float(count_ops(roots).flops),
        "bytes": float(sum(t.nbytes for t in (*inputs, *roots))),
    }
    try:
        torch = theirs.torch()
    except theirs.Absent as absent:
        return Outcome(figures, str(absent))
    said = []
    given = given_to_peers(arrays)
    for name, peer in case.peers.items():
        call = peer(torch)
        try:
            wanted = call(*given)
            if "error" not in figures:
                said += compared(case, found, wanted if isinstance(wanted, (tuple, list)) else [wanted], figures)
            figures[f"{name} seconds"] = theirs.seconds_of(theirs.captured(partial(call, *given)), setting)
        except RuntimeError as error:  # what PyTorch cannot do is no reason to lose the row
            said.append(f"no {name}: {str(error).splitlines()[0]}")
    return Outcome(figures, "; ".join(said))


def given_to_peers(arrays: Sequence[np.ndarray]) -> list[Any]:
    """The arrays as tensors of PyTorch, which takes no bfloat16 of NumPy's."""
    is_narrow = [a.dtype == dt.NUMPY["bfloat16"] for a in arrays]
    tensors = [theirs.tensor(a.astype(np.float32) if n else a) for a, n in zip(arrays, is_narrow, strict=True)]
    return [t.bfloat16() if n else t for t, n in zip(tensors, is_narrow, strict=True)]


def compared(case: Case, found: Sequence[np.ndarray], wanted: Sequence[Any], figures: Figures) -> list[str]:
    """The largest difference, by the largest entry, goes to the figures; a sentence where it is too large."""
    pairs = [(a.astype(np.float64), b.detach().double().cpu().numpy()) for a, b in zip(found, wanted, strict=True)]
    error = max(float(np.max(np.abs(a - b))) / max(float(np.max(np.abs(b))), 1e-30) for a, b in pairs)
    figures["error"] = error
    return [] if error <= TOLERANCE[case.dtype] else ["WRONG: differs from PyTorch"]


def ceilings(setting: Setting) -> Outcome:
    """What this GPU reaches."""
    if setting.dry:
        return Outcome(dict.fromkeys((BANDWIDTH, *ARITHMETIC.values()), 1e12), "made up, as all of a dry run")
    return Outcome(measure_gpu(gpu()))


TASKS = (Task(CEILINGS, ceilings), *(Task(f"b/{case.name}", partial(measure, case)) for case in CASES))

"""The forms in PyTorch, as its users write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.rows.cases import Row

NAME = "torch"
Run = Callable[[], Sequence[Tensor]]


def _matmul(a: Tensor, b: Tensor, left: str, right: str) -> Tensor:
    return (a if left == "mk" else a.t()) @ (b if right == "kn" else b.t())


def _capsule(x: Tensor, w: Tensor) -> Tensor:
    """As one convolution of b i images with c k channels."""
    b, c, height, width, i, k = x.shape
    o, _, r, s, _, j = w.shape
    planes = x.permute(0, 4, 1, 5, 2, 3).reshape(b * i, c * k, height, width)
    y = F.conv2d(planes, w.permute(0, 5, 1, 4, 2, 3).reshape(o * j, c * k, r, s), stride=2)
    return y.reshape(b, i, o, j, *y.shape[2:]).permute(0, 2, 4, 5, 1, 3)


def _lstm(x: Tensor, h: Tensor, c: Tensor, wx: Tensor, wh: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return _gates(F.linear(x, wx, bias) + F.linear(h, wh), c, "ifgo")


def _mi_lstm(
    x: Tensor, h: Tensor, c: Tensor, wx: Tensor, wh: Tensor, bx: Tensor, bh: Tensor, *scales: Tensor
) -> tuple[Tensor, ...]:
    alpha, one, two = scales
    u, g = F.linear(x, wx, bx), F.linear(h, wh, bh)
    return _gates(alpha * u * g + one * u + two * g, c, "ifog")


def _gates(pre: Tensor, c: Tensor, order: str) -> tuple[Tensor, ...]:
    at = dict(zip(order, pre.chunk(4, dim=1), strict=True))
    new = torch.sigmoid(at["f"]) * c + torch.sigmoid(at["i"]) * torch.tanh(at["g"])
    return torch.sigmoid(at["o"]) * torch.tanh(new), new


FORMS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "batched": torch.bmm,
    "convolution": F.conv2d,
    "capsule": _capsule,
    "capsules_by_convolutions": lambda x, w: torch.stack([F.conv2d(x, v, stride=2) for v in w], 1),
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x, g, b: F.layer_norm(x, g.shape, g, b),
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "batch_norm": lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "lstm": _lstm,
    "mi_lstm": _mi_lstm,
    "embedding": lambda table, ids: F.embedding(ids, table),
}


def prepared(row: Row, arrays: Sequence[np.ndarray], is_compiled: bool = False) -> Run:
    """What a call computes. Gradients alone: of a graph that is made once, as its value is no part of the row."""
    tensors = [torch.from_numpy(a) for a in arrays]
    given, cotangents = tensors[: len(row.shapes)], tensors[len(row.shapes) :]
    wrt = [given[n].requires_grad_() for n in row.wrt]
    form = FORMS[row.form]
    if is_compiled:
        torch._dynamo.reset()  # of the rows before
        torch._functorch.config.donated_buffer = row.with_value  # or it does not let a graph be gone through again
        form = torch.compile(form)

    def values() -> tuple[Tensor, ...]:
        made = form(*given, **row.options)
        return made if isinstance(made, tuple) else (made,)

    if not wrt:
        return values
    if not row.with_value:
        made = values()
        return lambda: torch.autograd.grad(made, wrt, cotangents, retain_graph=True)

    def both() -> Sequence[Tensor]:
        found = values()
        return (*found, *torch.autograd.grad(found, wrt, cotangents))

    return both

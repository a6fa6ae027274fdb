"""The language model of `models/ptb_lstm.py` in PyTorch, unrolled in eager mode as one writes an LSTM by hand.

Every size follows from the shapes of the parameters, whose names are those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Arrays = Mapping[str, NDArray[np.float32]]

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def layer(xs: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> list[Tensor]:
    """One layer over all steps: a list of [B, I] -> a list of [B, H]; gates in the order i, f, z, o."""
    h = c = xs[0].new_zeros(xs[0].shape[0], w_hh.shape[1])
    outputs = []
    for x in xs:
        i, f, z, o = (F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return outputs


def scores(p: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """Forward: word numbers [T, B] -> logits [T, B, V]."""
    outputs = list(F.embedding(ids, p["embedding"]).unbind(0))
    for n in range(sum(name.startswith("lstm.weight_ih") for name in p)):
        outputs = layer(outputs, *(p[f"lstm.{key}_l{n}"] for key in WEIGHTS))
    return F.linear(torch.stack(outputs), p["out_w"], p["out_b"])


class PtbLstm:
    """The network with its parameters on PyTorch's side; `step` trains them in place."""

    def __init__(self, parameters: Arrays) -> None:
        self.tensors = {n: torch.tensor(value, requires_grad=True) for n, value in parameters.items()}  # a copy

    def loss(self, x: NDArray[np.int64], labels: NDArray[np.int64]) -> Tensor:
        """Cross entropy, the mean over all words of [T, B]."""
        logits = scores(self.tensors, torch.from_numpy(x))
        return F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(labels).flatten())

    def loss_and_grads(
        self, x: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[float, dict[str, NDArray[np.float32]]]:
        """The loss and the gradient of every parameter, without an update."""
        loss = self.loss(x, labels)
        gradients = torch.autograd.grad(loss, list(self.tensors.values()))
        return loss.item(), {name: g.numpy() for name, g in zip(self.tensors, gradients, strict=True)}

    def step(self, x: NDArray[np.int64], labels: NDArray[np.int64], lr: float = 0.01) -> float:
        """One eager SGD step, `p -= lr * dp` in place; returns the loss before it."""
        tensors = list(self.tensors.values())
        loss = self.loss(x, labels)
        gradients = torch.autograd.grad(loss, tensors)
        with torch.no_grad():
            torch._foreach_add_(tensors, gradients, alpha=-lr)
        return loss.item()

    def infer(self, x: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits [T, B, V]."""
        with torch.inference_mode():
            return scores(self.tensors, torch.from_numpy(x)).numpy()


Peer = PtbLstm
"""The name `neoflow bench` looks for."""

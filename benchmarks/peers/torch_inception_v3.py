"""The Inception of `models/inception_v3.py` in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import ConvNet


class Inception(ConvNet):
    eps = 1e-3
    training = True

    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, 3, H, W] -> logits [B, classes]."""
        self.training = training
        y = self.unit(x, "0", 2, False)
        y = self.unit(self.unit(y, "1", is_padded=False), "2")
        y = self.unit(F.max_pool2d(y, 3, 2), "4")
        y = F.max_pool2d(self.unit(y, "5", is_padded=False), 3, 2)
        last = max(int(name.split(".")[1]) for name in self.tensors if name.startswith("body."))
        for n in range(7, last - 1):
            y = self.block(y, f"{n}.b")
        for n in (last - 1, last):
            y = self.forked(y, f"{n}.b")
        return self.classify(y)

    def unit(self, x: Tensor, name: str, stride: int = 1, is_padded: bool = True) -> Tensor:
        """Convolution, normalisation, relu."""
        return F.relu(self.conv(x, f"body.{name}", self.training, stride, is_padded), inplace=True)

    def block(self, x: Tensor, name: str) -> Tensor:
        """Branches side by side; with one that is pooled, or, where there is none, halving the image."""
        branches = sorted({n.split(".")[3] for n in self.tensors if n.startswith(f"body.{name}.")})
        is_halving = len(branches) == 2
        parts = [self.chain(x, f"{name}.{n}", is_halving) for n in branches[: 2 if is_halving else -1]]
        parts.append(F.max_pool2d(x, 3, 2) if is_halving else self.pooled(x, f"{name}.3"))
        return torch.cat(parts, dim=1)

    def chain(self, x: Tensor, name: str, is_halving: bool) -> Tensor:
        """One convolution after another, the last of stride 2 where the image is halved."""
        count = sum(f"body.{name}.{n}.0.weight" in self.tensors for n in range(5))
        names = [f"{name}.{n}" for n in range(count)] or [name]
        for inner in names[:-1]:
            x = self.unit(x, inner)
        return self.unit(x, names[-1], 2 if is_halving else 1, not is_halving)

    def pooled(self, x: Tensor, name: str) -> Tensor:
        return self.unit(F.avg_pool2d(x, 3, 1, 1), name)

    def forked(self, x: Tensor, name: str) -> Tensor:
        """Two of the branches end in a row and a column of 3, side by side."""
        first = self.unit(x, f"{name}.1.stem")
        second = self.unit(self.unit(x, f"{name}.2.stem.0"), f"{name}.2.stem.1")
        forks = [self.unit(y, f"{name}.{n}.{side}") for n, y in ((1, first), (2, second)) for side in "lr"]
        return torch.cat([self.unit(x, f"{name}.0"), *forks, self.pooled(x, f"{name}.3")], dim=1)


Peer = Inception
"""The name `neoflow bench` looks for."""

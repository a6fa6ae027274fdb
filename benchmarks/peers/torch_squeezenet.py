"""The SqueezeNet of `models/squeezenet.py` in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class SqueezeNet(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, 3, H, W] -> logits [B, classes]; a pooling stands where a number is left out."""
        fires = {int(name.split(".")[1]) for name in self.tensors if name.startswith("body.")}
        y = F.max_pool2d(F.relu(self.conv(x, "conv1", stride=2)), 3, 2)
        for n in range(1, max(fires) + 1):
            y = self.fire(y, f"body.{n}") if n in fires else F.max_pool2d(y, 3, 2)
        return F.relu(self.conv(y, "conv10")).mean((2, 3))

    def conv(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        """Of its own size with stride 1."""
        w, b = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return F.conv2d(x, w, b, stride, padding=w.shape[-1] // 2)

    def fire(self, x: Tensor, name: str) -> Tensor:
        """A 1x1 to few channels, a 3x3 and a 1x1 side by side, added to x or to a 1x1 of it."""
        s = F.relu(self.conv(x, f"{name}.squeeze"))
        y = F.relu(torch.cat([self.conv(s, f"{name}.e3"), self.conv(s, f"{name}.e1")], dim=1))
        return y + (F.relu(self.conv(x, f"{name}.bypass")) if f"{name}.bypass.weight" in self.tensors else x)


Peer = SqueezeNet
"""The name `neoflow bench` looks for."""

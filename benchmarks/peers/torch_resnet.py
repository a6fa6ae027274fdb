"""The residual networks of `models/resnet.py` in PyTorch: as deep and in as many groups as the parameters say."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_base import ConvNet


class ResNet(ConvNet):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, 3, H, W] -> logits [B, classes]."""
        y = F.max_pool2d(F.relu(self.conv(x, "stem.0", training, stride=2)), 3, 2, 1)
        for n in range(sum(name.startswith("blocks.") and name.endswith("body.0.0.weight") for name in self.tensors)):
            y = self.block(y, n, training)
        return self.classify(y)

    def block(self, x: Tensor, n: int, training: bool) -> Tensor:
        """Two 3x3 convolutions, or one between two of 1x1; a block that changes the size has the stride in its 3x3."""
        name = f"blocks.{n}"
        short, wide = f"{name}.short.0.weight" in self.tensors, f"{name}.body.2.0.weight" in self.tensors
        stride = 2 if short and n > 0 else 1
        y = x
        for k, s in enumerate((1, stride, 1) if wide else (stride, 1)):
            y = self.conv(F.relu(y) if k else y, f"{name}.body.{k}", training, s)
        return F.relu(y + (self.conv(x, f"{name}.short", training, stride) if short else x))


Peer = ResNet
"""The name `neoflow bench` looks for."""

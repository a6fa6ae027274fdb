"""The MobileNet of `models/mobilenet.py` in PyTorch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_base import ConvNet


class MobileNet(ConvNet):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, 3, H, W] -> logits [B, classes]."""
        for n in range(sum(name.startswith("body.") and name.endswith(".0.weight") for name in self.tensors)):
            x = F.relu(self.conv(x, f"body.{n}", training, self.stride(n)))
        return self.classify(x)

    def stride(self, n: int) -> int:
        """2 of the first, and of a depthwise one (but the first) where the 1x1 after it doubles the channels."""
        if n < 2 or n % 2 == 0:
            return 2 if n == 0 else 1
        outputs, inputs, *_ = self.tensors[f"body.{n + 1}.0.weight"].shape
        return outputs // inputs


Peer = MobileNet
"""The name `neoflow bench` looks for."""

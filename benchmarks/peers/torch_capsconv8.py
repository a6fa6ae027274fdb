"""The convolution of capsules of `models/capsconv8.py` in PyTorch: one convolution to all elements."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_base import Operator


class CapsConv8(Operator):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """[B, C, H, W] -> [B, O, P, Q, N]."""
        w = self.tensors["w"]
        y = F.conv2d(x, w.flatten(0, 1), stride=2).unflatten(1, w.shape[:2])
        return y.permute(0, 2, 3, 4, 1)


Peer = CapsConv8
"""The name `neoflow bench` looks for."""

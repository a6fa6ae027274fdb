"""The long-long-term memory of `models/lltm.py` in PyTorch, unrolled in eager mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class Lltm(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [T, B, I] -> logits [B, classes]; gates in the order i, o, z."""
        p = self.tensors
        h = c = x.new_zeros(x.shape[1], len(p["w"]) // 3)
        for step in x:
            i, o, z = F.linear(torch.cat([step, h], dim=1), p["w"], p["b"]).chunk(3, dim=1)
            c = c + F.elu(z) * torch.sigmoid(i)
            h = torch.tanh(c) * torch.sigmoid(o)
        return F.linear(h, p["out_w"], p["out_b"])


Peer = Lltm
"""The name `neoflow bench` looks for."""

"""The searched recurrent cell of `models/nasrnn.py` in PyTorch, unrolled in eager mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class NasRnn(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [T, B, I] -> logits [B, classes]."""
        p = self.tensors
        h = x.new_zeros(x.shape[1], p["wh"].shape[1])
        for step in x:
            t = (F.linear(step, p["wx"]) + F.linear(h, p["wh"])).chunk(8, dim=1)
            m0 = F.relu(t[0]) + torch.sigmoid(t[3])
            m1 = torch.sigmoid(t[1]) + torch.tanh(t[2])
            m2 = torch.sigmoid(t[4]) * torch.tanh(t[5])
            m3 = torch.sigmoid(t[6]) * F.relu(t[7])
            left = torch.tanh(torch.sigmoid(m1) + torch.tanh(m2))
            h = torch.tanh(left * torch.tanh(torch.tanh(m0) * torch.tanh(m3)))
        return F.linear(h, p["out_w"], p["out_b"])


Peer = NasRnn
"""The name `neoflow bench` looks for."""

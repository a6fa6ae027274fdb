"""The structurally constrained recurrent network of `models/scrnn.py` in PyTorch, unrolled in eager mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class Scrnn(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [T, B, I] -> logits [B, classes]."""
        p = self.tensors
        s, h = x.new_zeros(x.shape[1], len(p["b_w"])), x.new_zeros(x.shape[1], len(p["u_w"]))
        for step in x:
            s = 0.5 * F.linear(step, p["b_w"], p["b_b"]) + 0.5 * s
            a = torch.sigmoid(F.linear(torch.cat([s, step, h], dim=1), p["p_w"], p["p_b"]))
            h = F.linear(a, p["u_w"], p["u_b"]) + F.linear(s, p["v_w"], p["v_b"])
        return F.linear(h, p["out_w"], p["out_b"])


Peer = Scrnn
"""The name `neoflow bench` looks for."""

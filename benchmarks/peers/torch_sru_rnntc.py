"""The simple recurrent unit of `models/sru_rnntc.py` in PyTorch, unrolled in eager mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class SruRnntc(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [T, B, E] -> logits [B, classes]; the products of all steps are one, which the recurrence allows."""
        p = self.tensors
        u, f, r = F.linear(x, p["w0"]).chunk(3, dim=2)
        f, r = torch.sigmoid(f), torch.sigmoid(r)
        c = torch.zeros_like(x[0])
        for t in range(len(x)):
            c = f[t] * c + (1 - f[t]) * u[t]
        return F.linear(r[-1] * c + (1 - r[-1]) * x[-1], p["out_w"], p["out_b"])


Peer = SruRnntc
"""The name `neoflow bench` looks for."""

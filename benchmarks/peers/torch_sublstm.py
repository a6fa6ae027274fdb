"""The LSTM with gates that subtract of `models/sublstm.py` in PyTorch, unrolled in eager mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class SubLstm(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [T, B, I] -> logits [B, classes]; gates in the order i, f, z, o."""
        p = self.tensors
        h = c = x.new_zeros(x.shape[1], p["wh"].shape[1])
        for step in x:
            gates = torch.sigmoid(F.linear(step, p["wx"], p["bx"]) + F.linear(h, p["wh"], p["bh"]))
            i, f, z, o = gates.chunk(4, dim=1)
            c = f * c + z - i
            h = torch.sigmoid(c) - o
        return F.linear(h, p["out_w"], p["out_b"])


Peer = SubLstm
"""The name `neoflow bench` looks for."""

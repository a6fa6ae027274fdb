"""The LSTM with multiplicative integration of `models/mi_lstm.py` in PyTorch, unrolled in eager mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


class MiLstm(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [T, B, I] -> logits [B, classes], words [T, B] -> [T, B, words]; gates in the order i, f, o, z."""
        p, states = self.tensors, []
        of_words = "embedding" in p
        x = F.embedding(x, p["embedding"]) if of_words else x
        h = c = x.new_zeros(x.shape[1], p["wh"].shape[1])
        for step in x:
            u, g = F.linear(step, p["wx"], p["bx"]), F.linear(h, p["wh"], p["bh"])
            i, f, o, z = (p["alpha"] * u * g + p["beta1"] * u + p["beta2"] * g).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return F.linear(torch.stack(states) if of_words else h, p["out_w"], p["out_b"])


Peer = MiLstm
"""The name `neoflow bench` looks for."""

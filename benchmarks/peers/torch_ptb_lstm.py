"""The language model of `models/ptb_lstm.py` in PyTorch, unrolled in eager mode as one writes an LSTM by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def layer(xs: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> list[Tensor]:
    """One layer over all steps: a list of [B, I] -> a list of [B, H]; gates in the order i, f, z, o."""
    h = c = xs[0].new_zeros(xs[0].shape[0], w_hh.shape[1])
    outputs = []
    for x in xs:
        i, f, z, o = (F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return outputs


class PtbLstm(Network):
    layer = staticmethod(layer)

    def scores(self, x: Tensor, training: bool) -> Tensor:
        """Word numbers [T, B] -> logits [T, B, V]."""
        p = self.tensors
        outputs = list(F.embedding(x, p["embedding"]).unbind(0))
        for n in range(sum(name.startswith("lstm.weight_ih") for name in p)):
            outputs = self.layer(outputs, *(p[f"lstm.{key}_l{n}"] for key in WEIGHTS))
        return F.linear(torch.stack(outputs), p["out_w"], p["out_b"])


Peer = PtbLstm
"""The name `neoflow bench` looks for."""

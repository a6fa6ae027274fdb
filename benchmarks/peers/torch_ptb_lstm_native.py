"""The language model of `models/ptb_lstm_native.py` in PyTorch: one product and one operator a gate and step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Arrays, Network
from torch_ptb_lstm import PtbLstm


def layer(xs: list[Tensor], *weights: Tensor) -> list[Tensor]:
    """One layer over all steps: a list of [B, I] -> a list of [B, H]; gates in the order i, f, z, o."""
    size = weights[1].shape[1]
    h = c = xs[0].new_zeros(xs[0].shape[0], size)
    gates = list(zip(*(w.split(size) for w in weights), strict=True))
    outputs = []
    for x in xs:
        i, f, z, o = (F.linear(x, wx, bx) + F.linear(h, wh, bh) for wx, wh, bx, bh in gates)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return outputs


class PtbLstmNative(PtbLstm):
    layer = staticmethod(layer)


class PtbLstmLibrary(Network):
    """The same function with `torch.nn.LSTM`."""

    def __init__(self, parameters: Arrays) -> None:
        super().__init__(parameters)
        size = self.tensors["lstm.weight_hh_l0"].shape[1]
        layers = sum(name.startswith("lstm.weight_ih") for name in parameters)
        self.lstm = torch.nn.LSTM(size, size, layers)
        for name, own in self.lstm.named_parameters():
            with torch.no_grad():
                own.copy_(self.tensors[f"lstm.{name}"])
            self.tensors[f"lstm.{name}"] = own

    def scores(self, x: Tensor, training: bool) -> Tensor:
        """Word numbers [T, B] -> logits [T, B, V]."""
        p = self.tensors
        return F.linear(self.lstm(F.embedding(x, p["embedding"]))[0], p["out_w"], p["out_b"])


Peer = PtbLstmNative
"""The name `neoflow bench` looks for."""

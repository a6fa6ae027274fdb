"""The transformer encoder of `models/bert.py` in PyTorch, by its fused attention."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_base import Network

DEPTH = 64
"""Columns of a head."""


class Bert(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, S, E] -> logits [B, classes]."""
        for n in range(sum(name.endswith("qkv_w") for name in self.tensors)):
            x = self.layer(x, f"layer.{n}")
        return F.linear(x.mean(1), self.tensors["out_w"], self.tensors["out_b"])

    def layer(self, x: Tensor, name: str) -> Tensor:
        """Attention, then two linear maps with a gelu between, each added and normalised: x [B, S, E] -> [B, S, E]."""
        p = {key.removeprefix(f"{name}."): t for key, t in self.tensors.items() if key.startswith(f"{name}.")}
        qkv = F.linear(x, p["qkv_w"], p["qkv_b"]).unflatten(2, (3, -1, DEPTH))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, heads, S, DEPTH]
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + F.linear(a, p["o_w"], p["o_b"])
        x = F.layer_norm(x, x.shape[2:], p["n1.gamma"], p["n1.beta"], eps=1e-12)
        x = x + F.linear(F.gelu(F.linear(x, p["f1_w"], p["f1_b"])), p["f2_w"], p["f2_b"])
        return F.layer_norm(x, x.shape[2:], p["n2.gamma"], p["n2.beta"], eps=1e-12)


Peer = Bert
"""The name `neoflow bench` looks for."""

"""The convolution of capsules of `models/capsconv.py` in PyTorch: an ordinary one, as in the peer of capsnet."""

from __future__ import annotations

from torch import Tensor
from torch_base import Operator
from torch_capsnet import capsule_conv


class CapsConv(Operator):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """[B, C, H, W, I, K] -> [B, O, P, Q, I, J]."""
        a = x.permute(4, 0, 2, 3, 5, 1).flatten(4).contiguous()
        y = capsule_conv(a, self.tensors["w"]).unflatten(4, (x.shape[5], -1))  # [I, B, P, Q, J, O]
        return y.permute(1, 5, 2, 3, 0, 4)


Peer = CapsConv
"""The name `neoflow bench` looks for."""

"""The ShuffleNet of `models/shufflenet.py` in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import ConvNet


def shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels viewed as [groups, C / groups] and transposed: x [B, C, H, W]."""
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


class ShuffleNet(ConvNet):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, 3, H, W] -> logits [B, classes]."""
        y = F.max_pool2d(F.relu(self.conv(x, "stem.0", training, stride=2)), 3, 2, 1)
        for n in range(sum(name.endswith(".a.0.weight") for name in self.tensors)):
            y = self.unit(y, f"units.{n}", training)
        return self.classify(y)

    def unit(self, x: Tensor, name: str, training: bool) -> Tensor:
        """A bottleneck with a shuffle, added to its input; or beside the pooled input, where it changes the size."""
        middle, inner = len(self.tensors[f"{name}.b.0.weight"]), self.tensors[f"{name}.c.0.weight"].shape[1]
        stride = 1 if x.shape[1] == 4 * middle else 2
        y = F.relu(self.conv(x, f"{name}.a", training))
        y = self.conv(shuffle(y, middle // inner), f"{name}.b", training, stride)
        y = self.conv(y, f"{name}.c", training)
        return F.relu(x + y if stride == 1 else torch.cat([F.avg_pool2d(x, 3, 2, 1), y], dim=1))


Peer = ShuffleNet
"""The name `neoflow bench` looks for."""

"""The NASNet-A of `models/nasnet_a.py` in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_base import Network


def avg(x: Tensor, stride: int = 1) -> Tensor:
    return F.avg_pool2d(x, 3, stride, 1, count_include_pad=False)


class NasNet(Network):
    def scores(self, x: Tensor, training: bool) -> Tensor:
        """x [B, 3, H, W] -> logits [B, classes]; a cell whose first kernel is 7x7 halves the image and ends a stage."""
        y = F.max_pool2d(F.relu(F.conv2d(x, self.tensors["stem.weight"], stride=2, padding=3)), 3, 2, 1)
        prev = cur = y
        for n in range(sum(name.endswith("cur.weight") for name in self.tensors)):
            name = f"cells.{n}"
            c, p = F.relu(self.conv(cur, f"{name}.cur")), F.relu(self.conv(prev, f"{name}.prev"))
            if self.tensors[f"{name}.sep.0.0.weight"].shape[-1] == 7:
                prev = cur = self.reduction(c, p, name)
            else:
                prev, cur = cur, self.normal(c, p, name)
        return F.linear(cur.mean((2, 3)), self.tensors["fc.weight"], self.tensors["fc.bias"])

    def conv(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        """Padded by half of its kernel; groups by the weights' shape."""
        w = self.tensors[f"{name}.weight"]
        return F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2, groups=x.shape[1] // w.shape[1])

    def sep(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        """A depthwise convolution, then a 1x1."""
        return self.conv(self.conv(x, f"{name}.0", stride), f"{name}.1")

    def normal(self, c: Tensor, p: Tensor, name: str) -> Tensor:
        """[B, C, H, W] twice -> [B, 5C, H, W]."""
        s = [self.sep(x, f"{name}.sep.{n}") for n, x in enumerate((c, p, c, p, p))]
        mean = avg(p)
        return torch.cat([s[0] + c, s[1] + s[2], avg(c) + p, mean + mean, s[3] + s[4]], dim=1)

    def reduction(self, c: Tensor, p: Tensor, name: str) -> Tensor:
        """[B, C, H, W] twice -> [B, 5C, H/2, W/2]."""
        s = [self.sep(x, f"{name}.sep.{n}", 2) for n, x in enumerate((p, c, p, p))]
        largest, o0 = F.max_pool2d(c, 3, 2, 1), s[0] + s[1]
        o1, o2 = largest + s[2], avg(c, 2) + s[3]
        return torch.cat([o0, o1, o2, largest + self.sep(o0, f"{name}.sep.4"), avg(o0) + o1], dim=1)


Peer = NasNet
"""The name `neoflow bench` looks for."""

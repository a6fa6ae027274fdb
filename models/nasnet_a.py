"""NASNet-A: cells found by search, of separable convolutions and poolings, without normalisation; images of 224 x 224.

Sources: Zoph et al., Learning Transferable Architectures for Scalable Image Recognition, 2018; in the sizes of Jia et
al., TASO, 2019.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"nasnet_a": {}}
SMALL = {"image": 64, "classes": 10, "channels": 16, "normal_cells": 1}


class Cell:
    """What both kinds of cell are made of: `c` and `p`, the last two outputs brought to `channels`, and operators."""

    def __init__(self, parameters, name, cur, prev, channels):
        self.parameters, self.name, self.channels, self.separable = parameters, name, channels, 0
        self.c = nf.relu(self.conv("cur", cur, 1))
        self.p = nf.relu(self.conv("prev", prev, 1))

    def conv(self, name, x, kernel, stride=1, groups=1):
        w = self.parameters(f"{self.name}.{name}.weight", self.channels, x.shape[1] // groups, kernel, kernel)
        return F.conv2d(x, w, None, stride, kernel // 2, groups=groups)

    def sep(self, x, kernel, stride=1):
        """A depthwise convolution, then a 1x1; numbered in the order of the calls."""
        name = f"sep.{self.separable}"
        self.separable += 1
        return self.conv(f"{name}.1", self.conv(f"{name}.0", x, kernel, stride, self.channels), 1)

    @staticmethod
    def avg(x, stride=1):
        return F.avg_pool(x, 3, stride, 1, count_include_pad=False)


def normal(cell):
    """[B, C, H, W] twice -> [B, 5C, H, W]."""
    c, p, sep, avg = cell.c, cell.p, cell.sep, cell.avg
    parts = [sep(c, 3) + c, sep(p, 3) + sep(c, 3), avg(c) + p, avg(p) + avg(p), sep(p, 3) + sep(p, 3)]
    return nf.concat(parts, axis=1)


def reduction(cell):
    """[B, C, H, W] twice -> [B, 5C, H/2, W/2]."""
    c, p, sep, avg = cell.c, cell.p, cell.sep, cell.avg
    largest = F.max_pool(c, 3, 2, 1)
    o0 = sep(p, 7, 2) + sep(c, 5, 2)
    o1 = largest + sep(p, 7, 2)
    o2 = avg(c, 2) + sep(p, 5, 2)
    o3 = largest + sep(o0, 3)
    return nf.concat([o0, o1, o2, o3, avg(o0) + o1], axis=1)


def build(batch=16, *, stages=3, normal_cells=5, channels=128, image=224, classes=1000):
    """channels: of the first stage; each of the next has twice as many, after a cell that halves the image."""
    p = nn.Parameters("nasnet_a", gain=0.6)
    x = nf.placeholder((batch, 3, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    y = F.max_pool(nf.relu(F.conv2d(x, p("stem.weight", 64, 3, 7, 7), None, 2, 3)), 3, 2, 1)
    number = 0
    for stage in range(stages):
        prev = cur = y
        for _ in range(normal_cells):
            cell = Cell(p, f"cells.{number}", cur, prev, channels << stage)
            prev, cur, number = cur, normal(cell), number + 1
        y = reduction(Cell(p, f"cells.{number}", cur, prev, channels << (stage + 1)))
        number += 1
    logits = F.linear(F.global_avg_pool(y), p("fc.weight", classes, y.shape[1]), p("fc.bias", classes))
    return nn.Model("nasnet_a", x, labels, p, F.cross_entropy(logits, labels), logits, classes)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

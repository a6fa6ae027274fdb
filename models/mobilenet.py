"""MobileNet: depthwise 3x3 convolutions, each followed by a 1x1; images of 224 x 224.

Source: Howard et al., MobileNets, 2017 (version 1, full width).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"mobilenet": {}}
SMALL = {"image": 64, "classes": 10}
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""(channels, stride) of each."""


def forward(x, p, blocks, classes, training):
    """Logits [B, classes] of images x [B, 3, H, W]."""

    def conv(n, *args):
        return nn.conv_norm(p, f"body.{n}", *args, training=training)

    y = conv(0, x, 32, 3, 2, 1)
    for n, (outputs, stride) in enumerate(blocks):
        inputs = y.shape[1]
        y = conv(2 * n + 1, y, inputs, 3, stride, 1, inputs)
        y = conv(2 * n + 2, y, outputs, 1)
    return F.linear(F.global_avg_pool(y), p("fc.weight", classes, y.shape[1]), p("fc.bias", classes))


def build(batch=16, *, blocks=BLOCKS, image=224, classes=1000):
    """blocks: (channels, stride) of each."""
    p = nn.Parameters("mobilenet", gain=2**0.5)
    x = nf.placeholder((batch, 3, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    loss = F.cross_entropy(forward(x, p, blocks, classes, True), labels)
    scores = forward(x, p, blocks, classes, False)
    return nn.Model("mobilenet", x, labels, p, loss, scores, classes, state=p.state)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

"""Residual networks of 18 and 50 layers for images of 224 x 224, and one of 50 with grouped convolutions (ResNeXt).

Sources: He et al., Deep Residual Learning for Image Recognition, 2015 (the stride of a bottleneck is in its 3x3); Xie
et al., Aggregated Residual Transformations for Deep Neural Networks, 2017 (32 x 4d).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {
    "resnet18": {"name": "resnet18"},
    "resnet50": {"name": "resnet50", "depths": (3, 4, 6, 3), "wide": True},
    "resnext50": {"name": "resnext50", "depths": (3, 4, 6, 3), "wide": True, "groups": 32},
}
SMALL = {"image": 64, "classes": 10}


def basic(x, outputs, stride, groups, conv):
    """Two 3x3 convolutions."""
    y = conv("body.0", x, outputs, 3, stride, 1)
    return conv("body.1", y, outputs, 3, 1, 1, activation=False)


def bottleneck(x, outputs, stride, groups, conv):
    """A 3x3 convolution of a quarter of the channels between two 1x1; with groups, of half of them."""
    inner = outputs // (2 if groups > 1 else 4)
    y = conv("body.0", x, inner, 1)
    y = conv("body.1", y, inner, 3, stride, 1, groups)
    return conv("body.2", y, outputs, 1, activation=False)


def forward(x, p, depths, wide, groups, classes, training):
    """Logits [B, classes] of images x [B, 3, H, W]."""

    def conv(name, *args, **options):
        return nn.conv_norm(p, name, *args, training=training, **options)

    y = F.max_pool(conv("stem.0", x, 64, 7, 2, 3), 3, 2, 1)
    number = 0
    for stage, depth in enumerate(depths):
        outputs = (256 if wide else 64) << stage
        for n in range(depth):
            stride = 2 if n == 0 and stage > 0 else 1

            def block(name, *args, number=number, **options):
                return conv(f"blocks.{number}.{name}", *args, **options)

            body = (bottleneck if wide else basic)(y, outputs, stride, groups, block)
            if stride > 1 or y.shape[1] != outputs:
                y = block("short", y, outputs, 1, stride, activation=False)
            y = nf.relu(body + y)
            number += 1
    return F.linear(F.global_avg_pool(y), p("fc.weight", classes, y.shape[1]), p("fc.bias", classes))


def build(batch=16, *, name="resnet18", depths=(2, 2, 2, 2), wide=False, groups=1, image=224, classes=1000):
    """depths: blocks of each stage; wide: of bottlenecks, four times as many channels; groups: of their 3x3."""
    p = nn.Parameters(name, gain=2**0.5)
    x = nf.placeholder((batch, 3, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    loss = F.cross_entropy(forward(x, p, depths, wide, groups, classes, True), labels)
    scores = forward(x, p, depths, wide, groups, classes, False)
    return nn.Model(name, x, labels, p, loss, scores, classes, state=p.state)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

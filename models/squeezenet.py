"""SqueezeNet: 1x1 convolutions to few channels before 3x3 and 1x1 side by side, with bypasses; images of 224 x 224.

Source: Iandola et al., SqueezeNet, 2016 (version 1.0 with complex bypass).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"squeezenet": {}}
SMALL = {"image": 64, "classes": 10}
FIRES = ((16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256))
"""(channels between, channels of each side) of the fire modules; None: a pooling."""


def fire(x, middle, side, conv):
    """relu of a 1x1 convolution to `middle` channels, then of a 3x3 and a 1x1 of it side by side, added to x."""
    s = nf.relu(conv("squeeze", x, middle, 1))
    y = nf.relu(nf.concat([conv("e3", s, side, 3, 1), conv("e1", s, side, 1)], axis=1))
    return y + (x if x.shape[1] == 2 * side else nf.relu(conv("bypass", x, 2 * side, 1)))


def build(batch=16, *, fires=FIRES, image=224, classes=1000):
    """fires: (channels between, channels of each side) of each, or None for a pooling."""
    p = nn.Parameters("squeezenet")
    x = nf.placeholder((batch, 3, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")

    def conv(name, x, outputs, kernel, padding=0, stride=1):
        w = p(f"{name}.weight", outputs, x.shape[1], kernel, kernel)
        return F.conv2d(x, w, p(f"{name}.bias", outputs), stride, padding)

    y = F.max_pool(nf.relu(conv("conv1", x, 96, 7, 3, 2)), 3, 2)
    for n, sizes in enumerate(fires, start=1):
        if sizes is None:
            y = F.max_pool(y, 3, 2)
            continue

        def inner(name, *args, n=n):
            return conv(f"body.{n}.{name}", *args)

        y = fire(y, *sizes, inner)
    logits = F.global_avg_pool(nf.relu(conv("conv10", y, classes, 1)))
    return nn.Model("squeezenet", x, labels, p, F.cross_entropy(logits, labels), logits, classes)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

"""ShuffleNet: grouped 1x1 convolutions whose groups are mixed by a permutation of channels; images of 224 x 224.

Source: Zhang et al., ShuffleNet, 2017 (version 1, three groups).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {
    "shufflenet": {},
    "shufflenet_small": {"image": 32, "classes": 10, "stages": ((240, 2), (480, 1))},
}
SMALL = {"image": 64, "classes": 10}


def shuffle(x, groups):
    """Channels viewed as [groups, C / groups] and transposed: x [B, C, H, W]."""
    batch, channels, height, width = x.shape
    x = nf.reshape(x, (batch, groups, channels // groups, height, width))
    return nf.reshape(nf.swapaxes(x, 1, 2), (batch, channels, height, width))


def unit(x, outputs, stride, groups, first, conv):
    """A bottleneck with a shuffle; of stride 2 its result is put beside the pooled input, else added to it."""
    inputs = x.shape[1]
    y = conv("a", x, outputs // 4, 1, groups=1 if first else groups)
    y = conv("b", shuffle(y, groups), outputs // 4, 3, stride, 1, groups=outputs // 4, activation=False)
    y = conv("c", y, outputs if stride == 1 else outputs - inputs, 1, groups=groups, activation=False)
    return nf.relu(x + y if stride == 1 else nf.concat([F.avg_pool(x, 3, 2, 1), y], axis=1))


def forward(x, p, groups, stages, classes, training):
    """Logits [B, classes] of images x [B, 3, H, W]."""

    def conv(name, *args, **options):
        return nn.conv_norm(p, name, *args, training=training, **options)

    y = F.max_pool(conv("stem.0", x, 24, 3, 2, 1), 3, 2, 1)
    number = 0
    for outputs, depth in stages:
        for n in range(depth):

            def block(name, *args, number=number, **options):
                return conv(f"units.{number}.{name}", *args, **options)

            y = unit(y, outputs, 2 if n == 0 else 1, groups, number == 0, block)
            number += 1
    return F.linear(F.global_avg_pool(y), p("fc.weight", classes, y.shape[1]), p("fc.bias", classes))


def build(batch=16, *, groups=3, stages=((240, 4), (480, 8), (960, 4)), image=224, classes=1000):
    """stages: (channels, units) of each."""
    p = nn.Parameters("shufflenet", gain=2**0.5)
    x = nf.placeholder((batch, 3, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    loss = F.cross_entropy(forward(x, p, groups, stages, classes, True), labels)
    scores = forward(x, p, groups, stages, classes, False)
    return nn.Model("shufflenet", x, labels, p, loss, scores, classes, state=p.state)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

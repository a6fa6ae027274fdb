"""Inception: convolutions of several sizes side by side, some of one row or column; images of 299 x 299.

Source: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2015 (as torchvision has it, without
the auxiliary head).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"inception_v3": {}}
SMALL = {"image": 96, "classes": 10}


def same(outputs, *kernel):
    """A convolution that keeps the size: (channels, kernel, stride, padding)."""
    return outputs, kernel, 1, tuple(n // 2 for n in kernel)


def halving(outputs):
    """A 3x3 of stride 2 without padding."""
    return outputs, (3, 3), 2, 0


def wide(pooled):
    """Block A: of 1x1, 5x5 and two 3x3; the branches, and the channels of the pooled one."""
    return (
        [same(64, 1, 1)],
        [same(48, 1, 1), same(64, 5, 5)],
        [same(64, 1, 1), same(96, 3, 3), same(96, 3, 3)],
    ), pooled


def crossed(inner):
    """Block C: rows and columns of 7."""
    row, column = same(inner, 1, 7), same(inner, 7, 1)
    long = [same(inner, 1, 1), column, row, column, same(192, 1, 7)]
    return ([same(192, 1, 1)], [same(inner, 1, 1), row, same(192, 7, 1)], long), 192


SHRINK_B = ([halving(384)], [same(64, 1, 1), same(96, 3, 3), halving(96)]), 0
SHRINK_D = ([same(192, 1, 1), halving(320)], [same(192, 1, 1), same(192, 1, 7), same(192, 7, 1), halving(192)]), 0
BLOCKS = (wide(32), wide(64), wide(64), SHRINK_B, *map(crossed, (128, 160, 160, 192)), SHRINK_D)


def chain(x, name, convs, conv):
    """One convolution after another; a single one has the name itself."""
    for n, sizes in enumerate(convs):
        x = conv(name if len(convs) == 1 else f"{name}.{n}", x, *sizes)
    return x


def block(x, name, branches, pooled, conv):
    """Branches side by side, the last a pooling: of means and `pooled` channels, or of stride 2 where that is 0."""
    parts = [chain(x, f"{name}.{n}", convs, conv) for n, convs in enumerate(branches)]
    if pooled:
        parts.append(chain(F.avg_pool(x, 3, 1, 1), f"{name}.{len(branches)}", [same(pooled, 1, 1)], conv))
    else:
        parts.append(F.max_pool(x, 3, 2))
    return nf.concat(parts, axis=1)


def forked(x, name, conv):
    """Block E: two of the branches end in a row and a column of 3, side by side."""

    def fork(n, convs):
        stem = chain(x, f"{name}.{n}.stem", convs, conv)
        return [
            conv(f"{name}.{n}.{side}", stem, *same(384, *kernel)) for side, kernel in (("l", (1, 3)), ("r", (3, 1)))
        ]

    parts = [chain(x, f"{name}.0", [same(320, 1, 1)], conv)]
    parts += fork(1, [same(384, 1, 1)])
    parts += fork(2, [same(448, 1, 1), same(384, 3, 3)])
    parts.append(chain(F.avg_pool(x, 3, 1, 1), f"{name}.3", [same(192, 1, 1)], conv))
    return nf.concat(parts, axis=1)


def forward(x, p, blocks, classes, training):
    """Logits [B, classes] of images x [B, 3, H, W]."""

    def conv(name, *args):
        return nn.conv_norm(p, f"body.{name}", *args, training=training, eps=1e-3)

    y = conv("0", x, *halving(32))
    y = conv("1", y, 32, (3, 3), 1, 0)
    y = F.max_pool(conv("2", y, *same(64, 3, 3)), 3, 2)
    y = conv("4", y, *same(80, 1, 1))
    y = F.max_pool(conv("5", y, 192, (3, 3), 1, 0), 3, 2)
    for n, (branches, pooled) in enumerate(blocks, start=7):
        y = block(y, f"{n}.b", branches, pooled, conv)
    for n in range(2):
        y = forked(y, f"{7 + len(blocks) + n}.b", conv)
    return F.linear(F.global_avg_pool(y), p("fc.weight", classes, y.shape[1]), p("fc.bias", classes))


def build(batch=16, *, blocks=BLOCKS, image=299, classes=1000):
    """blocks: branches of each, and the channels of its pooled branch, before the two that fork."""
    p = nn.Parameters("inception_v3", gain=2**0.5)
    x = nf.placeholder((batch, 3, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    loss = F.cross_entropy(forward(x, p, blocks, classes, True), labels)
    scores = forward(x, p, blocks, classes, False)
    return nn.Model("inception_v3", x, labels, p, loss, scores, classes, state=p.state)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

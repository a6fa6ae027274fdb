"""A convolution of capsules of eight elements, written as a convolution for each of them, of stride 2 on 20 x 20.

A step gives the gradients of the weights and of the input, and changes nothing else.
Source: Sabour et al., Dynamic Routing Between Capsules, 2017: the layer of primary capsules.
"""

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"capsconv8": {}}


def build(batch=16, *, elements=8, capsules=32, channels=256, image=20, kernel=9):
    """x [B, C, H, W], weights of the outputs in place of labels."""
    p = nn.Parameters("capsconv8")
    x = nf.placeholder((batch, channels, image, image), name="x")
    w = p("w", elements, capsules, channels, kernel, kernel, fan_in=channels * kernel**2)
    y = nf.stack([F.conv2d(x, w[n], stride=2) for n in range(elements)], axis=-1)
    weights = nf.placeholder(y.shape, name="g")
    loss = nf.mean(y * weights)
    gradients = zip((w, x), nf.grad(loss, [w, x]), strict=True)
    state = {p.statistic(f"{t.name}.gradient", t.shape, 0.0): g for t, g in gradients}
    return nn.Model("capsconv8", x, weights, p, loss, y, elements, state=state, trained=False)

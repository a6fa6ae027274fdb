"""A convolution of capsules alone: as much arithmetic as one of 9x9 and 256 to 256 channels, of stride 2 on 20 x 20.

A step gives the gradients of the weights and of the input, and changes nothing else.
Source: Hinton et al., Matrix Capsules with EM Routing, 2018.
"""

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"capsconv": {}}


def build(batch=16, *, capsules=32, side=4, image=20, kernel=9):
    """x [B, C, H, W, 4, 4], weights of the outputs in place of labels."""
    p = nn.Parameters("capsconv")
    x = nf.placeholder((batch, capsules, image, image, side, side), name="x")
    shape = (capsules, capsules, kernel, kernel, side, side)
    w = p("w", *shape, fan_in=capsules * kernel**2 * side)
    y = F.capsule_conv(x, w, stride=2)
    weights = nf.placeholder(y.shape, name="g")
    loss = nf.mean(y * weights)
    gradients = zip((w, x), nf.grad(loss, [w, x]), strict=True)
    state = {p.statistic(f"{t.name}.gradient", t.shape, 0.0): g for t, g in gradients}
    return nn.Model("capsconv", x, weights, p, loss, y, side, state=state, trained=False)

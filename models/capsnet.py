"""The capsule network: a convolution, two capsule convolutions, dynamic routing to one capsule a class, margin loss.

Sources: Sabour et al., Dynamic Routing Between Capsules, 2017; Hinton et al., Matrix Capsules with EM Routing, 2018.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"capsnet": {}}


def first_capsules(x, w, bias, side):
    """relu(conv(x, w) + bias) with channels as capsules: x [B, 1, H, W], w [C*I*K, 1, R, S] -> [B, C, P, Q, I, K].

    Channel 4*4*c + 4*i + k is element (i, k) of capsule c (side 4).
    """
    channels, _, kernel, _ = w.shape
    capsules, size = channels // side**2, x.shape[2] - kernel + 1
    w = nf.reshape(w, (capsules, side, side, kernel, kernel))
    bias = nf.reshape(bias, (capsules, side, side))
    r, s = nf.axis(kernel, "r"), nf.axis(kernel, "s")
    y = nf.compute(
        (x.shape[0], capsules, size, size, side, side),
        lambda b, c, p, q, i, k: nf.sum(x[b, 0, p + r, q + s] * w[c, i, k, r, s], axis=[r, s]),
        name="features",
    )
    return nf.compute(y.shape, lambda b, c, p, q, i, k: nf.relu(y[b, c, p, q, i, k] + bias[c, i, k]), name="capsules")


def votes(u, w):
    """What each capsule says of each class: u [B, N, E], w [N, K, D, E] -> [B, N, K, D]."""
    return nf.expr("u_hat[b,n,k,d] = sum(u[b,n,e] * w[n,k,d,e])", u=u, w=w)


def routing(u_hat, rounds):
    """Votes weighted by how far they agree with the outcome: u_hat [B, N, K, D] -> v [B, K, D]."""
    classes = u_hat.shape[2]
    logits = None
    for r in range(rounds):
        if logits is None:  # softmax of zeros
            s = nf.expr("s[b,k,d] = sum[n](u[b,n,k,d])", u=u_hat) * (1.0 / classes)
        else:
            s = nf.expr("s[b,k,d] = sum(c[b,n,k] * u[b,n,k,d])", c=F.softmax(logits), u=u_hat)
        v = F.squash(s)
        if r < rounds - 1:
            agreement = nf.expr("a[b,n,k] = sum(u[b,n,k,d] * v[b,k,d])", u=u_hat, v=v)
            logits = agreement if logits is None else logits + agreement
    return v


def build(batch=16, *, image=28, classes=10, kernel=5, primary=16, capsules=32, side=4, out=16, rounds=3):
    """primary and capsules: how many capsules of side x side in the first layer and in the next two."""
    p = nn.Parameters("capsnet")
    x = nf.placeholder((batch, 1, image, image), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    conv_w = p("conv_w", primary * side**2, 1, kernel, kernel)
    conv_b = p("conv_b", primary * side**2)
    prim = p("prim", capsules, primary, 3, 3, side, side, fan_in=primary * 9 * side)
    caps = p("caps", capsules, capsules, 3, 3, side, side, fan_in=capsules * 9 * side)
    a = first_capsules(x, conv_w, conv_b, side)
    m1 = F.squash(F.capsule_conv(a, prim, stride=2), axis=(4, 5))
    m2 = F.squash(F.capsule_conv(m1, caps, stride=2), axis=(4, 5))
    u = nf.reshape(m2, (batch, -1, side * side))
    v = routing(votes(u, p("digit", u.shape[1], classes, out, side**2, fan_in=side**2)), rounds)
    lengths = nf.sqrt(nf.sum(v * v, axis=2) + 1e-9)
    return nn.Model("capsnet", x, labels, p, F.margin_loss(lengths, labels), lengths, classes)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

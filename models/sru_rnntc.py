"""One layer of the simple recurrent unit over word vectors, as text is classified with it; 10 classes.

Sources: Lei et al., Simple Recurrent Units for Highly Parallelizable Recurrence, 2018; the sizes are those of RNNTC in
Jia et al., Optimizing DNN Computation with Relaxed Graph Substitutions, 2019.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"sru_rnntc": {}}


def cell(x, sums, c):
    """x and c [B, E], sums [B, 3E] of x alone in the order u, f, r -> (out, c')."""
    size = x.shape[1]
    u, f, r = (sums[:, n * size : (n + 1) * size] for n in range(3))
    f, r = nf.sigmoid(f), nf.sigmoid(r)
    c = f * c + (1.0 - f) * u
    return r * c + (1.0 - r) * x, c


def build(batch=64, *, steps=20, width=1024, classes=10, loop=F.unrolled):
    """x [T, B, E]: one step of all samples after another. loop: `nf.scan` instead of every step by itself."""
    p = nn.Parameters("sru_rnntc")
    x = nf.placeholder((steps, batch, width), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    out_w, out_b = p("out_w", classes, width), p("out_b", classes)
    sums = F.linear(x, p("w0", 3 * width, width))

    def step(state, row):
        out, c = cell(*row, state[1])
        return (out, c), None

    start = nf.zeros((batch, width))
    (out, _), _ = loop(step, (start, start), (x, sums))
    logits = F.linear(out, out_w, out_b)
    return nn.Model("sru_rnntc", x, labels, p, F.cross_entropy(logits, labels), logits, classes, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

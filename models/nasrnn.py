"""A recurrent cell found by search, unrolled over word vectors; 10 classes.

Sources: Zoph and Le, Neural Architecture Search with Reinforcement Learning, 2017; as Jia et al., TASO, 2019, have it.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"nasrnn": {}}


def cell(x, h, p):
    """x [B, I], h [B, H] -> h': eight sums of both, joined in a tree."""
    sums = F.linear(x, p["wx"]) + F.linear(h, p["wh"])
    size = h.shape[1]
    t = [sums[:, n * size : (n + 1) * size] for n in range(8)]
    m0 = nf.relu(t[0]) + nf.sigmoid(t[3])
    m1 = nf.sigmoid(t[1]) + nf.tanh(t[2])
    m2 = nf.sigmoid(t[4]) * nf.tanh(t[5])
    m3 = nf.sigmoid(t[6]) * nf.relu(t[7])
    left = nf.tanh(nf.sigmoid(m1) + nf.tanh(m2))
    return nf.tanh(left * nf.tanh(nf.tanh(m0) * nf.tanh(m3)))


def build(batch=64, *, steps=5, inputs=512, hidden=512, classes=10, loop=F.unrolled):
    """x [T, B, I]: one step of all samples after another. loop: `nf.scan` instead of every step by itself."""
    p = nn.Parameters("nasrnn")
    x = nf.placeholder((steps, batch, inputs), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    out_w, out_b = p("out_w", classes, hidden), p("out_b", classes)
    p("wx", 8 * hidden, inputs), p("wh", 8 * hidden, hidden)
    h, _ = loop(lambda state, row: (cell(row, state, p), None), nf.zeros((batch, hidden)), x)
    logits = F.linear(h, out_w, out_b)
    return nn.Model("nasrnn", x, labels, p, F.cross_entropy(logits, labels), logits, classes, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

"""LSTM with gates that subtract, unrolled, over the rows of an image or over word vectors; 10 classes.

Source: Costa et al., Cortical Microcircuits as Gated-Recurrent Neural Networks, 2017, section 3.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {
    "sublstm_mnist": {"name": "sublstm_mnist"},
    "sublstm_ptb": {"name": "sublstm_ptb", "steps": 20, "inputs": 512, "hidden": 512},
}


def cell(x, h, c, p):
    """x [B, I], h and c [B, H] -> (h', c'); the gates' rows are in the order i, f, z, o."""
    gates = nf.sigmoid(F.linear(x, p["wx"], p["bx"]) + F.linear(h, p["wh"], p["bh"]))
    size = h.shape[1]
    i, f, z, o = (gates[:, n * size : (n + 1) * size] for n in range(4))
    c = f * c + z - i
    return nf.sigmoid(c) - o, c


def build(batch=64, *, name="sublstm_mnist", steps=28, inputs=28, hidden=128, classes=10, loop=F.unrolled):
    """x [T, B, I]: one step of all samples after another. loop: `nf.scan` instead of every step by itself."""
    p = nn.Parameters(name)
    x = nf.placeholder((steps, batch, inputs), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    out_w, out_b = p("out_w", classes, hidden), p("out_b", classes)
    for side, size in (("x", inputs), ("h", hidden)):
        p(f"w{side}", 4 * hidden, size), p(f"b{side}", 4 * hidden)
    start = nf.zeros((batch, hidden))
    (h, _), _ = loop(lambda state, row: (cell(row, *state, p), None), (start, start), x)
    logits = F.linear(h, out_w, out_b)
    return nn.Model(name, x, labels, p, F.cross_entropy(logits, labels), logits, classes, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

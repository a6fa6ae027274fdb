"""Long-long-term memory: an LSTM without a forget gate, with elu inside, unrolled; 10 classes.

Source: the cell of the PyTorch tutorial "Custom C++ and CUDA Extensions" (Goldsborough, 2018).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {
    "lltm_mnist": {"name": "lltm_mnist"},
    "lltm_ptb": {"name": "lltm_ptb", "steps": 20, "inputs": 512, "hidden": 512},
}


def cell(x, h, c, p):
    """x [B, I], h and c [B, H] -> (h', c'); the gates' rows are in the order i, o, z."""
    gates = F.linear(nf.concat([x, h], axis=1), p["w"], p["b"])
    size = h.shape[1]
    i, o, z = (gates[:, n * size : (n + 1) * size] for n in range(3))
    c = c + F.elu(z) * nf.sigmoid(i)
    return nf.tanh(c) * nf.sigmoid(o), c


def build(batch=64, *, name="lltm_mnist", steps=28, inputs=28, hidden=128, classes=10, loop=F.unrolled):
    """x [T, B, I]: one step of all samples after another. loop: `nf.scan` instead of every step by itself."""
    p = nn.Parameters(name)
    x = nf.placeholder((steps, batch, inputs), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    out_w, out_b = p("out_w", classes, hidden), p("out_b", classes)
    p("w", 3 * hidden, inputs + hidden), p("b", 3 * hidden)
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

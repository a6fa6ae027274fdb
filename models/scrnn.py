"""Structurally constrained recurrent network: a slow context beside the hidden state, unrolled; 10 classes.

Source: Mikolov et al., Learning Longer Memory in Recurrent Neural Networks, 2014 (the context keeps half of itself).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {
    "scrnn_mnist": {"name": "scrnn_mnist"},
    "scrnn_ptb": {"name": "scrnn_ptb", "steps": 20, "inputs": 512, "hidden": 512},
}


def cell(x, s, h, p):
    """x [B, I], context s [B, C] and state h [B, H] -> (s', h')."""
    s = 0.5 * F.linear(x, p["b_w"], p["b_b"]) + 0.5 * s
    a = nf.sigmoid(F.linear(nf.concat([s, x, h], axis=1), p["p_w"], p["p_b"]))
    return s, F.linear(a, p["u_w"], p["u_b"]) + F.linear(s, p["v_w"], p["v_b"])


def build(batch=64, *, name="scrnn_mnist", steps=28, inputs=28, hidden=128, classes=10, loop=F.unrolled):
    """x [T, B, I]: one step of all samples after another; the context has half of the hidden size. loop: `nf.scan`
    instead of every step by itself."""
    p = nn.Parameters(name)
    x = nf.placeholder((steps, batch, inputs), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    out_w, out_b = p("out_w", classes, hidden), p("out_b", classes)
    context = hidden // 2
    shapes = {"b": (context, inputs), "p": (hidden, context + inputs + hidden), "u": (hidden, hidden)}
    for weights, shape in {**shapes, "v": (hidden, context)}.items():
        p(f"{weights}_w", *shape), p(f"{weights}_b", shape[0])
    start = nf.zeros((batch, context)), nf.zeros((batch, hidden))
    (_, h), _ = loop(lambda state, row: (cell(row, *state, p), None), start, x)
    logits = F.linear(h, out_w, out_b)
    return nn.Model(name, x, labels, p, F.cross_entropy(logits, labels), logits, classes, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

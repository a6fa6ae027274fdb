"""LSTM with multiplicative integration, unrolled: over rows of an image or word vectors, of 10 classes; over words.

Source: Wu et al., On Multiplicative Integration with Recurrent Neural Networks, 2016, section 2.2.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {
    "mi_lstm_mnist": {"name": "mi_lstm_mnist"},
    "mi_lstm_ptb": {"name": "mi_lstm_ptb", "steps": 20, "inputs": 512, "hidden": 512},
    "mi_lstm_text": {"name": "mi_lstm_text", "steps": 24, "inputs": 64, "hidden": 128, "words": 128},
}


def cell(x, h, c, p):
    """x [B, I], h and c [B, H] -> (h', c'); the gates' rows are in the order i, f, o, z."""
    u, g = F.linear(x, p["wx"], p["bx"]), F.linear(h, p["wh"], p["bh"])
    pre = p["alpha"] * u * g + p["beta1"] * u + p["beta2"] * g
    size = h.shape[1]
    return F.lstm_gates(pre, c, {"i": 0, "f": size, "o": 2 * size, "g": 3 * size})


def build(batch=64, *, name="mi_lstm_mnist", steps=28, inputs=28, hidden=128, classes=10, words=None, loop=F.unrolled):
    """x [T, B, I]: one step of all samples after another. words: x and labels are words [T, B], so many of them. loop:
    `nf.scan` instead of every step by itself."""
    p = nn.Parameters(name)
    shape, dtype = ((steps, batch, inputs), "float32") if words is None else ((steps, batch), "int64")
    given = nf.placeholder(shape, dtype, name="x")
    x = given if words is None else F.embedding(p("embedding", words, inputs), given)
    labels = nf.placeholder((batch,) if words is None else (steps, batch), "int64", name="labels")
    classes = words or classes
    out_w, out_b = p("out_w", classes, hidden), p("out_b", classes)
    p("wx", 4 * hidden, inputs), p("bx", 4 * hidden), p("wh", 4 * hidden, hidden)
    for vector in ("bh", "alpha", "beta1", "beta2"):
        p(vector, 4 * hidden)

    def step(state, row):
        h, c = cell(row, *state, p)
        return (h, c), h

    start = nf.zeros((batch, hidden))
    (h, _), states = loop(step, (start, start), x)
    logits = F.linear(h if words is None else states, out_w, out_b)
    loss = F.cross_entropy(logits, labels)
    return nn.Model(name, given, labels, p, loss, logits, classes, vocabulary=words, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

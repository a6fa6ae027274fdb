"""A language model: two layers of LSTM, unrolled, over words of the Penn Treebank's size (no dropout).

Source: Zaremba et al., Recurrent Neural Network Regularization, 2014 (the small configuration).
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"ptb_lstm": {}}
SMALL = {"words": 256}


def layer(xs, hidden, weights, loop):
    """One layer over all steps: [T, B, I] -> [T, B, H]; gates in the order i, f, z, o."""

    def step(state, x):
        h, c = F.lstm_cell(x, *state, *weights, gates="ifgo")
        return (h, c), h

    start = nf.zeros((xs.shape[1], hidden))
    return loop(step, (start, start), xs)[1]


def build(batch=20, *, words=10000, hidden=200, steps=20, layers=2, loop=F.unrolled):
    """x [T, B]: word numbers; labels [T, B]: the words to predict. loop: `nf.scan` instead of every step by itself."""
    p = nn.Parameters("ptb_lstm")
    ids = nf.placeholder((steps, batch), "int64", name="x")
    labels = nf.placeholder((steps, batch), "int64", name="labels")
    table, out_w, out_b = p("embedding", words, hidden), p("out_w", words, hidden), p("out_b", words)
    outputs = F.embedding(table, ids)
    for n in range(layers):
        shapes = {"weight_ih": (4 * hidden, hidden), "weight_hh": (4 * hidden, hidden)}
        shapes |= {"bias_ih": (4 * hidden,), "bias_hh": (4 * hidden,)}
        outputs = layer(outputs, hidden, [p(f"lstm.{key}_l{n}", *shape) for key, shape in shapes.items()], loop)
    logits = F.linear(outputs, out_w, out_b)
    loss = F.cross_entropy(logits, labels)
    return nn.Model("ptb_lstm", ids, labels, p, loss, logits, words, vocabulary=words, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

"""The language model of `ptb_lstm` as its equations stand: one product and one operator a gate and step, unrolled.

Source: the same function and values as `ptb_lstm`; written so, it is what optimization mapping starts from (Xiao et
al.): the stage `mapping` finds layers x steps of one cell in it.
"""

import sys

import neoflow as nf
from neoflow import nn
from neoflow.nn import functional as F

VARIANTS = {"ptb_lstm_native": {}}
SMALL = {"words": 256}


def gate(x, h, weights, n):
    """Before its sigmoid or tanh: [B, H], of the n-th block of rows of the weights."""
    size = h.shape[1]
    wx, wh, bx, bh = (w[n * size : (n + 1) * size] for w in weights)
    return F.linear(x, wx, bx) + F.linear(h, wh, bh)


def cell(x, h, c, weights):
    """(h', c'); gates in the order i, f, z, o."""
    i, f = nf.sigmoid(gate(x, h, weights, 0)), nf.sigmoid(gate(x, h, weights, 1))
    z, o = nf.tanh(gate(x, h, weights, 2)), nf.sigmoid(gate(x, h, weights, 3))
    c = f * c + i * z
    return o * nf.tanh(c), c


def build(batch=20, *, words=10000, hidden=200, steps=20, layers=2):
    """x [T, B]: word numbers; labels [T, B]: the words to predict."""
    p = nn.Parameters("ptb_lstm")
    ids = nf.placeholder((steps, batch), "int64", name="x")
    labels = nf.placeholder((steps, batch), "int64", name="labels")
    table, out_w, out_b = p("embedding", words, hidden), p("out_w", words, hidden), p("out_b", words)
    shapes = {"weight_ih": (4 * hidden, hidden), "weight_hh": (4 * hidden, hidden)}
    shapes |= {"bias_ih": (4 * hidden,), "bias_hh": (4 * hidden,)}
    weights = [[p(f"lstm.{key}_l{n}", *shape) for key, shape in shapes.items()] for n in range(layers)]
    embedded, start = F.embedding(table, ids), nf.zeros((batch, hidden))
    states, outputs = [(start, start)] * layers, []
    for t in range(steps):
        x = embedded[t]
        for n in range(layers):
            states[n] = cell(x, *states[n], weights[n])
            x = states[n][0]
        outputs.append(x)
    logits = F.linear(nf.stack(outputs), out_w, out_b)
    loss = F.cross_entropy(logits, labels)
    return nn.Model("ptb_lstm_native", ids, labels, p, loss, logits, words, vocabulary=words, batch_axis=1)


def main():
    from neoflow.cli import main as command

    sys.argv[1:1] = ["train", __file__]
    command()


if __name__ == "__main__":
    main()

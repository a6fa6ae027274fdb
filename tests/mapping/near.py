"""A recurrence written out by hand in which one step may be another: what looks like a cell and is none."""

import numpy as np

import neoflow as nf

GATES = ("sigmoid", "sigmoid", "tanh", "sigmoid")
OTHERS = {"sigmoid": ("tanh", "relu", "exp"), "tanh": ("sigmoid", "sin", "relu")}


def drawn(seed):
    """(outputs, feeds, inputs) of an LSTM of 8 to 12 steps, of which one in the middle is wrong in one place."""
    rng = np.random.default_rng(seed)
    steps, wrong = int(rng.integers(8, 13)), str(rng.choice(["gate", "function", "state", "weight", "input"]))
    at, which = int(rng.integers(4, steps - 4 + 1)), int(rng.integers(4))
    other = str(rng.choice(OTHERS[GATES[which]]))
    swap = int(rng.choice([n for n in range(4) if n != which]))
    return lstm(steps, rng, {at: (wrong, which, other, swap)})


def lstm(steps, rng, wrong=None):
    """wrong: by step, the fault, its gate, another function and another gate."""
    xs = nf.placeholder((steps, 2, 3), name="xs")
    wx = [nf.parameter((3, 4), name=f"wx{n}") for n in range(4)]
    wh = [nf.parameter((4, 4), name=f"wh{n}") for n in range(4)]
    start = nf.placeholder((2, 4), name="start")
    leaves = [xs, *wx, *wh, start]
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in leaves}
    h = c = start
    before, rows = [start], []
    for t in range(steps):
        fault, which, other, swap = (wrong or {}).get(t, ("", -1, "", -1))
        gates = []
        for n, name in enumerate(GATES):
            is_wrong = n == which
            state = before[-2] if is_wrong and fault == "state" else h
            row = xs[0] if is_wrong and fault == "input" else xs[t]
            product = row @ wx[swap if is_wrong and fault == "gate" else n]
            recurrent = state @ (wh[n] * 2.0 if is_wrong and fault == "weight" else wh[n])
            function = other if is_wrong and fault == "function" else name
            gates.append(getattr(nf, function)(product + recurrent))
        i, f, z, o = gates
        c = f * c + i * z
        h = o * nf.tanh(c)
        before.append(h)
        rows.append(h)
    return [nf.stack(rows)], feeds, [xs, start]


def wrong_cell(seed):
    """The same, the fault in every step: a recurrence of a cell that is no LSTM."""
    rng = np.random.default_rng(seed)
    steps, wrong = int(rng.integers(6, 9)), str(rng.choice(["function", "state"]))
    which, other = int(rng.integers(4)), ""
    other = str(rng.choice(OTHERS[GATES[which]]))
    return lstm(steps, rng, {t: (wrong, which, other, 0) for t in range(1, steps)})

"""A small network with what a package has to carry: a table that is looked up, constants, running statistics, an update
that overwrites in place and one that does not, an output that is a parameter's old value."""

import numpy as np

import neoflow as nf

BATCH, WORDS, WIDTH = 8, 20, 16


def functions(target="cpu"):
    """(step, infer) over one set of parameters."""
    ids, labels = nf.placeholder((BATCH,), "int64", name="ids"), nf.placeholder((BATCH,), "int64", name="labels")
    table = nf.parameter((WORDS, WIDTH), name="table", init=_init)
    norm, linear = nf.nn.BatchNorm(WIDTH), nf.nn.Linear(WIDTH, 10)
    hidden = nf.compute((BATCH, WIDTH), lambda b, h: table[ids[b], h], name="hidden")
    wave = np.sin(np.arange(BATCH * WIDTH, dtype=np.float32)).reshape(BATCH, WIDTH)
    scores = linear(nf.tanh(norm(hidden)) + nf.constant(wave, name="wave"))
    loss = nf.nn.functional.cross_entropy(scores, labels)
    trained = [table, *norm.parameters(), *linear.parameters()]
    updates = {p: p - 0.1 * g for p, g in zip(trained, nf.grad(loss, trained), strict=True)}
    updates.update(nf.nn.state(loss))
    before = linear.parameters()[-1]
    step = nf.compile([loss, before], [ids, labels], updates, target)
    infer = nf.compile([nf.nn.inference(scores)], [ids], target=target)
    return step, infer


def _init(shape, rng):
    return rng.standard_normal(shape)


def batch():
    rng = np.random.default_rng(0)
    return rng.integers(0, WORDS, BATCH), rng.integers(0, 10, BATCH)


def ten_steps(step, infer):
    """The losses of ten steps, what the last one returned beside its loss, and the scores after them."""
    ids, labels = batch()
    results = [step(ids, labels) for _ in range(10)]
    return [float(r[0]) for r in results], results[-1][1], infer(ids)[0]

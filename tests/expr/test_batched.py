"""A program over a batch computes what it computes of each sample."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.batched import batched
from neoflow.expr.tensor import Parameter, Placeholder
from tests.strategies import random_program

SIZE = 3


def compare(roots, feeds, which, rng):
    """Each root over batches of the inputs `which`, beside the root of each sample. How many depend on one."""
    batches = {t: Placeholder((SIZE, *t.shape), t.dtype, f"{t.name}s", None) for t in which}
    many = {t: np.stack([rng.permutation(feeds[t].ravel()).reshape(t.shape) for _ in range(SIZE)]) for t in which}
    found = batched(roots, batches, SIZE)
    rest = {t: v for t, v in feeds.items() if t not in batches}
    together = nf.evaluate(found, {**rest, **{batches[t]: v for t, v in many.items()}})
    alone = [nf.evaluate(roots, {**rest, **{t: v[n] for t, v in many.items()}}) for n in range(SIZE)]
    for position, (t, new) in enumerate(zip(roots, found, strict=True)):
        expected = np.stack([values[position] for values in alone])
        got = together[position] if new is not t else np.stack([together[position]] * SIZE)
        if t.dtype.startswith(("float", "bfloat")):
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)
        else:
            np.testing.assert_array_equal(got, expected)
    return sum(new is not t for t, new in zip(roots, found, strict=True))


def law(seeds):
    changed = 0
    for seed in seeds:
        program, rng = random_program(seed, gathers=False), np.random.default_rng(seed)
        placeholders = [t for t in program.feeds if not isinstance(t, Parameter)]
        which = [t for t in placeholders if rng.random() < 0.7] or placeholders[:1]
        changed += compare(program.with_gradients(), program.feeds, which, rng)
    return changed


def test_random_programs_and_their_gradients():
    assert law(range(12)) > 12


@pytest.mark.slow
def test_many_random_programs_and_their_gradients():
    assert law(range(1000, 1400)) > 400


def test_reads_by_data_and_their_gradients():
    rng = np.random.default_rng(0)
    table, ids = nf.placeholder((7, 4), name="table"), nf.placeholder((5,), "int64", name="ids")
    y = nf.expr("y[t,h] = tanh(table[ids[t],h])", table=table, ids=ids)
    roots = [y, *nf.vjp(y, [table])]
    feeds = {table: rng.standard_normal((7, 4)).astype("float32"), ids: rng.integers(0, 7, 5)}
    for which in ([table], [ids], [table, ids]):
        assert compare(roots, feeds, which, rng) == 2


def test_what_reads_no_batch_stays():
    x, w = nf.placeholder((3,), name="x"), nf.placeholder((3,), name="w")
    y, z = x * 2, w * 2
    many = nf.placeholder((SIZE, 3), name="xs")
    found = batched([y, z, x], {x: many}, SIZE)
    assert found[0].shape == (SIZE, 3) and found[1] is z and found[2] is many

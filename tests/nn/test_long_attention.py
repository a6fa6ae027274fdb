"""Attention in blocks of keys: the values and gradients of attention, and no scores of all keys in memory."""

import math

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import recurrence
from neoflow.expr.recurrence import Looped
from neoflow.expr.tensor import topological
from neoflow.nn import attention
from neoflow.nn.functional import scaled_dot_product_attention

S, T, D, E = 12, 16, 4, 6


def inputs(batch=(2,)):
    return [nf.placeholder((*batch, *n), name=name) for name, n in (("q", (S, D)), ("k", (T, D)), ("v", (T, E)))]


def draw(tensors, seed=0):
    rng = np.random.default_rng(seed)
    return {t: rng.standard_normal(t.shape) * 2 for t in tensors}


def has_loop(tensor):
    return any(isinstance(t, Looped) for t in topological([tensor]))


def seen(kind):
    """Of some queries no key is seen."""
    rng = np.random.default_rng(3)
    rows = rng.random((S, T)) < 0.5
    rows[2] = False
    return {
        "bool": nf.constant(rows),
        "added": nf.constant(rng.standard_normal((2, S, T)).astype(np.float32)),
        "rows": nf.constant(rows[:, :1]),
    }.get(kind)


@pytest.mark.parametrize("block", [1, 4, 8])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added", "rows"])
def test_values_and_gradients_are_those_of_all_keys_at_once(block, kind):
    given = inputs()
    options = {"causal": kind == "causal", "mask": seen(kind)}
    roots = []
    for keys in (T, block):
        y = scaled_dot_product_attention(*given, block=keys, **options)
        assert has_loop(y) == (keys < T)
        roots += [y, *nf.grad(nf.sum(y * nf.sin(y)), given)]
    values = nf.evaluate(roots, draw(given), dtype="float64")
    for a, b in zip(values[:4], values[4:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_any_dimensions_may_stand_before():
    for batch in ((), (2, 3)):
        given = inputs(batch)
        whole, parts = (scaled_dot_product_attention(*given, block=n) for n in (T, 4))
        a, b = nf.evaluate([whole, parts], draw(given), dtype="float64")
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_long_attention_goes_in_blocks_by_itself():
    def long(n, keys):
        q, k = nf.placeholder((4, n, 64), name="q"), nf.placeholder((4, keys, 64), name="k")
        return has_loop(scaled_dot_product_attention(q, k, k))

    assert long(4096, 4096) and not long(1024, 1024)
    assert not long(4096, 4099), "no block divides the keys"
    assert 4 * 4 * 4096 * 4096 >= attention.LARGE > 4 * 4 * 1024 * 1024


def test_blocks_that_do_not_divide_the_keys_are_refused():
    with pytest.raises(nf.ExpressionError, match="attention: blocks of 5 do not divide 16 keys"):
        scaled_dot_product_attention(*inputs(), block=5)


@pytest.mark.tvm
def test_no_kernel_writes_the_scores_of_all_keys(monkeypatch):
    """Neither forward nor backward: what would be huge of all steps stays in its step, or is computed again."""
    rows, keys, block = 128, 256, 32
    given = [nf.placeholder((1, n, 8), name=name) for name, n in (("q", rows), ("k", keys), ("v", keys))]
    feeds = draw(given)

    def compiled(large):
        monkeypatch.setattr(recurrence, "LARGE", large)
        y = scaled_dot_product_attention(*given, block=block)
        outputs = [y, *nf.grad(nf.sum(y * y), given)]
        return outputs, nf.compile(outputs, given)

    outputs, f = compiled(1 << 12)
    scores = 4 * rows * keys
    assert max(4 * math.prod(b.shape) for b in f.plan.buffers if b.dtype == "float32") < scores
    _, g = compiled(1 << 25)
    assert max(4 * math.prod(b.shape) for b in g.plan.buffers if b.dtype == "float32") >= scores
    exact = nf.evaluate(outputs, feeds, dtype="float64")
    for one in (f, g):
        for a, b in zip(one(*(feeds[t].astype(np.float32) for t in given)), exact, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)

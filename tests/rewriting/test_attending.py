"""Attention that users write with all scores, in blocks of keys: what is found, what it is worth, and what is left."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.recurrence import Looped
from neoflow.graph import make_graph
from neoflow.rewriting.attending import in_blocks
from neoflow.target import cpu_target

BATCH, HEADS, ROWS, KEYS, DEPTH, WIDTH = 2, 3, 64, 96, 4, 5


def weights(scores, way):
    """A softmax as users write it."""
    if way == "library":
        return nf.nn.functional.softmax(scores)
    e = nf.exp(scores - nf.max(scores, axis=-1, keepdims=True) if way == "shifted" else scores)
    return e / nf.sum(e, axis=-1, keepdims=True)


def masked(scores, kind, fed):
    """Scores of [B, H, S, T] after a mask; what is fed for it goes into `fed`."""

    def given(shape, dtype="float32"):
        fed.append(nf.placeholder(shape, dtype, name="mask"))
        return fed[-1]

    def chosen(condition, is_seen=True):
        def body(b, h, s, t):
            here = scores[b, h, s, t]
            seen = condition(b, h, s, t)
            return nf.select(seen, here, -1e30) if is_seen else nf.select(seen, -1e9, here)

        return nf.compute(scores.shape, body, name="masked")

    match kind:
        case "padded":
            return scores + given((BATCH, 1, 1, KEYS))
        case "biased":
            return scores + given((HEADS, ROWS, KEYS))
        case "seen":
            m = given((ROWS, KEYS), "bool")
            return chosen(lambda b, h, s, t: m[s, t])
        case "causal":
            return chosen(lambda b, h, s, t: t <= s)
        case "later":
            return chosen(lambda b, h, s, t: t > s, False)
        case "both":
            m = given((BATCH, KEYS), "bool")
            return chosen(lambda b, h, s, t: (s >= t) & m[b, t])
        case "weak":
            return nf.compute(scores.shape, lambda b, h, s, t: nf.select(t <= s, scores[b, h, s, t], -3.0))
    return scores


def attention(kind="none", way="library", batch=(BATCH, HEADS), keys=KEYS):
    """A loss with its gradients, and what is fed."""
    q, k, v = (
        nf.placeholder((*batch, *n), name=name)
        for n, name in (((ROWS, DEPTH), "q"), ((keys, DEPTH), "k"), ((keys, WIDTH), "v"))
    )
    fed = [q, k, v]
    scores = masked((q @ nf.swapaxes(k, -1, -2)) * 0.5, kind, fed)
    y = weights(scores, way) @ v
    loss = nf.sum(y * nf.sin(y))
    return [y, *nf.grad(loss, [q, k, v])], fed


def blocked(roots, fed, least=1, memory=None):
    return in_blocks(make_graph(roots, fed), cpu_target(2), "fp32", least, memory)


def loops(graph):
    return [t for t in graph.order if isinstance(t, Looped)]


def draw(fed, seed):
    rng = np.random.default_rng(seed)
    feeds = {}
    for t in fed:
        values = rng.standard_normal(t.shape)
        feeds[t] = (values < 1) | (np.arange(t.shape[-1]) == 0) if t.dtype == "bool" else values
    return feeds


@pytest.mark.parametrize("way", ["library", "shifted", "plain"])
@pytest.mark.parametrize("kind", ["none", "padded", "biased", "seen", "causal", "later", "both"])
def test_values_and_gradients_stay(kind, way, monkeypatch):
    monkeypatch.setattr("neoflow.rewriting.attending.PRICE", 100.0)
    monkeypatch.setattr("neoflow.expr.recurrence.LARGE", 1)
    roots, fed = attention(kind, way)
    found = blocked(roots, fed)
    assert found.is_taken and len(loops(found.graph)) >= 2, str(found)
    assert "attention in blocks of 32 of 96 keys" in str(found)
    assert ("by what comes after it" in str(found)) == (kind in ("causal", "later", "both"))
    feeds = draw(fed, 1)
    values = (nf.evaluate(list(r), feeds, dtype="float64") for r in (roots, found.graph.outputs))
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_any_dimensions_may_stand_before(batch):
    roots, fed = attention(batch=batch)
    assert [v.ok for v in blocked(roots, fed).sites] == [True]


def hidden_by(value):
    """What a mask that is fed does not show is so many."""
    _, fed = attention()
    q, k, v = fed
    mask = nf.placeholder((ROWS, KEYS), "bool", name="mask")
    scores = q @ nf.swapaxes(k, -1, -2)
    z = nf.compute(scores.shape, lambda b, h, s, t: nf.select(mask[s, t], scores[b, h, s, t], value))
    return [weights(z, "library") @ v], [*fed, mask]


def test_what_is_left_and_why():
    def reasons(program, **options):
        found = blocked(*program, **options)
        assert not found.is_taken and found.summary == "left as it is" and not loops(found.graph)
        return str(found)

    assert "no block of 32 keys and more divides 33" in reasons(attention(keys=33))
    assert "scores of -3 in place of what is masked have a weight" in reasons(hidden_by(-3.0))
    assert "the softmax of -inf is no number" in reasons(hidden_by(float("-inf")))
    assert "in blocks it would take " in reasons(attention())  # its steps are kept for a gradient
    assert "left as it is: it fits into 1.00 GiB" in reasons(attention(), memory=1 << 30)
    scores = BATCH * HEADS * ROWS * KEYS * 4
    assert not blocked(*attention(), least=scores + 1).sites and blocked(*attention(), least=scores).sites


def test_fewer_bytes_have_a_price(monkeypatch):
    monkeypatch.setattr("neoflow.expr.recurrence.LARGE", 1)
    monkeypatch.setattr("neoflow.rewriting.attending.PRICE", 0.5)
    found = blocked(*attention())
    assert not found.is_taken and "in blocks it would take" in found.reason and " ms, not " in found.reason
    assert found.nbytes[0] > found.nbytes[1]
    under = blocked(*attention(), memory=found.nbytes[0] - 1)
    assert under.is_taken and under.reason.startswith("it takes ")


@pytest.mark.tvm
def test_a_step_runs_with_and_without(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("neoflow.rewriting.attending.PRICE", 100.0)
    monkeypatch.setattr("neoflow.expr.recurrence.LARGE", 1)
    roots, fed = attention("both")
    feeds = {t: x if t.dtype == "bool" else x.astype(np.float32) for t, x in draw(fed, 3).items()}
    f = nf.compile(roots, fed)
    assert "attention" not in f.explain()  # its scores are few
    for name in ("LARGE", "LARGE_STEPS"):
        monkeypatch.setattr(f"neoflow.rewriting.asked.{name}", 1)
    g = nf.compile(roots, fed)
    assert "1 in blocks of keys" in g.explain() and "each key by what comes after it" in g.explain("attention")
    for a, b in zip(f(*feeds.values()), g(*feeds.values()), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    monkeypatch.setenv("NEOFLOW_WITHOUT", "attention")
    with pytest.raises(nf.ConfigError, match="there is no stage 'attention'"):
        nf.compile(roots, fed).explain("attention")


@pytest.mark.slow
@pytest.mark.tvm
def test_a_limit_to_memory_that_scores_alone_exceed(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    q, k, v = (nf.placeholder((2, 2048, 32), name=n) for n in "qkv")
    y = weights(q @ nf.swapaxes(k, -1, -2) * 0.2, "shifted") @ v
    roots = [nf.sum(y * y), *nf.grad(nf.sum(y * y), [q, k, v])]
    f = nf.compile(roots, [q, k, v], memory="32MiB")
    assert "in blocks of 256 of 2048 keys" in f.explain("attention")
    assert f.compiled.plan.nbytes <= 32 << 20
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape).astype(np.float32) for t in (q, k, v)}
    for a, b in zip(f(*feeds.values()), nf.evaluate(roots, feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())

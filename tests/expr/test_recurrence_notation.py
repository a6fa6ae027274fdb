"""Index notation of what reads itself: values beside a loop of NumPy, and what is refused."""

import numpy as np
import pytest

import neoflow as nf
from tests.expr.refusals import check_refusal

T, B, H = 6, 3, 4
x, w = nf.placeholder((T, B, H), name="x"), nf.parameter((H, H), name="w")
h0 = nf.placeholder((B, H), name="h0")
rng = np.random.default_rng(0)
FED = {t: rng.standard_normal(t.shape, dtype=np.float32) for t in (x, w, h0)}
X, W, FIRST = FED.values()


def values(*tensors):
    return nf.evaluate(list(tensors), FED)


def test_a_recurrent_layer():
    text = "h[t,b,i] = tanh(sum(h[t-1,b,j] * w[j,i]) + x[t,b,i]) given h[-1] = h0"
    h = nf.expr(text, x=x, w=w, h0=h0)
    rows, state = values(h)[0], FIRST
    for t in range(T):
        state = np.tanh(state @ W + X[t])
        np.testing.assert_allclose(rows[t], state, atol=1e-5)
    nf.check_grad(nf.sum(h * h), [x, w, h0])


def test_several_steps_before():
    f = nf.expr("f[t] = f[t-1] + f[t-2] given f[-1] = 1, f[-2] = 0", extents={"t": 8})
    assert nf.evaluate([f], {})[0].tolist() == [1, 2, 3, 5, 8, 13, 21, 34]


def test_statements_that_need_one_another():
    text = """z[t,b,i] = sum(h[t-1,b,j] * w[j,i]) + x[t,b,i]
        c[t,b,i] = c[t-1,b,i] * sigmoid(z[t,b,i]) + tanh(z[t,b,i]) given c[-1] = h0
        h[t,b,i] = tanh(c[t,b,i]) given h[-1] = h0"""
    h, c = values(*nf.expr(text, x=x, w=w, h0=h0, outputs=["h", "c"]))
    state = cell = FIRST
    for t in range(T):
        z = state @ W + X[t]
        cell = cell / (1 + np.exp(-z)) + np.tanh(z)
        state = np.tanh(cell)
        np.testing.assert_allclose(h[t], state, atol=1e-5)
        np.testing.assert_allclose(c[t], cell, atol=1e-5)


def test_from_the_last_step_to_the_first():
    h = nf.expr("h[t,b,i] = 0.5 * h[t+1,b,i] + x[t,b,i] given h[6] = h0", x=x, h0=h0)
    rows, state = values(h)[0], FIRST
    for t in reversed(range(T)):
        state = 0.5 * state + X[t]
        np.testing.assert_allclose(rows[t], state, atol=1e-5)


def test_any_part_of_the_past():
    text = "h[t,b,i] = tanh(sum[s<6](select(s < t, h[s,b,i], 0.0)) + x[t,b,i]) given h[-1] = h0"
    h = nf.expr(text, x=x, h0=h0)
    found, rows = values(h)[0], []
    for t in range(T):
        rows.append(np.tanh(sum(rows) + X[t]))
        np.testing.assert_allclose(found[t], rows[t], atol=1e-5)
    nf.check_grad(nf.sum(h), [x])


def test_half_as_far_back():
    h = nf.expr("h[t,b,i] = h[t//2-1,b,i] * 0.5 + x[t,b,i] given h[-1] = h0", x=x, h0=h0)
    found = values(h)[0]
    for t in range(T):
        before = found[t // 2 - 1] if t > 1 else FIRST
        np.testing.assert_allclose(found[t], before * 0.5 + X[t], atol=1e-5)


def test_other_rows_and_the_number_of_a_step():
    y = nf.placeholder((2 * T + 1,), name="y")
    s = nf.expr("s[t] = s[t-1] + y[2*t+1] * t given s[-1] = 0.0", y=y, extents={"t": T})
    given = np.arange(2 * T + 1, dtype=np.float32)
    want = np.cumsum([given[2 * t + 1] * t for t in range(T)])
    np.testing.assert_allclose(nf.evaluate([s], {y: given})[0], want)


REFUSED = {
    "a recurrence reads earlier steps or later ones, not both": "h[t,b,i] = h[t+1,b,i] + h[t-1,b,i] + x[t,b,i] "
    "given h[-1] = h0",
    "step 0 reads step 0 at t=0": "h[t,b,i] = h[2*t,b,i] + x[t,b,i] given h[-1] = h0",
    "`h` of step -2 is read: say what it is": "h[t,b,i] = h[t-2,b,i] + x[t,b,i] given h[-1] = h0",
    "is not known yet in the step that computes it": "h[t,b,i] = h[t,b,i] + x[t,b,i] given h[-1] = h0",
    "the extent of index `t` cannot be inferred": "h[t] = h[t-1] given h[-1] = 1",
    "`given` says what there was before the first step": "h[t,b,i] = h[t-1,b,i] + x[t,b,i] given h[0] = h0",
    "what is given is an element of what is defined": "h[t,b,i] = h[t-1,b,i] + x[t,b,i] given h0",
    "`given` names `k`, which is not bound": "h[t,b,i] = h[t-1,b,i] + x[t,b,i] given h[-1] = k",
    "the first index of a recurrence numbers its steps": "h[2,b,i] = h[t-1,b,i] + x[t,b,i] given h[-1] = h0",
    "go over one first index, not `t` and `s`": "c[t,b,i] = h[t-1,b,i] + x[t,b,i] given c[-1] = h0\n"
    "h[s,b,i] = c[s-1,b,i] given h[-1] = h0",
    "but what is given before the first step is float32[3, 4]": "h[t,b,i,k] = h[t-1,b,i] + x[t,b,k] given h[-1] = h0",
    "`t` has extent 7 by": "h[t<7,b,i] = h[t-1,b,i] + x[t,b,i] given h[-1] = h0",
    "reads any part of its past: say what there was before it": "z[t,b,i] = h[t-1,b,i] + x[t,b,i]\n"
    "h[t,b,i] = z[t//2-1,b,i] given h[-1] = h0",
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    check_refusal(lambda: nf.expr(REFUSED[message], x=x, h0=h0), message, __file__)

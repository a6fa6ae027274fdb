"""What differentiation refuses, and in which words."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.autodiff import rules
from neoflow.errors import GradientError


def x():
    return nf.placeholder((3, 4), name="x")


def refused(*parts):
    return pytest.raises(GradientError, match=".*".join(parts))


def test_a_loss_of_more_than_one_element():
    a = x()
    with refused(r"test_errors.py:\d+: grad needs a loss of one element; tanh has shape \(3, 4\)", "nf.mean", "nf.vjp"):
        nf.grad(nf.tanh(a), [a])


def test_a_loss_of_one_element_may_have_any_rank():
    a = x()
    (d,) = nf.grad(nf.sum(a, axis=(0, 1), keepdims=True), [a])
    assert np.all(nf.evaluate([d], {a: np.zeros((3, 4), np.float32)})[0] == 1)


def test_an_integer_loss():
    a = x()
    with refused("sum is int64: only float tensors have gradients"):
        nf.grad(nf.sum(nf.cast(a, "int64")), [a])


def test_an_integer_parameter():
    a, ids = x(), nf.placeholder((2,), "int64", name="ids")
    loss = nf.sum(nf.take(a, ids))
    with refused("ids is int64: only float tensors have gradients"):
        nf.grad(loss, [a, ids])


@pytest.mark.parametrize("fn", [nf.argmax, nf.argmin])
def test_the_position_of_an_extreme(fn):
    a, table = x(), nf.placeholder((4,), name="table")
    loss = nf.sum(nf.take(table, fn(a, axis=1)))
    with refused("does not depend on x through differentiable operations", "argmax", "allow_unused=True"):
        nf.grad(loss, [a])
    d_table, d_x = nf.grad(loss, [table, a], allow_unused=True)
    feeds = {a: np.eye(3, 4, dtype=np.float32), table: np.zeros(4, np.float32)}
    counts, zeros = nf.evaluate([d_table, d_x], feeds)
    assert counts.sum() == 3 and not zeros.any()


def test_a_condition_alone():
    a, b = x(), nf.placeholder((3, 4), name="b")
    loss = nf.sum(nf.select(a > 0.0, b, 0.0 * b))
    with refused("does not depend on x through differentiable operations", "conditions"):
        nf.grad(loss, [a])


def test_what_goes_through_integers():
    a = x()
    with refused("does not depend on x through differentiable operations", "integers"):
        nf.grad(nf.sum(nf.cast(nf.cast(a, "int32"), "float32")), [a])


def test_an_unused_parameter():
    a, w = x(), nf.parameter((5,), name="w")
    with refused("sum does not depend on w", "allow_unused=True to get zeros"):
        nf.grad(nf.sum(a), [a, w])
    _, d_w = nf.grad(nf.sum(a), [a, w], allow_unused=True)
    assert d_w.shape == (5,) and not nf.evaluate([d_w], {})[0].any()


@pytest.mark.parametrize(("shape", "dtype"), [((4, 3), "float32"), ((3, 4, 1), "float32"), ((3, 4), "float64")])
def test_a_cotangent_that_does_not_fit(shape, dtype):
    a = x()
    with refused(rf"the cotangent has {dtype}\({shape[0]}, {shape[1]}", r"but tanh has float32\(3, 4\)"):
        nf.vjp(nf.tanh(a), [a], nf.placeholder(shape, dtype, name="g"))


def test_check_grad_finds_a_wrong_rule(monkeypatch):
    """sin' = sin, of a shape of its own: an adjoint is remembered on its definition."""
    monkeypatch.setitem(rules.RULES, "sin", lambda x, y, g: (rules.mul(g, y),))
    a = nf.placeholder((3, 17), name="x")
    with refused(r"d sin / d x\[\d, \d\] is \S+ but differences give \S+ \(allowed: 1e-05 \+ 0.001"):
        nf.check_grad(nf.sin(a), a)


def test_check_grad_reports_how_close():
    a = x()
    assert nf.check_grad(nf.sin(a), a) < 0.1


def test_check_grad_finds_what_is_not_a_number():
    a = x()
    with refused("is nan"):
        nf.check_grad(nf.sqrt(a), a, {a: -np.ones((3, 4))})


def test_check_grad_of_what_is_not_read():
    a = x()
    with refused("sin does not depend on b"):
        nf.check_grad(nf.sin(a), nf.placeholder((2,), name="b"))


def test_a_padded_operand_of_which_only_the_border_is_read():
    """Nothing of x is read: its gradient is zero, not a crash."""
    x, w = nf.placeholder((3,), name="x"), nf.placeholder((2,), name="w")
    padded = nf.compute((8,), lambda u: nf.select((u >= 1) & (u < 4), x[u - 1], 0.0))
    r = nf.axis(2, "r")
    y = nf.compute((2,), lambda i: nf.sum(padded[i + r + 5] * w[r], axis=[r]))
    dx, dw = nf.evaluate(nf.vjp(y, [x, w]), {x: np.ones(3), w: np.ones(2)}, dtype="float64")
    assert not dx.any() and not dw.any()

"""Functions with recurrences as operators of PyTorch and JAX: values, derivatives, batches, none a loop of theirs."""

import numpy as np
import pytest

import neoflow as nf

pytestmark = pytest.mark.tvm


def decayed(x, w):
    """x [T, I], w [I]: the sums of what was, decayed, of every step."""

    def step(h, row):
        h = nf.tanh(h * w + row)
        return h, h

    return nf.scan(step, nf.zeros(w.shape), x)[1]


def by_hand(x, w, tanh, stack):
    h, rows = 0 * w, []
    for row in x:
        h = tanh(h * w + row)
        rows.append(h)
    return stack(rows)


@pytest.mark.torch
class TestPyTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def given(self, torch, *batch):
        torch.manual_seed(0)
        return torch.randn(*batch, 5, 3), torch.randn(3)

    def test_values_and_gradients(self, torch):
        f = nf.torch.operator(decayed)
        found = []
        for function in (f, lambda x, w: by_hand(x, w, torch.tanh, torch.stack)):
            x, w = (t.requires_grad_() for t in self.given(torch))
            y = function(x, w)
            (dw,) = torch.autograd.grad((y * y).sum(), w, create_graph=True)
            found.append([y, dw, *torch.autograd.grad((dw * dw).sum(), [x, w])])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

    def test_batches(self, torch):
        f = nf.torch.operator(decayed)
        x, w = self.given(torch, 4)
        y = torch.func.vmap(f, (0, None))(x, w)
        torch.testing.assert_close(y, torch.stack([f(row, w) for row in x]))
        each = torch.func.vmap(torch.func.grad(lambda x, w: f(x, w).sum(), 1), (0, None))(x, w)
        one = [torch.func.grad(lambda x, w: f(x, w).sum(), 1)(row, w) for row in x]
        torch.testing.assert_close(each, torch.stack(one), rtol=1e-4, atol=1e-5)

    @pytest.mark.slow
    def test_under_its_compiler(self, torch):
        f = nf.torch.operator(decayed)
        x, w = self.given(torch)
        g = torch.compile(lambda x, w: f(x, w) * 2, backend="aot_eager")
        torch.testing.assert_close(g(x, w), 2 * f(x, w))


@pytest.mark.jax
def test_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    f = nf.jax.operator(decayed)
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((4, 5, 3), (3,)))

    def twin(x, w):
        return by_hand(x, w, jnp.tanh, jnp.stack)

    def derived(g):
        loss = jax.value_and_grad(lambda x, w: (g(x, w) ** 2).sum(), (0, 1))
        return jax.jit(jax.vmap(loss, (0, None)))(x, w), jax.jvp(g, (x[0], w), (x[1], w))

    for a, b in zip(jax.tree.leaves(derived(f)), jax.tree.leaves(derived(twin)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

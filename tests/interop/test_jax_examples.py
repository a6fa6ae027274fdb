"""Every example beside the same formula in jnp: values, gradients, tangents, second derivatives, batches."""

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import neoflow as nf  # noqa: E402
from neoflow.interop.family import Family  # noqa: E402
from neoflow.interop.signature import signature_of  # noqa: E402
from tests.interop.jax_examples import EXAMPLES  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.jax]
QUICK = {"lookup"}
ONE_OR_ALL = [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in EXAMPLES]


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


class Both:
    """An example in neoflow and in jnp, as functions of its float arrays alone, that give the first result."""

    def __init__(self, name):
        self.example = EXAMPLES[name]
        self.operator = nf.jax.operator(self.example.written)
        self.arguments, self.floats = self.example.draw()
        self.values = [self.arguments[n] for n in self.floats]

    def of(self, f):
        def function(*values):
            given = list(self.arguments)
            for n, v in zip(self.floats, values, strict=True):
                given[n] = v
            found = f(*given)
            return found[0] if isinstance(found, tuple) else found

        return function

    @property
    def ours(self):
        return self.of(self.operator)

    @property
    def theirs(self):
        return self.of(self.example.jnp)

    def agree(self, transformed, tolerance=1e-9):
        """Whether a function of functions makes the same of both."""
        ours, theirs = transformed(self.ours), transformed(self.theirs)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, tolerance, tolerance), ours, theirs)


def weighed(f):
    """A number whose cotangents differ by element."""

    def number(*values):
        y = f(*values)
        return (jnp.sin(y) * jnp.arange(1.0, y.size + 1).reshape(y.shape)).sum()

    return number


@pytest.mark.parametrize("name", ONE_OR_ALL)
def test_values_and_gradients(name):
    both = Both(name)
    every = tuple(range(len(both.values)))
    both.agree(lambda f: jax.jit(f)(*both.values))
    both.agree(lambda f: jax.grad(weighed(f), every)(*both.values))
    both.agree(lambda f: jax.jit(jax.grad(weighed(f), every[-1]))(*both.values))


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_values_are_those_of_evaluate(name):
    example = EXAMPLES[name]
    arguments, _ = example.draw()
    signature = signature_of(example.written, name, None)
    specs = tuple((str(a.dtype), a.shape) if hasattr(a, "dtype") else a for a in arguments)
    program = Family(example.written, signature, 1).case(specs).program
    given = [np.asarray(a) for a in arguments if hasattr(a, "dtype")]
    expected = nf.evaluate(list(program.outputs), dict(zip(program.inputs, given, strict=True)))
    found = nf.jax.operator(example.written)(*arguments)
    for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, 1e-9, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_second_derivatives(name):
    both = Both(name)
    every = tuple(range(len(both.values)))
    both.agree(lambda f: jax.jacrev(jax.grad(weighed(f), every), every)(*both.values))
    both.agree(lambda f: jax.jit(jax.hessian(weighed(f), every))(*both.values))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_forward_mode(name):
    both = Both(name)
    tangents = [jnp.cos(v) for v in both.values]
    both.agree(lambda f: jax.jvp(f, both.values, tangents))
    both.agree(lambda f: jax.jacfwd(jax.jacfwd(weighed(f)))(*both.values))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_batches(name):
    both = Both(name)
    first, *rest = both.values
    batch = jnp.stack([first, 2 * first, first - 1], axis=1)
    dims, every = (1, *(None for _ in rest)), tuple(range(len(both.values)))
    both.agree(lambda f: jax.vmap(f, dims)(batch, *rest))
    both.agree(lambda f: jax.vmap(jax.grad(weighed(f), every), dims)(batch, *rest))
    both.agree(lambda f: jax.jit(jax.grad(weighed(jax.vmap(f, dims)), every))(batch, *rest))
    both.agree(lambda f: jax.vmap(lambda *v: jax.jvp(f, v, v), dims)(batch, *rest))
    both.agree(lambda f: jax.vmap(jax.vmap(f, dims), (2, *(None for _ in rest)))(jnp.stack([batch, batch], 2), *rest))

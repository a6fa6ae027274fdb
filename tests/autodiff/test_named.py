"""Every named case against a dense Jacobian by brute force, `check_grad` and PyTorch; first and second order."""

import functools
import operator

import numpy as np
import pytest

import neoflow as nf
from neoflow.autodiff.rules import RULES
from neoflow.expr.functions import ROUND_TF32
from tests.autodiff.cases import CASES, TIED, TIES, Inputs, Named, named
from tests.autodiff.differences import compare_with_differences, compare_with_torch, first_order, second_order
from tests.strategies import Program

IDS = [c.title for c in CASES]
ROWS = 40
"""Rows of the Jacobian that are compared, at most."""


def program(case: Named) -> Program:
    new = Inputs()
    return Program(0, [case.build(new)], new.feeds)


def dense_jacobian(y, feeds, t, step):
    """d y / d t by brute force: one column for each element of t, central differences in float64."""
    columns = []
    for n in range(t.size):
        moved = []
        for sign in (1, -1):
            values = feeds[t].astype(np.float64)
            values.flat[n] += sign * step
            moved.append(nf.evaluate([y], {**feeds, t: values}, "float64")[0].reshape(-1))
        columns.append((moved[0] - moved[1]) / (2 * step))
    return np.stack(columns, 1)


def expected_of(case: Named, p: Program, cotangent):
    """PyTorch's own operator pulled back, for each float input."""
    import torch

    leaves = [torch.tensor(a).requires_grad_(a.dtype == np.float64) for a in p.feeds.values()]
    y = case.torch(torch, *leaves)
    np.testing.assert_allclose(y.detach().numpy(), nf.evaluate(p.outputs, p.feeds, "float64")[0], atol=1e-12)
    wrt = [x for x in leaves if x.requires_grad]
    grads = torch.autograd.grad(y, wrt, torch.tensor(cotangent), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wrt, grads, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_jacobian_by_brute_force(case):
    p = program(case)
    (y,) = p.outputs
    cotangent = nf.placeholder(y.shape, y.dtype, "g")
    wrt = p.float_inputs
    gradients = nf.vjp(y, wrt, cotangent, allow_unused=True)
    exact = case.is_linear
    feeds = {t: np.round(3 * a) if exact and a.dtype == np.float64 else a for t, a in p.feeds.items()}
    rows = np.random.default_rng(0).permutation(y.size)[:ROWS]
    dense = [dense_jacobian(y, feeds, t, 1.0 if exact else 1e-5) for t in wrt]
    for row in rows:
        unit = np.zeros(y.shape)
        unit.flat[row] = 1.0
        for t, gradient, jacobian in zip(
            wrt, nf.evaluate(gradients, {**feeds, cotangent: unit}, "float64"), dense, strict=True
        ):
            tolerance = {"rtol": 1e-12, "atol": 1e-12} if exact else {"rtol": 1e-6, "atol": 1e-7}
            np.testing.assert_allclose(
                gradient.reshape(-1), jacobian[row], **tolerance, err_msg=f"d y[{row}]/d {t.name}"
            )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_check_grad(case):
    p = program(case)
    wrt = [t for t in p.float_inputs if t not in unread(p)]
    assert nf.check_grad(p.outputs[0], wrt, p.feeds, samples=6) <= 1


def unread(p: Program) -> set:
    """Inputs that the output does not depend on (running statistics)."""
    from neoflow.expr.tensor import topological

    return set(p.feeds) - set(topological(p.outputs))


WITH_TORCH = [c for c in (*CASES, *named(TIES)) if c.torch is not None]


@pytest.mark.torch
@pytest.mark.parametrize("case", WITH_TORCH, ids=[c.title for c in WITH_TORCH])
def test_pytorch_has_the_operator(case):
    p = program(case)
    (y,) = p.outputs
    g = nf.placeholder(y.shape, y.dtype, "g")
    cotangent = np.random.default_rng(1).standard_normal(y.shape)
    gradients = nf.evaluate(nf.vjp(y, p.float_inputs, g, allow_unused=True), {**p.feeds, g: cotangent}, dtype="float64")
    for t, ours, theirs in zip(p.float_inputs, gradients, expected_of(case, p, cotangent), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-9, atol=1e-11, err_msg=t.name)


@pytest.mark.torch
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_second_order(case):
    """The gradient of <gradient, vector>: by PyTorch's double backward of a translation, and by differences."""
    made = second_order(program(case))
    if "not taken" not in case.title:  # PyTorch's `where` lets NaN out of the other branch
        compare_with_torch(made)
    if "1e4" not in case.title:
        compare_with_differences(made, 2, np.random.default_rng(0))


# ------------------------------------------------------------------------------------------------- scalar functions

H = 0.5 / np.sqrt(np.pi)
DERIVATIVES = {
    "neg": lambda x: -1 + 0 * x,
    "abs": lambda x: np.sign(x),
    "relu": lambda x: (x > 0) * 1.0,
    "sign": lambda x: 0 * x,
    "floor": lambda x: 0 * x,
    "ceil": lambda x: 0 * x,
    "round": lambda x: 0 * x,
    "exp": np.exp,
    "log": lambda x: 1 / x,
    "log1p": lambda x: 1 / (1 + x),
    "expm1": np.exp,
    "stop_gradient": lambda x: 0 * x,
    "tanh": lambda x: 1 / np.cosh(x) ** 2,
    "sigmoid": lambda x: 1 / (2 + np.exp(x) + np.exp(-x)),
    "sqrt": lambda x: 0.5 / np.sqrt(x),
    "rsqrt": lambda x: -0.5 * x**-1.5,
    "erf": lambda x: 4 * H * np.exp(-x * x),
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
}
"""By the textbook; at kinks by convention."""
POSITIVE = ("log", "log1p", "sqrt", "rsqrt")


def pointwise(y, x, values):
    (gradient,) = nf.vjp(y, [x], allow_unused=True)
    return nf.evaluate([gradient], {x: np.asarray(values, np.float64)}, "float64")[0]


@pytest.mark.parametrize("fn", DERIVATIVES)
def test_functions_of_one(fn):
    points = np.array([0.1, 0.5, 1.0, 1.7, 3.0])
    points = points if fn in POSITIVE else np.concatenate([-points, [0.0], points])
    x = nf.placeholder(points.shape, name="x")
    np.testing.assert_allclose(
        pointwise(getattr(nf, fn)(x) if fn != "neg" else -x, x, points), DERIVATIVES[fn](points), rtol=1e-12, atol=1e-14
    )


BINARY = {
    "add": lambda a, b: (1.0, 1.0),
    "sub": lambda a, b: (1.0, -1.0),
    "mul": lambda a, b: (b, a),
    "div": lambda a, b: (1 / b, -a / b**2),
    "maximum": lambda a, b: ((a > b) + 0.5 * (a == b), (b > a) + 0.5 * (a == b)),
    "minimum": lambda a, b: ((a < b) + 0.5 * (a == b), (b < a) + 0.5 * (a == b)),
    "pow": lambda a, b: (b * a ** (b - 1), a**b * np.log(a)),
}


@pytest.mark.parametrize("fn", BINARY)
def test_functions_of_two(fn):
    values = [0.5, 1.0, 2.0] if fn == "pow" else [-1.5, -0.5, 0.5, 2.0]
    a, b = (m.reshape(-1) for m in np.meshgrid(values, values))
    x, y = nf.placeholder(a.shape, name="x"), nf.placeholder(a.shape, name="y")
    whole = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
    z = whole[fn](x, y) if fn in whole else getattr(nf, fn)(x, y)
    found = nf.evaluate(nf.vjp(z, [x, y]), {x: a, y: b}, "float64")
    for ours, textbook in zip(found, BINARY[fn](a, b), strict=True):
        np.testing.assert_allclose(ours, np.broadcast_to(textbook, a.shape), rtol=1e-12)


def test_every_rule_has_a_test():
    """But of a rounding that precision alone asks for: `tests/graph/test_precision.py`."""
    assert {*DERIVATIVES, *BINARY, ROUND_TF32} == set(RULES)


@pytest.mark.parametrize(
    ("power", "points", "slopes"),
    [
        (0.0, [-1, 0, 2], [0, 0, 0]),
        (1.0, [-1, 0, 2], [1, 1, 1]),
        (2.0, [-1, 0, 2], [-2, 0, 4]),
        (3.0, [-1, 0, 2], [3, 0, 12]),
        (0.5, [0, 4], [np.inf, 0.25]),
        (-1.0, [-2, 2], [-0.25, -0.25]),
    ],
)
def test_constant_powers(power, points, slopes):
    x = nf.placeholder((len(points),), name="x")
    np.testing.assert_allclose(pointwise(nf.pow(x, power), x, points), slopes)


def test_powers_at_zero():
    x, p = nf.placeholder((4,), name="x"), nf.placeholder((4,), name="p")
    by_base, by_power = nf.vjp(nf.pow(x, p), [x, p])
    at = {x: np.array([0.0, 0.0, 0.0, 2.0]), p: np.array([0.0, 1.0, 2.0, 0.0])}
    assert nf.evaluate([by_base], at, "float64")[0].tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(nf.evaluate([by_power], at, "float64")[0], [0, 0, 0, np.log(2)])


def test_ties_share_equally():
    x = nf.placeholder((3, 4), name="x")
    shares = pointwise(nf.max(x, axis=1), x, TIED)
    np.testing.assert_allclose(shares, [[0, 0.5, 0.5, 0], [0.25] * 4, [0, 0, 0.5, 0.5]])


def test_what_is_compared_at_a_tie_has_the_bits_of_the_forward_pass():
    """exp over both orders of a product: equal numbers, and half for each."""
    x = nf.placeholder((2, 3), name="x")
    k = nf.axis(2, "k")
    y = nf.compute((3,), lambda j: nf.max(nf.exp(x[k, j] * x[1 - k, j]), axis=[k]))
    values = np.random.default_rng(0).standard_normal((2, 3))
    product = values[0] * values[1]
    np.testing.assert_allclose(pointwise(y, x, values), np.exp(product) * values[::-1])


# ------------------------------------------------------------------------------------------------------ second order


def hessian_vector(loss, parameters, feeds):
    """<H, v> for random v, and the same from central differences of the gradient."""
    rng = np.random.default_rng(3)
    vectors = [nf.placeholder(p.shape, p.dtype, f"v{n}") for n, p in enumerate(parameters)]
    feeds = {**feeds, **{v: rng.standard_normal(v.shape) for v in vectors}}
    gradients = nf.grad(loss, parameters)
    along = functools.reduce(operator.add, (nf.sum(g * v) for g, v in zip(gradients, vectors, strict=True)))
    products = nf.evaluate(nf.grad(along, parameters), feeds, "float64")

    def gradient_at(h):
        moved = {p: feeds[p] + h * feeds[v] for p, v in zip(parameters, vectors, strict=True)}
        return nf.evaluate(gradients, {**feeds, **moved}, "float64")

    h = 1e-5
    return products, [(a - b) / (2 * h) for a, b in zip(gradient_at(h), gradient_at(-h), strict=True)]


def agree(products, differences):
    for ours, numeric in zip(products, differences, strict=True):
        np.testing.assert_allclose(ours, numeric, rtol=1e-5, atol=1e-7)


def test_hessian_of_a_perceptron():
    new = Inputs()
    x, labels = new("x", (5, 4)), new("labels", np.array([0, 2, 1, 2, 2]))
    w, b, u = new("w", (6, 4)), new("b", (6,)), new("u", (3, 6))
    logits = nf.nn.functional.linear(nf.tanh(nf.nn.functional.linear(x, w, b)), u)
    agree(*hessian_vector(nf.nn.functional.cross_entropy(logits, labels), [w, b, u], new.feeds))


def test_hessian_of_the_capsule_convolution():
    new = Inputs()
    a, w = new("a", (1, 2, 5, 5, 2, 2)), new("w", (2, 2, 3, 3, 2, 2))
    y = nf.nn.functional.squash(nf.nn.functional.capsule_conv(a, w, stride=2), axis=(4, 5))
    agree(*hessian_vector(nf.sum(y * y * y), [a, w], new.feeds))


def test_hessian_of_max_pooling():
    new = Inputs()
    x, w = new("x", (1, 2, 6, 6)), new("w", (2, 2, 3, 3))
    y = nf.nn.functional.max_pool(nf.nn.functional.conv2d(x, w, padding=1), 3, stride=2, padding=1)
    agree(*hessian_vector(nf.sum(nf.sin(y)), [x, w], new.feeds))


def test_double_backward_of_an_embedding():
    new = Inputs()
    table, ids = new("table", (5, 3)), new("ids", np.array([[3, 1, 3], [0, 3, 1]]))
    y = nf.nn.functional.embedding(table, ids)
    agree(*hessian_vector(nf.sum(y * y * y), [table], new.feeds))


def test_third_derivative():
    x = nf.placeholder((4,), name="x")
    y = nf.sin(x) * x
    for _ in range(3):
        (y,) = nf.grad(nf.sum(y), [x])
    at = np.array([-1.0, 0.0, 0.7, 2.0])
    np.testing.assert_allclose(nf.evaluate([y], {x: at}, "float64")[0], -3 * np.sin(at) - at * np.cos(at), atol=1e-12)


@pytest.mark.torch
def test_first_order_of_ties_by_translation():
    for case in named(TIES):
        compare_with_torch(first_order(program(case)))

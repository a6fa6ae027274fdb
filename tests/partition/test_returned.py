"""What a program returns in another shape than a kernel makes it is written where it is returned."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.partition import RETURNED

pytestmark = pytest.mark.tvm

A = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32)
SHAPE = (4, 2, 5, 4)


def product():
    a, b = nf.placeholder((8, 6), name="a"), nf.placeholder((6, 20), name="b")
    return [a, b], a @ b


def said(function):
    """What became of what is only copied."""
    lines = function.explain("partition").splitlines()
    return [line.removeprefix(f"{RETURNED}: ") for line in lines if line.startswith(f"{RETURNED}:")]


def kernels(outputs, inputs):
    function = nf.compile(outputs, inputs)
    return function, len(function.plan.calls)


def test_a_product_in_another_shape_is_one_kernel(monkeypatch):
    inputs, s = product()
    function, count = kernels([nf.reshape(s, SHAPE)], inputs)
    first, second = function(A, B)[0], function(2 * A, B)[0]  # which have memory of their own each
    assert count == 1 and [line.endswith("is written where it is returned") for line in said(function)] == [True]
    np.testing.assert_allclose(first, (A @ B).reshape(SHAPE), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, 2 * first, rtol=1e-5, atol=1e-6)
    monkeypatch.setenv("NEOFLOW_WITHOUT", RETURNED)
    function, count = kernels([nf.reshape(s, SHAPE)], inputs)
    assert count == 2 and not said(function)


def test_who_reads_the_product_reads_what_is_returned():
    inputs, s = product()
    middle = nf.expr("m[j] = s[3, j]", s=s)
    norm = nf.exp(s)
    function, _ = kernels([nf.reshape(s, SHAPE), nf.sum(middle), nf.sum(norm * norm)], inputs)
    shape, total, norms = function(A, B)
    expected = A @ B
    np.testing.assert_allclose(shape, expected.reshape(SHAPE), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, expected[3].sum(), rtol=1e-4)
    np.testing.assert_allclose(norms, (np.exp(expected) ** 2).sum(), rtol=1e-4)


def test_two_shapes_of_one_product():
    inputs, s = product()
    function, count = kernels([nf.reshape(s, SHAPE), nf.reshape(s, (160,))], inputs)
    first, second = function(A, B)
    assert count == 2 and sum(line.endswith("lies in other memory already") for line in said(function)) == 1
    np.testing.assert_array_equal(first.reshape(-1), second)
    np.testing.assert_allclose(second, (A @ B).reshape(-1), rtol=1e-5, atol=1e-6)
    assert not np.shares_memory(first, second)


def test_the_same_shape_twice():
    inputs, s = product()
    y = nf.reshape(s, SHAPE)
    function, _ = kernels([y, y], inputs)
    first, second = function(A, B)
    np.testing.assert_array_equal(first, second)
    assert not np.shares_memory(first, second)


def test_what_is_returned_as_it_is_keeps_its_memory():
    inputs, s = product()
    function, count = kernels([s, nf.reshape(s, SHAPE)], inputs)
    plain, shape = function(A, B)
    assert count == 2 and all(line.endswith("is returned as well") for line in said(function))
    np.testing.assert_array_equal(plain.reshape(SHAPE), shape)
    assert not np.shares_memory(plain, shape)


def test_a_part_and_an_input_are_copied():
    inputs, s = product()
    function, _ = kernels([nf.expr("y[j] = s[2, j]", s=s), nf.reshape(inputs[0], (48,))], inputs)
    part, given = function(A, B)
    assert not said(function)
    np.testing.assert_allclose(part, (A @ B)[2], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given, A.reshape(-1))
    assert not np.shares_memory(given, A)


def test_new_values_of_parameters():
    inputs, s = product()
    p = nf.parameter(SHAPE, name="p")
    y = nf.reshape(s, SHAPE)
    function = nf.compile([y], inputs, {p: y})
    np.testing.assert_allclose(function(A, B)[0], (A @ B).reshape(SHAPE), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(nf.get_value(p), function(A, B)[0])


def test_within_little_memory():
    inputs, s = product()
    other = nf.reshape(nf.tanh(s) @ nf.transpose(s), (2, 4, 8))
    function = nf.compile([nf.reshape(s, SHAPE), other], inputs, memory="1MiB")
    shape, last = function(A, B)
    expected = A @ B
    np.testing.assert_allclose(shape, expected.reshape(SHAPE), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, (np.tanh(expected) @ expected.T).reshape(2, 4, 8), rtol=1e-4, atol=1e-5)


def test_a_package_returns_it(tmp_path):
    inputs, s = product()
    nf.compile([nf.reshape(s, SHAPE)], inputs).save(tmp_path / "product.nflib")
    loaded = nf.load(tmp_path / "product.nflib")
    (name,) = loaded.functions
    np.testing.assert_allclose(loaded.functions[name](A, B)[0], (A @ B).reshape(SHAPE), rtol=1e-5, atol=1e-6)

"""Compiled programs keep their constants: filled once, shared by content, never in the kernel cache."""

import gc
import weakref

import numpy as np
import pytest

import neoflow as nf
from neoflow.runtime import constants
from neoflow.runtime.device.cpu import CPU

pytestmark = pytest.mark.tvm

rng = np.random.default_rng(0)
A = rng.standard_normal((4, 5)).astype("f")
x = nf.placeholder((5,), name="x")


def test_values_calls_and_updates():
    c, w = nf.constant(A, name="c"), nf.parameter((4,), name="w")
    y = nf.expr("y[i] = sum(c[i, k] * x[k])", c=c, x=x)
    outputs = [y + nf.exp(c)[:, 0] * 2, c, nf.sum(c * c), c]
    step = nf.compile(outputs, [x], updates={w: c[:, 1]})
    for n in range(3):
        value = rng.standard_normal(5).astype("f")
        found = step(value)
        for a, b in zip(found, nf.evaluate(outputs, {x: value}), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
        np.testing.assert_array_equal(nf.get_value(w), A[:, 1])
        nf.set_value(w, np.zeros(4))
        found[1][:] = n  # the caller's, not the constant
    assert [b.kind for b in step.plan.buffers].count("constant") == 4
    assert not step.parameters[1:]
    assert step.plan.from_text(step.plan.to_text()) == step.plan


def test_explain_says_what_was_computed():
    c = nf.constant(A[0], name="table")
    step = nf.compile([x * nf.exp(c)], [x])
    assert "computed: exp: 20 bytes, 5 evaluations" in step.explain("constants")
    assert "1 tensors computed once, 20 bytes of constants" in step.explain()
    assert not any("exp" in call.name for call in step.plan.calls)
    assert "llvm.exp" not in step.source("tir") and step.plan.constants


def test_equal_constants_share_memory_and_let_it_go():
    gc.collect()
    before = len(constants._memory)
    first, second = nf.constant(A), nf.constant(A.copy())
    f = nf.compile([nf.sum(first * x)], [x])
    g = nf.compile([nf.max(second + x)], [x])
    pointers = [CPU.address(step._executor.arrays[step.plan.constants[0]]) for step in (f, g)]
    assert pointers[0] == pointers[1]
    assert len(constants._memory) == before + 1
    gone = weakref.ref(f._executor.arrays[f.plan.constants[0]])
    del f, g
    gc.collect()
    assert gone() is None and len(constants._memory) == before


def test_elements_are_not_in_the_kernel_cache(own_cache):
    secret = rng.standard_normal(257).astype("f")
    v = nf.placeholder((257,), name="v")
    f = nf.compile([v * secret, nf.sum(v - nf.exp(nf.constant(secret)))], [v])
    again = nf.compile([v * (secret + 1), nf.sum(v - nf.exp(nf.constant(secret * 2)))], [v])
    assert again.compiled.built == 0  # the same kernels for other constants
    f(secret)
    parts = [secret[n : n + 2].tobytes() for n in range(0, 256, 2)] + [secret[n : n + 1].tobytes() for n in range(8)]
    files = [p for p in own_cache.rglob("*") if p.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert not any(p in data for p in parts if len(p) == 8), path


def test_one_value_everywhere_is_a_number():
    f = nf.compile([x * np.full(5, 2.0) + nf.constant(np.ones(5, "f"))], [x])
    assert not f.plan.constants
    np.testing.assert_array_equal(f(np.arange(5, dtype="f"))[0], np.arange(5) * 2 + 1)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int64", "bool"])
def test_types(dtype):
    c = nf.constant((rng.standard_normal((3, 7)) * 3).astype("int8") if dtype != "bool" else A[:3, :3] > 0, dtype)
    i, ids = nf.placeholder((2,), "int64", name="i"), np.array([2, 0])
    outputs = [c[i], nf.cast(c, "float32"), c.T]
    for a, b in zip(nf.compile(outputs, [i])(ids), nf.evaluate(outputs, {i: ids}), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_trained_model_with_constants():
    basis = nf.constant(np.cos(np.arange(5)[:, None] * np.arange(3)), "float32")
    w = nf.parameter((3,), name="w")
    loss = nf.mean((x - basis @ w) ** 2)
    (dw,) = nf.grad(loss, [w])
    step = nf.compile([loss], [x], updates={w: w - 0.2 * dw})
    losses = [float(step(np.float32([1, 2, 0, -1, 1]))[0]) for _ in range(60)]
    assert losses[-1] < 0.6 * losses[0]


def test_checked_kernels(monkeypatch):
    monkeypatch.setenv("NEOFLOW_CHECK", "1")
    f = nf.compile([nf.sum(nf.constant(A) * x), nf.constant(A)[nf.constant([3, 1])] - x], [x])
    np.testing.assert_allclose(f(A[0])[0], (A * A[0]).sum(), rtol=1e-5)

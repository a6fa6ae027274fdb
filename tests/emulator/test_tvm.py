"""What TVM prints runs in the emulator as it is: its prefix, vectors, short floats, barriers, shuffles."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.emulator import Fault, emulate

pytestmark = pytest.mark.tvm


@pytest.fixture(autouse=True, scope="module")
def no_compiler():
    """Only what is printed matters: nothing compiles it for a GPU."""
    name = "tvm_callback_cuda_compile"
    before = tvm.get_global_func(name)
    tvm.register_global_func(name, lambda code: b"", override=True)
    yield
    tvm.register_global_func(name, before, override=True)


def printed(function):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    return tvm.compile(function, target=target).mod.imports[0].inspect_source()


def elementwise(dtype, lanes):
    """b = max(a + a, a * 0.5), 256 elements a block."""

    @T.prim_func
    def f(a: T.Buffer((1024,), dtype), b: T.Buffer((1024,), dtype)):
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 256 // lanes)
        for v in T.vectorized(lanes):
            b[bx * 256 + tx * lanes + v] = T.max(
                a[bx * 256 + tx * lanes + v] + a[bx * 256 + tx * lanes + v],
                a[bx * 256 + tx * lanes + v] * T.cast(0.5, dtype),
            )

    return f


@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [
        *(("float32", lanes) for lanes in (1, 2, 4)),
        *(("float16", lanes) for lanes in (1, 2, 4, 8)),
        *(("bfloat16", lanes) for lanes in (2, 8)),
        ("float64", 2),
    ],
)
def test_vectors_of_floats(dtype, lanes):
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = np.random.default_rng(0).standard_normal(1024).astype(numpy_type)
    b = np.zeros(1024, numpy_type)
    emulate(printed(elementwise(dtype, lanes)), [("f_kernel", 4, 256 // lanes, 0, [a, b])], unwritten=[b])
    np.testing.assert_array_equal(b.astype(float), np.maximum(a + a, a * numpy_type.type(0.5)).astype(float))


def test_casts_integers_and_truth():
    @T.prim_func
    def f(
        a: T.Buffer((256,), "float32"),
        b: T.Buffer((256,), "int8"),
        c: T.Buffer((256,), "bool"),
        d: T.Buffer((256,), "int64"),
        e: T.Buffer((256,), "float16"),
    ):
        tx = T.launch_thread("threadIdx.x", 64)
        for v in T.vectorized(4):
            b[tx * 4 + v] = T.cast(a[tx * 4 + v], "int8")
        for v in T.vectorized(4):
            c[tx * 4 + v] = T.if_then_else(a[tx * 4 + v] > T.float32(0), True, False)
        for v in T.vectorized(2):
            d[tx * 4 + v] = T.cast(b[tx * 4 + v], "int64") * T.int64(1 << 40)
        for v in T.serial(2):
            d[tx * 4 + 2 + v] = T.floordiv(T.cast(b[tx * 4 + v], "int64"), T.int64(3))
        for v in T.vectorized(4):
            e[tx * 4 + v] = T.cast(a[tx * 4 + v], "float16") * T.float16(3)

    a = (np.random.default_rng(0).standard_normal(256) * 30).astype(np.float32)
    b, c, d, e = (np.zeros(256, t) for t in (np.int8, np.bool_, np.int64, np.float16))
    emulate(printed(f), [("f_kernel", 1, 64, 0, [a, b, c, d, e])], unwritten=[b, c, d, e])
    wide = a.astype(np.int8).astype(np.int64).reshape(64, 4)
    assert b.tolist() == a.astype(np.int8).tolist()
    assert c.tolist() == (a > 0).tolist()
    assert d.reshape(64, 4)[:, :2].tolist() == (wide[:, :2] << 40).tolist()
    assert d.reshape(64, 4)[:, 2:].tolist() == (wide[:, :2] // 3).tolist()
    assert e.tolist() == (a.astype(np.float16) * np.float16(3)).tolist()


def reversal(barrier):
    @T.prim_func
    def f(a: T.Buffer((512,), "float32"), b: T.Buffer((512,), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 64)
        s = T.alloc_buffer((256,), scope="shared")
        l = T.alloc_buffer((4,), scope="local")
        for v in T.vectorized(4):
            s[tx * 4 + v] = a[bx * 256 + tx * 4 + v]
        if barrier:
            T.tvm_storage_sync("shared")
        for i in range(4):
            l[i] = T.exp(s[255 - tx - i * 64])
        for i in range(4):
            b[bx * 256 + tx + i * 64] = l[i] + T.tanh(T.sqrt(l[i])) + T.erf(l[i])

    return f


def test_shared_memory_barriers_and_functions():
    a = np.random.default_rng(0).standard_normal(512).astype(np.float32)
    b = np.zeros(512, np.float32)
    text = printed(reversal(True))
    emulate(text, [("f_kernel", 2, 64, 0, [a, b])], seed=1, unwritten=[b])
    e = np.exp(a.astype(float).reshape(2, 256)[:, ::-1].ravel())
    erf = np.vectorize(__import__("math").erf)
    np.testing.assert_allclose(b, e + np.tanh(np.sqrt(e)) + erf(e), rtol=1e-6)
    with pytest.raises(Fault, match=r"reads shared memory that nothing was written to \(s\w*\[\d+\] of 256\)"):
        emulate(text.replace("  __syncthreads();\n", "\n"), [("f_kernel", 2, 64, 0, [a, b])])


def test_sums_across_threads_as_tvm_lowers_them():
    @T.prim_func
    def f(a: T.Buffer((4, 64), "float32"), b: T.Buffer((4,), "float32")):
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 32)
        part = T.alloc_buffer((1,), scope="local")
        part[0] = a[bx, tx] + a[bx, tx + 32]
        for i in range(5):
            part[0] = part[0] + T.tvm_warp_shuffle_down(T.tvm_warp_activemask(), part[0], T.shift_right(16, i), 32, 32)
        if tx == 0:
            b[bx] = part[0]

    a = np.random.default_rng(0).integers(-9, 9, (4, 64)).astype(np.float32)
    b = np.zeros(4, np.float32)
    emulate(printed(f), [("f_kernel", 4, 32, 0, [a, b])], unwritten=[b])
    assert b.tolist() == a.sum(1).tolist()


def test_calls_of_neoflows_device_functions():
    @T.prim_func
    def f(a: T.Buffer((512,), "float16"), b: T.Buffer((512,), "float16")):
        tx = T.launch_thread("threadIdx.x", 64)
        s = T.alloc_buffer((512,), "float16", scope="shared.dyn")
        T.evaluate(T.call_extern("void", "nf_cp_async_16", T.address_of(s[tx * 8]), T.address_of(a[tx * 8])))
        T.evaluate(T.call_extern("void", "nf_cp_async_commit"))
        T.evaluate(T.call_extern("void", "nf_cp_async_wait_0"))
        T.tvm_storage_sync("shared")
        for v in T.vectorized(8):
            b[tx * 8 + v] = s[504 - tx * 8 + v]

    a, b = np.arange(512, dtype=np.float16), np.zeros(512, np.float16)
    emulate(printed(f), [("f_kernel", 1, 64, 1024, [a, b])], unwritten=[b])
    assert (b.reshape(64, 8) == a.reshape(64, 8)[::-1]).all()

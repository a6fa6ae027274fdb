"""Matrices in registers: every register of every lane is where the PTX manual draws it."""

from functools import cache
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from tests.emulator import emulate
from tests.emulator.kernels import source

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
MMA = {
    "m16n8k8_f16": ("half", np.dtype(np.float16), 8),
    "m16n8k16_f16": ("half", np.dtype(np.float16), 16),
    "m16n8k8_bf16": ("nv_bfloat16", BFLOAT16, 8),
    "m16n8k16_bf16": ("nv_bfloat16", BFLOAT16, 16),
    "m16n8k4_tf32": ("float", np.dtype(np.float32), 4),
    "m16n8k8_tf32": ("float", np.dtype(np.float32), 8),
}


WMMA = [
    ("half", np.dtype(np.float16), "half", (16, 16, 16)),
    ("half", np.dtype(np.float16), "half", (32, 8, 16)),
    ("half", np.dtype(np.float16), "half", (8, 32, 16)),
    ("nv_bfloat16", BFLOAT16, "nv_bfloat16", (16, 16, 16)),
    ("float", np.dtype(np.float32), "nvcuda::wmma::precision::tf32", (16, 16, 8)),
]
LAYOUTS = ["row row row", "row col col", "col row row"]


def mma_kernel(name):
    ctype, _, k = MMA[name]
    return f"""extern "C" __global__ void mma_{name}({ctype}* a, {ctype}* b, float* d) {{
      nf_mma_{name}(d + threadIdx.x * 4, a + threadIdx.x * {k // 2}, b + threadIdx.x * {k // 4});
    }}"""


def load_kernel(count, transposed):
    name = f"nf_ldmatrix_x{count}" + "_trans" * transposed
    return f"""extern "C" __global__ void load_{count}_{transposed:d}(unsigned short* m, unsigned short* r) {{
      __shared__ __align__(16) unsigned short s[256];
      for (int i = 0; i < 8; ++i) s[threadIdx.x * 8 + i] = m[threadIdx.x * 8 + i];
      __syncthreads();
      {name}(r + threadIdx.x * {2 * count}, s + (31 - threadIdx.x) * 8);
    }}"""


def wmma_kernel(number, layouts):
    ctype, _, element, (m, n, k) = WMMA[number]
    la, lb, lc = layouts.split()
    row_major, col_major = (k, n, n), (m, k, m)
    a, b, c = (r if layout == "row" else q for r, q, layout in zip(row_major, col_major, (la, lb, lc), strict=True))
    return f"""extern "C" __global__ void wmma_{number}_{la}_{lb}_{lc}({ctype}* A, {ctype}* B, float* C) {{
      using namespace nvcuda;
      wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {element}, wmma::{la}_major> a;
      wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {element}, wmma::{lb}_major> b;
      wmma::fragment<wmma::accumulator, {m}, {n}, {k}, float> c;
      wmma::load_matrix_sync(a, A, {a});
      wmma::load_matrix_sync(b, B, {b});
      wmma::load_matrix_sync(c, C, {c}, wmma::mem_{lc}_major);
      for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] * 2.0f;
      wmma::mma_sync(c, a, b, c);
      wmma::store_matrix_sync(C, c, {c}, wmma::mem_{lc}_major);
    }}"""


HALF_ACCUMULATOR = """extern "C" __global__ void half_accumulator(half* A, half* C) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> c;
  wmma::fill_fragment(c, __float2half(0.5f));
  wmma::load_matrix_sync(a, A, 16);
  wmma::load_matrix_sync(b, A, 16);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}"""
UNROUNDED = """extern "C" __global__ void unrounded(float* v, float* d) {
  float a[4] = {v[0], v[0], v[0], v[0]}, b[2] = {1.0f, 1.0f};
  nf_mma_m16n8k8_tf32(d + threadIdx.x * 4, a, b);
}"""


@cache
def every_kernel():
    return source(
        "#include <mma.h>",
        *(mma_kernel(name) for name in MMA),
        *(load_kernel(*of) for of in product((1, 2, 4), (False, True))),
        *(wmma_kernel(*of) for of in product(range(len(WMMA)), LAYOUTS)),
        HALF_ACCUMULATOR,
        UNROUNDED,
    )


def drawn(k, pair):
    """The manual's tables: (row, column) by lane and element of a, b and d; `pair` elements a register."""
    a, b, d = ([[None] * n for _ in range(32)] for n in (16 * k // 32, k * 8 // 32, 4))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for i in range(len(a[lane])):
            register, low = divmod(i, pair)
            a[lane][i] = (g + 8 * (register % 2), pair * t + low + 4 * pair * (register // 2))
        for i in range(len(b[lane])):
            register, low = divmod(i, pair)
            b[lane][i] = (pair * t + low + 4 * pair * register, g)
        for i in range(4):
            d[lane][i] = (g + 8 * (i // 2), 2 * t + i % 2)
    return a, b, d


@pytest.mark.parametrize("name", MMA)
def test_mma_multiplies_what_the_lanes_hold(name):
    _, dtype, k = MMA[name]
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-8, 9, (16, k)), rng.integers(-8, 9, (k, 8)), rng.integers(-8, 9, (16, 8))
    of_a, of_b, of_d = drawn(k, 4 // dtype.itemsize)
    given = [np.array([[m[at] for at in lane] for lane in of], t) for m, of, t in ((a, of_a, dtype), (b, of_b, dtype))]
    held = np.array([[c[at] for at in lane] for lane in of_d], np.float32)
    emulate(every_kernel(), [(f"mma_{name}", 1, 32, 0, [*given, held])])
    expected = a @ b + c
    assert held.tolist() == [[expected[at] for at in lane] for lane in of_d]


def test_tf32_tensor_cores_cut_off_what_was_not_rounded():
    d = np.zeros((32, 4), np.float32)
    emulate(every_kernel(), [("unrounded", 1, 32, 0, [np.array([1 + 2.0**-10 + 2.0**-11], np.float32), d])])
    assert (d == 8 * (1 + 2.0**-10)).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_its_pairs(count, transposed):
    m = np.arange(256, dtype=np.uint16).reshape(32, 8)
    r = np.zeros((32, count, 2), np.uint16)
    emulate(every_kernel(), [(f"load_{count}_{transposed:d}", 1, 32, 0, [m, r])])
    matrices = m[::-1].reshape(4, 8, 8)[:count]
    matrices = matrices.transpose(0, 2, 1) if transposed else matrices
    assert (r == matrices.reshape(count, 32, 2).transpose(1, 0, 2)).all()


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize(("ctype", "dtype", "element", "shape"), WMMA)
def test_wmma_multiplies_in_every_layout(ctype, dtype, element, shape, layouts):
    (m, n, k), (la, lb, lc) = shape, layouts.split()
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, n)), rng.integers(-8, 9, (m, n)).astype(np.float32)
    stored = [
        (v if layout == "row" else v.T).copy() for v, layout in [(a.astype(dtype), la), (b.astype(dtype), lb), (c, lc)]
    ]
    name = f"wmma_{WMMA.index((ctype, dtype, element, shape))}_{la}_{lb}_{lc}"
    emulate(every_kernel(), [(name, 1, 32, 0, stored)])
    result = stored[2] if lc == "row" else stored[2].T
    np.testing.assert_array_equal(result, a @ b + 2 * c)


def test_wmma_accumulates_in_float16_where_asked():
    a, c = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float16), np.zeros((16, 16), np.float16)
    emulate(every_kernel(), [("half_accumulator", 1, 32, 0, [a, c])])
    wide = a.astype(float)
    np.testing.assert_array_equal(c, (wide @ wide.T + 0.5).astype(np.float32).astype(np.float16))

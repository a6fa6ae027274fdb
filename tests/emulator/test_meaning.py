"""What CUDA's words mean in the machine, against NumPy and exact arithmetic."""

from bisect import bisect
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from tests.emulator import emulate
from tests.emulator.kernels import source

SHORT = {"half": np.dtype(np.float16), "nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}


def run(text, blocks, threads, *arrays, shared_bytes=0, **options):
    emulate(source(text), [("k", blocks, threads, shared_bytes, list(arrays))], **options)
    return arrays


@cache
def patterns(dtype):
    """Every finite number of 16 bits, the infinities at its ends; negative zero comes first of the two."""
    low, high = (np.array([v]).astype(dtype).view(np.uint16)[0] for v in (-np.inf, np.inf))
    bits = np.concatenate([np.arange(int(low), 0x7FFF, -1), np.arange(0, int(high) + 1)])
    return bits.astype(np.uint16).view(dtype)


@cache
def _sorted(dtype):
    values = [float(v) for v in patterns(dtype)]
    return values, [int(v) % 2 == 0 for v in patterns(dtype).view(np.uint16)]


def nearest(value, dtype):
    """The number of 16 bits nearest to a fraction, the even one of two; beyond the last one as if there were more."""
    values, even = _sorted(dtype)
    if abs(value) >= Fraction(values[-2]) + Fraction(values[-2] - values[-3]) / 2:
        return np.inf if value > 0 else -np.inf
    i = min(max(bisect(values, value), 2), len(values) - 2)
    return values[min((i - 1, i), key=lambda j: (abs(Fraction(values[j]) - value), not even[j]))]


@pytest.mark.parametrize("kind", SHORT)
def test_numbers_of_16_bits_become_floats_and_back_exactly(kind):
    every = patterns(SHORT[kind])
    count = len(every)
    text = f"""extern "C" __global__ void k({kind}* a, float* b, {kind}* c) {{
      for (int i = threadIdx.x; i < {count}; i += 32) {{ b[i] = (float)a[i]; c[i] = ({kind})b[i]; }}
    }}"""
    _, wide, back = run(text, 1, 32, every, np.zeros(count, np.float32), np.zeros(count, SHORT[kind]), checked=False)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    np.testing.assert_array_equal(back.view(np.uint16), every.view(np.uint16))


@pytest.mark.parametrize("kind", SHORT)
def test_a_float_is_rounded_once_to_16_bits(kind):
    rng, dtype = np.random.default_rng(0), SHORT[kind]
    middle = patterns(dtype).astype(np.float64)
    middle = middle[np.isfinite(middle)]
    ties = ((middle[1:] + middle[:-1]) / 2)[rng.integers(0, len(middle) - 1, 300)]
    wide = np.concatenate(
        [ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), rng.standard_normal(100) * 1e-6]
    )
    text = f"""extern "C" __global__ void k(double* a, {kind}* b, {kind}* c) {{
      int i = blockIdx.x; b[i] = ({kind})a[i]; c[i] = ({kind})(float)a[i];
    }}"""
    _, from64, from32 = run(text, len(wide), 1, wide, np.zeros(len(wide), dtype), np.zeros(len(wide), dtype))
    assert from64.astype(float).tolist() == [nearest(Fraction(v), dtype) for v in wide]
    assert from32.astype(float).tolist() == [nearest(Fraction(float(np.float32(v))), dtype) for v in wide]


@pytest.mark.parametrize("kind", SHORT)
def test_arithmetic_of_16_bits_is_rounded_once(kind):
    rng, dtype = np.random.default_rng(1), SHORT[kind]
    finite = patterns(dtype)[1:-1]
    a, b, c = rng.choice(finite, (3, 400))
    a[200:], b[200:], c[200:] = (rng.standard_normal((3, 200)) * [[1], [1], [1e-3]]).astype(dtype)
    text = f"""extern "C" __global__ void k({kind}* a, {kind}* b, {kind}* c, {kind}* r) {{
      int i = blockIdx.x; r += i * 5;
      r[0] = a[i] + b[i]; r[1] = a[i] - b[i]; r[2] = a[i] * b[i]; r[3] = b[i] == {kind}(0.0f) ? a[i] : a[i] / b[i];
      r[4] = __hfma(a[i], b[i], c[i]);
    }}"""
    (*_, result) = run(text, 400, 1, a, b, c, np.zeros((400, 5), dtype))
    for x, y, z, got in zip(a, b, c, result.astype(float), strict=True):
        x, y, z = (Fraction(float(v)) for v in (x, y, z))
        exact = [x + y, x - y, x * y, x / y if y else x, x * y + z]
        assert got.tolist() == [nearest(v, dtype) for v in exact]


def test_nan_and_infinity_stay_what_they_are():
    text = """extern "C" __global__ void k(float* a, half* b, nv_bfloat16* c, float* d) {
      int i = threadIdx.x; b[i] = __float2half_rn(a[i]); c[i] = __float2bfloat16(a[i]); d[i] = nf_tf32(a[i]);
    }"""
    a = np.array([np.nan, np.inf, -np.inf, 1e30, -0.0, 65520], np.float32)
    _, b, c, d = run(text, 1, 6, a, np.zeros(6, np.float16), np.zeros(6, ml_dtypes.bfloat16), np.zeros(6, np.float32))
    np.testing.assert_array_equal(b.astype(float), [np.nan, np.inf, -np.inf, np.inf, -0.0, np.inf])
    np.testing.assert_array_equal(c.astype(np.float32), a.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(np.isfinite(d), np.isfinite(a))


def test_tf32_is_rounded_to_nearest_and_away_at_ties():
    text = 'extern "C" __global__ void k(float* a, float* b) { b[threadIdx.x] = nf_tf32(a[threadIdx.x]); }'
    step = 2.0**-10
    a = np.array([1 + step / 2, 1 + 3 * step / 2, -1 - step / 2, 1 + step * 0.499, 3.0], np.float32)
    _, b = run(text, 1, 5, a, np.zeros(5, np.float32))
    assert b.tolist() == [1 + step, 1 + 2 * step, -1 - step, 1, 3]


@pytest.mark.parametrize(
    ("ctype", "dtype"),
    [("int", np.int32), ("unsigned int", np.uint32), ("unsigned long long", np.uint64), ("float", np.float32)],
)
def test_atomics_see_every_thread_once(ctype, dtype):
    text = f"""extern "C" __global__ void k({ctype}* a, {ctype}* r, int* seen) {{
      {ctype} v = a[blockIdx.x * 64 + threadIdx.x];
      atomicAdd(r, v); atomicMax(r + 1, v); atomicMin(r + 2, v); atomicExch(r + 3, v);
      seen[(int)atomicAdd(r + 4, ({ctype})1)] = 1;
    }}"""
    a = np.random.default_rng(0).permutation(192).astype(dtype) + dtype(1)
    start = np.array([0, 0, 999, 0, 0], dtype)
    _, r, seen = run(text, 3, 64, a, start, np.zeros(192, np.int32))
    assert r.tolist() == [a.sum(), 192, 1, a[-1], 192]
    assert seen.all()


def test_compare_and_swap_adds_doubles():
    text = """extern "C" __global__ void k(double* a, unsigned long long* sum) {
      unsigned long long seen = 0, before;
      do {
        before = seen;
        double next = __longlong_as_double(before) + a[threadIdx.x];
        seen = atomicCAS(sum, before, (unsigned long long)__double_as_longlong(next));
      } while (seen != before);
    }"""
    a = np.arange(50.0)
    _, total = run(text, 1, 50, a, np.zeros(1, np.uint64))
    assert total.view(np.float64)[0] == a.sum()


def test_shuffles_in_segments():
    text = """extern "C" __global__ void k(int* r) {
      int t = threadIdx.x; r += t * 4;
      r[0] = __shfl_sync(0xffffffff, t, 3, 8); r[1] = __shfl_up_sync(0xffffffff, t, 3, 8);
      r[2] = __shfl_down_sync(0xffffffff, t, 3, 8); r[3] = __shfl_xor_sync(0xffffffff, t, 5, 8);
    }"""
    (r,) = run(text, 1, 64, np.zeros((64, 4), np.int32))
    t = np.arange(64) % 32
    inside, first = t % 8, np.arange(64) - t % 8
    assert r[:, 0].tolist() == (first + 3).tolist()
    assert r[:, 1].tolist() == (first + np.where(inside >= 3, inside - 3, inside)).tolist()
    assert r[:, 2].tolist() == (first + np.where(inside + 3 < 8, inside + 3, inside)).tolist()
    assert r[:, 3].tolist() == (first + (inside ^ 5)).tolist()


def test_shuffles_of_wide_and_short_numbers():
    text = """extern "C" __global__ void k(double* d, half* h, long long* l) {
      int t = threadIdx.x;
      d[t] = __shfl_xor_sync(0xffffffff, d[t], 1);
      h[t] = __shfl_xor_sync(0xffffffff, h[t], 1);
      l[t] = __shfl_xor_sync(0xffffffff, l[t], 1);
    }"""
    rng = np.random.default_rng(0)
    d, h, l = rng.standard_normal(32), rng.standard_normal(32).astype(np.float16), rng.integers(-(2**60), 2**60, 32)
    other = np.arange(32) ^ 1
    expected = d[other], h[other], l[other]
    for got, want in zip(run(text, 1, 32, d.copy(), h.copy(), l.copy()), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_counting_barriers_and_indices_of_three_dimensions():
    text = """extern "C" __global__ void k(int* r, int* c) {
      int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      r[b * 24 + t] = b * 100 + t;
      int n = __syncthreads_count(t < 7), any = __syncthreads_or(t == 5), all = __syncthreads_and(t >= 0);
      if (t == 0) c[b] = n * 100 + any * 10 + all;
    }"""
    launch = [("k", (2, 3, 2), (4, 3, 2), 0, [r := np.zeros((12, 24), np.int32), c := np.zeros(12, np.int32)])]
    emulate(source(text), launch, seed=5)
    assert (r == np.arange(12)[:, None] * 100 + np.arange(24)).all()
    assert (c == 711).all()


def test_conversions_saturate_and_bits_are_bits():
    text = """extern "C" __global__ void k(float* a, int* i, unsigned int* u, int* bits) {
      int t = threadIdx.x; i[t] = __float2int_rz(a[t]); u[t] = __float2uint_rn(a[t]); bits[t] = __float_as_int(a[t]);
    }"""
    a = np.array([1e20, -1e20, np.nan, 2.5, 3.5, -1.5], np.float32)
    _, i, u, bits = run(text, 1, 6, a, np.zeros(6, np.int32), np.zeros(6, np.uint32), np.zeros(6, np.int32))
    assert i.tolist() == [2**31 - 1, -(2**31), 0, 2, 3, -1]
    assert u.tolist() == [2**32 - 1, 0, 0, 2, 4, 0]
    assert bits.tolist() == a.view(np.int32).tolist()


def test_extremes_prefer_numbers_to_nan():
    text = """extern "C" __global__ void k(float* a) {
      a[0] = max(a[0], a[1]); a[1] = min(a[1], 2.0f); a[2] = fmaxf(a[2], a[3]);
    }"""
    (a,) = run(text, 1, 1, np.array([np.nan, 3, -np.inf, np.nan], np.float32))
    assert a[:3].tolist() == [3, 2, -np.inf]


def test_blocks_run_in_the_order_that_a_seed_draws():
    text = 'extern "C" __global__ void k(int* turn, int* order) { order[atomicAdd(turn, 1)] = blockIdx.x; }'
    orders = [
        run(text, 20, 1, np.zeros(1, np.int32), np.zeros(20, np.int32), seed=s)[1].tolist() for s in (None, 1, 1, 2)
    ]
    assert orders[0] == list(range(20))
    assert orders[1] == orders[2] != orders[3]
    assert sorted(orders[1]) == sorted(orders[3]) == orders[0]

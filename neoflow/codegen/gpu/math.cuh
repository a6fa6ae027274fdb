// What every kernel may call: the language's functions on scalars and on the lanes of a vector, and what TVM prints.
#ifndef NEOFLOW_MATH
#define NEOFLOW_MATH
#ifdef __CUDACC_RTC__
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif
#ifndef CUDART_INF_F
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ULL)
#define CUDART_NAN __longlong_as_double(0xfff8000000000000ULL)
#endif
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define NF_DEVICE static __device__ __forceinline__

NF_DEVICE void nf_note(int* status, int code) { atomicExch(status, code); }

// To an element that others add to, in any order.
NF_DEVICE void nf_add(float* to, int at, float x) { atomicAdd(to + at, x); }
NF_DEVICE void nf_add(double* to, int at, double x) { atomicAdd(to + at, x); }
NF_DEVICE void nf_add(int* to, int at, int x) { atomicAdd(to + at, x); }
NF_DEVICE void nf_add(int64_t* to, int at, int64_t x) {
  atomicAdd((unsigned long long*)to + at, (unsigned long long)x);
}

NF_DEVICE double nf_double(int high, int low) {
  return __longlong_as_double((long long)(((unsigned long long)(uint)high << 32) | (uint)low));
}

// What the threads of a warp give each other: all of them come here.
#define NF_ALL 0xffffffffu
NF_DEVICE void nf_warp_barrier() { __syncwarp(NF_ALL); }
NF_DEVICE int nf_votes(int x) { return (int)__ballot_sync(NF_ALL, x); }
NF_DEVICE int nf_count(int votes) { return __popc((uint)votes); }
NF_DEVICE int nf_shuffle_xor(int x, int distance) { return __shfl_xor_sync(NF_ALL, x, distance); }
NF_DEVICE float nf_shuffle_xor(float x, int distance) { return __shfl_xor_sync(NF_ALL, x, distance); }
NF_DEVICE double nf_shuffle_xor(double x, int distance) { return __shfl_xor_sync(NF_ALL, x, distance); }
NF_DEVICE int64_t nf_shuffle_xor(int64_t x, int distance) {
  return (int64_t)__shfl_xor_sync(NF_ALL, (long long)x, distance);
}

// The larger and the smaller: NaN wins, and 0 is above -0.
NF_DEVICE float nf_maximum(float a, float b) {
  if (a != a || b != b) return a + b;
  return a > b ? a : a < b ? b : __int_as_float(__float_as_int(a) & __float_as_int(b));
}
NF_DEVICE float nf_minimum(float a, float b) {
  if (a != a || b != b) return a + b;
  return a < b ? a : a > b ? b : __int_as_float(__float_as_int(a) | __float_as_int(b));
}
NF_DEVICE double nf_maximum(double a, double b) {
  if (a != a || b != b) return a + b;
  return a > b ? a : a < b ? b : __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
}
NF_DEVICE double nf_minimum(double a, double b) {
  if (a != a || b != b) return a + b;
  return a < b ? a : a > b ? b : __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
}

#define NF_ONE(NAME, F32, F64)                                            \
  NF_DEVICE float NAME(float x) { return F32(x); }                        \
  NF_DEVICE double NAME(double x) { return F64(x); }
NF_ONE(nf_fabs, fabsf, fabs)
NF_ONE(nf_floor, floorf, floor)
NF_ONE(nf_ceil, ceilf, ceil)
NF_ONE(nf_rint, rintf, rint)
NF_ONE(nf_sqrt, __fsqrt_rn, __dsqrt_rn)
NF_ONE(nf_exp, expf, exp)
NF_ONE(nf_log, logf, log)
NF_ONE(nf_sin, sinf, sin)
NF_ONE(nf_cos, cosf, cos)
#define NF_TWO(NAME, F32, F64)                                            \
  NF_DEVICE float NAME(float x, float y) { return F32(x, y); }            \
  NF_DEVICE double NAME(double x, double y) { return F64(x, y); }
NF_TWO(nf_copysign, copysignf, copysign)
NF_TWO(nf_pow, powf, pow)
NF_DEVICE float nf_fma(float x, float y, float z) { return fmaf(x, y, z); }
NF_DEVICE double nf_fma(double x, double y, double z) { return fma(x, y, z); }

#define NF_LANES1(NAME)                                                                                    \
  NF_DEVICE float2 NAME(float2 x) { return make_float2(NAME(x.x), NAME(x.y)); }                            \
  NF_DEVICE float4 NAME(float4 x) { return make_float4(NAME(x.x), NAME(x.y), NAME(x.z), NAME(x.w)); }      \
  NF_DEVICE double2 NAME(double2 x) { return make_double2(NAME(x.x), NAME(x.y)); }
NF_LANES1(nf_fabs)
NF_LANES1(nf_floor)
NF_LANES1(nf_ceil)
NF_LANES1(nf_rint)
NF_LANES1(nf_sqrt)
NF_LANES1(nf_exp)
NF_LANES1(nf_log)
NF_LANES1(nf_sin)
NF_LANES1(nf_cos)
#define NF_LANES2(NAME)                                                                                    \
  NF_DEVICE float2 NAME(float2 x, float2 y) { return make_float2(NAME(x.x, y.x), NAME(x.y, y.y)); }        \
  NF_DEVICE float4 NAME(float4 x, float4 y) {                                                              \
    return make_float4(NAME(x.x, y.x), NAME(x.y, y.y), NAME(x.z, y.z), NAME(x.w, y.w));                    \
  }                                                                                                        \
  NF_DEVICE double2 NAME(double2 x, double2 y) { return make_double2(NAME(x.x, y.x), NAME(x.y, y.y)); }
NF_LANES2(nf_maximum)
NF_LANES2(nf_minimum)
NF_LANES2(nf_copysign)
NF_LANES2(nf_pow)
NF_DEVICE float2 nf_fma(float2 x, float2 y, float2 z) {
  return make_float2(fmaf(x.x, y.x, z.x), fmaf(x.y, y.y, z.y));
}
NF_DEVICE float4 nf_fma(float4 x, float4 y, float4 z) {
  return make_float4(fmaf(x.x, y.x, z.x), fmaf(x.y, y.y, z.y), fmaf(x.z, y.z, z.z), fmaf(x.w, y.w, z.w));
}
NF_DEVICE double2 nf_fma(double2 x, double2 y, double2 z) {
  return make_double2(fma(x.x, y.x, z.x), fma(x.y, y.y, z.y));
}
#endif

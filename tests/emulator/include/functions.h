// CUDA's mathematical functions and intrinsics by their names there; <math.h> has the others.
#pragma once

#define EMU_EXTREMES(T)                                      \
    inline T max(T a, T b) { return a < b ? b : a; }         \
    inline T min(T a, T b) { return b < a ? b : a; }
EMU_EXTREMES(int)
EMU_EXTREMES(unsigned)
EMU_EXTREMES(long)
EMU_EXTREMES(unsigned long)
EMU_EXTREMES(long long)
EMU_EXTREMES(unsigned long long)
#undef EMU_EXTREMES
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }

inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __frsqrt_rn(float a) { return float(1 / sqrt(double(a))); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline double __dsqrt_rn(double a) { return sqrt(a); }

// The quick ones: as exact as the others here.
inline float __expf(float a) { return expf(a); }
inline float __exp10f(float a) { return powf(10, a); }
inline float __logf(float a) { return logf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __log10f(float a) { return log10f(a); }
inline float __sinf(float a) { return sinf(a); }
inline float __cosf(float a) { return cosf(a); }
inline float __tanf(float a) { return tanf(a); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return fminf(fmaxf(a, 0), 1); }

inline float rsqrtf(float a) { return float(1 / sqrt(double(a))); }
inline double rsqrt(double a) { return 1 / sqrt(a); }
inline float rsqrt(float a) { return rsqrtf(a); }
inline float sinpif(float a) { return float(sin(M_PI * double(a))); }
inline float cospif(float a) { return float(cos(M_PI * double(a))); }
inline float normcdff(float a) { return float(0.5 * erfc(-double(a) * M_SQRT1_2)); }

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r |= (v >> i & 1) << (31 - i);
    return r;
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return unsigned(((unsigned long long)high << 32 | low) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return unsigned(((unsigned long long)high << 32 | low) >> (n & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned s = selector >> 4 * i & 15, byte = both >> 8 * (s & 7) & 255;
        r |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
}

// Conversions: nearest even, towards zero, and what is out of range saturates; NaN is 0 (in 64 bits the least number).
namespace emu {
template <class I>
inline I whole(double v, I nan) {
    constexpr double top = double(I(~I(0)) < 0 ? I(~(I(1) << (8 * sizeof(I) - 1))) : I(~I(0)));
    constexpr double bottom = I(~I(0)) < 0 ? -top - (sizeof(I) < 8) : 0;
    constexpr I most = I(~I(0)) < 0 ? I(~(I(1) << (8 * sizeof(I) - 1))) : I(~I(0));
    if (v != v) return nan;
    if (v >= top) return most;
    if (v <= bottom) return I(~I(0)) < 0 ? I(-most - 1) : I(0);
    return I(v);
}
}  // namespace emu
inline int __float2int_rn(float v) { return emu::whole<int>(rintf(v), 0); }
inline int __float2int_rz(float v) { return emu::whole<int>(truncf(v), 0); }
inline int __float2int_rd(float v) { return emu::whole<int>(floorf(v), 0); }
inline int __float2int_ru(float v) { return emu::whole<int>(ceilf(v), 0); }
inline unsigned __float2uint_rn(float v) { return emu::whole<unsigned>(rintf(v), 0); }
inline unsigned __float2uint_rz(float v) { return emu::whole<unsigned>(truncf(v), 0); }
inline long long __float2ll_rz(float v) { return emu::whole<long long>(truncf(v), (long long)(1ull << 63)); }
inline float __int2float_rn(int v) { return float(v); }
inline float __uint2float_rn(unsigned v) { return float(v); }
inline double __int2double_rn(int v) { return double(v); }
inline float __double2float_rn(double v) { return float(v); }
inline int __double2int_rz(double v) { return emu::whole<int>(trunc(v), 0); }

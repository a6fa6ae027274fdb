// Numbers of 16 bits: how they are rounded, and what the two kinds have in common.
#pragma once

namespace emu {

// The nearest float that is not farther from zero, its last bit set where it is not exact: rounding it to 11 bits or fewer
// rounds `v` once.
inline float odd(double v) {
    float f = float(v);
    if (double(f) == v || v != v) return f;
    unsigned bits = __builtin_bit_cast(unsigned, f);
    if (fabs(double(f)) > fabs(v)) --bits;  // of an infinity the largest float
    return __builtin_bit_cast(float, bits | 1);
}

typedef float Floats __attribute__((vector_size(16)));
typedef short Halves __attribute__((vector_size(16)));
inline unsigned short f16_of(float v) { return ((Halves)__builtin_ia32_vcvtps2ph(Floats{v}, 0))[0]; }
template <class T>
inline unsigned short f16_of(T v) { return f16_of(odd(double(v))); }
inline float f16_value(unsigned short bits) { return __builtin_ia32_vcvtph2ps(Halves{short(bits)})[0]; }

inline unsigned short bf16_of(float v) {
    unsigned bits = __builtin_bit_cast(unsigned, v);
    if (v != v) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
template <class T>
inline unsigned short bf16_of(T v) { return bf16_of(odd(double(v))); }
inline float bf16_value(unsigned short bits) { return __builtin_bit_cast(float, unsigned(bits) << 16); }

// a * b + c, rounded to odd in float64: a product of two is exact there.
inline float odd_fma(double a, double b, double c) {
    double product = a * b, sum = product + c, part = sum - product;
    double rest = (product - (sum - part)) + (c - part);
    if (rest == 0 || rest != rest) return odd(sum);
    unsigned long long bits = __builtin_bit_cast(unsigned long long, sum);
    if (!(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1 : -1;
    return odd(__builtin_bit_cast(double, bits));
}

}  // namespace emu

#define EMU_SHORT_OPERATOR(T, WIDE, OP)                                                          \
    inline T operator OP(T a, T b) { return WIDE(float(a)) OP WIDE(float(b)); }                   \
    inline T& operator OP##=(T& a, T b) { return a = a OP b; }
#define EMU_SHORT_COMPARE(T, OP) \
    inline bool operator OP(T a, T b) { return float(a) OP float(b); }
#define EMU_SHORT_UNARY(T, NAME, FUNCTION) \
    inline T NAME(T v) { return T(FUNCTION(double(float(v)))); }

#define EMU_SHORT_FLOAT(T, WIDE, OF)                                                                              \
    EMU_SHORT_OPERATOR(T, WIDE, +) EMU_SHORT_OPERATOR(T, WIDE, -) EMU_SHORT_OPERATOR(T, WIDE, *)                  \
    EMU_SHORT_OPERATOR(T, WIDE, /)                                                                                \
    EMU_SHORT_COMPARE(T, ==) EMU_SHORT_COMPARE(T, !=) EMU_SHORT_COMPARE(T, <) EMU_SHORT_COMPARE(T, >)             \
    EMU_SHORT_COMPARE(T, <=) EMU_SHORT_COMPARE(T, >=)                                                             \
    inline T operator-(T v) { v.__x ^= 0x8000; return v; }                                                        \
    inline T operator+(T v) { return v; }                                                                         \
    inline T& operator++(T& v) { return v = v + T(1); }                                                           \
    inline T& operator--(T& v) { return v = v - T(1); }                                                           \
    inline T __hadd(T a, T b) { return a + b; }                                                                   \
    inline T __hsub(T a, T b) { return a - b; }                                                                   \
    inline T __hmul(T a, T b) { return a * b; }                                                                   \
    inline T __hadd_rn(T a, T b) { return a + b; }                                                                \
    inline T __hsub_rn(T a, T b) { return a - b; }                                                                \
    inline T __hmul_rn(T a, T b) { return a * b; }                                                                \
    inline T __hdiv(T a, T b) { return a / b; }                                                                   \
    inline T __hneg(T v) { return -v; }                                                                           \
    inline T __habs(T v) { v.__x &= 0x7fff; return v; }                                                           \
    inline T __hfma(T a, T b, T c) { T r; r.__x = OF(emu::odd_fma(float(a), float(b), float(c))); return r; }     \
    inline T __hmax(T a, T b) { return T(fmaxf(a, b)); }                                                          \
    inline T __hmin(T a, T b) { return T(fminf(a, b)); }                                                          \
    inline bool __heq(T a, T b) { return a == b; }                                                                \
    inline bool __hne(T a, T b) { return float(a) < float(b) || float(a) > float(b); }                            \
    inline bool __hlt(T a, T b) { return a < b; }                                                                 \
    inline bool __hle(T a, T b) { return a <= b; }                                                                \
    inline bool __hgt(T a, T b) { return a > b; }                                                                 \
    inline bool __hge(T a, T b) { return a >= b; }                                                                \
    inline bool __hisnan(T v) { return float(v) != float(v); }                                                    \
    inline int __hisinf(T v) { return __builtin_isinf_sign(float(v)); }                                           \
    EMU_SHORT_UNARY(T, hexp, exp) EMU_SHORT_UNARY(T, hexp2, exp2) EMU_SHORT_UNARY(T, hexp10, emu_exp10)           \
    EMU_SHORT_UNARY(T, hlog, log) EMU_SHORT_UNARY(T, hlog2, log2) EMU_SHORT_UNARY(T, hlog10, log10)               \
    EMU_SHORT_UNARY(T, hsqrt, sqrt) EMU_SHORT_UNARY(T, hrsqrt, rsqrt) EMU_SHORT_UNARY(T, hrcp, 1 /)               \
    EMU_SHORT_UNARY(T, hsin, sin) EMU_SHORT_UNARY(T, hcos, cos) EMU_SHORT_UNARY(T, htanh, tanh)                   \
    EMU_SHORT_UNARY(T, hfloor, floor) EMU_SHORT_UNARY(T, hceil, ceil) EMU_SHORT_UNARY(T, htrunc, trunc)           \
    EMU_SHORT_UNARY(T, hrint, rint)

#define EMU_SHORT_PAIR(PAIR, T)                                                                    \
    struct alignas(4) PAIR {                                                                       \
        T x, y;                                                                                    \
        PAIR() = default;                                                                          \
        PAIR(T x, T y) : x(x), y(y) {}                                                             \
    };                                                                                             \
    inline PAIR operator+(PAIR a, PAIR b) { return {a.x + b.x, a.y + b.y}; }                       \
    inline PAIR operator-(PAIR a, PAIR b) { return {a.x - b.x, a.y - b.y}; }                       \
    inline PAIR operator*(PAIR a, PAIR b) { return {a.x * b.x, a.y * b.y}; }                       \
    inline PAIR operator/(PAIR a, PAIR b) { return {a.x / b.x, a.y / b.y}; }                       \
    inline PAIR __hadd2(PAIR a, PAIR b) { return a + b; }                                          \
    inline PAIR __hsub2(PAIR a, PAIR b) { return a - b; }                                          \
    inline PAIR __hmul2(PAIR a, PAIR b) { return a * b; }                                          \
    inline PAIR __hfma2(PAIR a, PAIR b, PAIR c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }  \
    inline PAIR __hmax2(PAIR a, PAIR b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }           \
    inline PAIR __hmin2(PAIR a, PAIR b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

inline double emu_exp10(double v) { return pow(10, v); }

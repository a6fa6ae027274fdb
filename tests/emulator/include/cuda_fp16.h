// float16: the arithmetic is that of float32 (exact, or of enough bits that rounding twice is rounding once), rounded.
#pragma once
#include "rounding.h"

struct alignas(2) __half {
    unsigned short __x;

    __half() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __half(T v) : __x(emu::f16_of(v)) {}
    operator float() const { return emu::f16_value(__x); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    explicit operator T() const { return T(emu::f16_value(__x)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __half& operator=(T v) { return *this = __half(v); }
};
using half = __half;
using __nv_half = __half;

EMU_SHORT_FLOAT(__half, float, emu::f16_of)

inline float __half2float(__half v) { return v; }
inline __half __float2half(float v) { return v; }
inline __half __float2half_rn(float v) { return v; }
inline __half __double2half(double v) { return v; }
inline __half __int2half_rn(int v) { return v; }
inline __half __ushort_as_half(unsigned short v) { return __builtin_bit_cast(__half, v); }
inline unsigned short __half_as_ushort(__half v) { return v.__x; }
inline __half __short_as_half(short v) { return __builtin_bit_cast(__half, v); }
inline short __half_as_short(__half v) { return short(v.__x); }
inline int __half2int_rz(__half v) { return __float2int_rz(v); }
inline int __half2int_rn(__half v) { return __float2int_rn(v); }

EMU_SHORT_PAIR(__half2, __half)
using half2 = __half2;
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half v) { return {v, v}; }
inline __half2 __float2half2_rn(float v) { return {v, v}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }

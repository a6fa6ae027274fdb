// bfloat16: the arithmetic is that of float64 (exact, or of enough bits that rounding twice is rounding once), rounded.
#pragma once
#include "rounding.h"

struct alignas(2) __nv_bfloat16 {
    unsigned short __x;

    __nv_bfloat16() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __nv_bfloat16(T v) : __x(emu::bf16_of(v)) {}
    operator float() const { return emu::bf16_value(__x); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    explicit operator T() const { return T(emu::bf16_value(__x)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __nv_bfloat16& operator=(T v) { return *this = __nv_bfloat16(v); }
};
using nv_bfloat16 = __nv_bfloat16;

EMU_SHORT_FLOAT(__nv_bfloat16, double, emu::bf16_of)

inline float __bfloat162float(__nv_bfloat16 v) { return v; }
inline __nv_bfloat16 __float2bfloat16(float v) { return v; }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return v; }
inline __nv_bfloat16 __double2bfloat16(double v) { return v; }
inline __nv_bfloat16 __int2bfloat16_rn(int v) { return v; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return __builtin_bit_cast(__nv_bfloat16, v); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.__x; }

EMU_SHORT_PAIR(__nv_bfloat162, __nv_bfloat16)
using nv_bfloat162 = __nv_bfloat162;
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v) { return {v, v}; }
inline __nv_bfloat162 __float2bfloat162_rn(float v) { return {v, v}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }

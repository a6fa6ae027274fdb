// CUDA C++ as g++ reads it: what nvcc knows without an include. It comes before every kernel's source.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <math.h>
#include <type_traits>

#include "emulator.h"

#define NEOFLOW_EMULATED 1
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDA_ARCH__ 900

#define EMU_INLINE inline __attribute__((always_inline))  // so that a call of the machine has its line in the source

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define alignas(n) __attribute__((aligned(n)))
#define __restrict__  // g++ would move loads over calls of the machine
#define __restrict

#define threadIdx (emu_thread())
#define blockIdx (emu_block())
#define blockDim (emu_block_dim())
#define gridDim (emu_grid_dim())
constexpr int warpSize = 32;
using dim3 = Dim;

// source.py writes these where a __shared__ variable is declared. One listed lies beside the next: g++ would leave gaps.
#define EMU_LISTED __attribute__((section("emu_shared_variables"), used, aligned(8)))
#define EMU_SHARED(WINDOW, TYPE, NAME, EXTENTS)                                                              \
    typedef TYPE emu_type_##WINDOW EXTENTS;                                                                  \
    static SharedVariable EMU_LISTED emu_variable_##WINDOW = {                                               \
        __func__, #NAME, WINDOW, sizeof(emu_type_##WINDOW), sizeof(TYPE)};                                   \
    emu_type_##WINDOW& NAME = *reinterpret_cast<emu_type_##WINDOW*>(emu_shared(WINDOW))
#define EMU_TYPE(...) __VA_ARGS__
#define EMU_DYNAMIC(TYPE, NAME) TYPE* NAME = reinterpret_cast<TYPE*>(emu_shared(1))

// ---- barriers --------------------------------------------------------------------------------------------------------

#define __syncthreads() emu_barrier(__LINE__)
#define __syncthreads_count(value) emu_barrier_count(__LINE__, value)
#define __syncthreads_or(value) (emu_barrier_count(__LINE__, value) != 0)
#define __syncthreads_and(value) (emu_barrier_count(__LINE__, !(value)) == 0)

EMU_INLINE void __syncwarp(unsigned mask = ~0u) { emu_warp_barrier(mask); }
EMU_INLINE void __threadfence() {}
EMU_INLINE void __threadfence_block() {}

// ---- shuffles and votes ----------------------------------------------------------------------------------------------

namespace emu {
enum Shuffle { INDEX, UP, DOWN, XOR };

template <class T>
EMU_INLINE T shuffle(unsigned mask, T value, int kind, int argument, int width) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    int lane = emu_lane(), first = lane & -width, source = lane;
    if (kind == INDEX) source = first | (argument & (width - 1));
    if (kind == UP && lane - argument >= first) source = lane - argument;
    if (kind == DOWN && lane + argument < first + width) source = lane + argument;
    if (kind == XOR && (lane ^ argument) < first + width) source = lane ^ argument;
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = emu_shuffle(mask, bits, source, kind * 64 + (width - 1) % 64);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
}  // namespace emu

#define EMU_SHUFFLE(NAME, KIND, ARGUMENT)                                       \
    template <class T>                                                          \
    EMU_INLINE T NAME(unsigned mask, T value, ARGUMENT argument, int width = 32) {  \
        return emu::shuffle(mask, value, emu::KIND, int(argument), width);      \
    }
EMU_SHUFFLE(__shfl_sync, INDEX, int)
EMU_SHUFFLE(__shfl_up_sync, UP, unsigned)
EMU_SHUFFLE(__shfl_down_sync, DOWN, unsigned)
EMU_SHUFFLE(__shfl_xor_sync, XOR, int)

EMU_INLINE unsigned __activemask() { return emu_active(); }
EMU_INLINE unsigned __ballot_sync(unsigned mask, int value) { return emu_ballot(mask, value, 0); }
EMU_INLINE int __any_sync(unsigned mask, int value) { return emu_ballot(mask, value, 1) != 0; }
EMU_INLINE int __all_sync(unsigned mask, int value) { return emu_ballot(mask, !value, 2) == 0; }

// ---- memory ----------------------------------------------------------------------------------------------------------

template <class T>
EMU_INLINE T __ldg(const T* p) {
    return *p;
}
template <class T>
EMU_INLINE T __ldcg(const T* p) {
    return *p;
}
template <class T>
EMU_INLINE T __ldcs(const T* p) {
    return *p;
}
template <class T>
EMU_INLINE void __stcs(T* p, T value) {
    *p = value;
}
template <class T>
EMU_INLINE void __stcg(T* p, T value) {
    *p = value;
}

namespace emu {
#define EMU_PLAIN __attribute__((noinline, no_sanitize("thread", "undefined")))
template <class T>
EMU_PLAIN T get(const T* p) {
    T value;
    __builtin_memcpy(&value, p, sizeof(T));
    return value;
}
template <class T>
EMU_PLAIN void put(T* p, const T& value) {
    __builtin_memcpy(p, &value, sizeof(T));
}
template <class T, class F>
EMU_INLINE T atomic(T* p, F change) {
    emu_update(p, sizeof(T));
    T before = get(p);
    put(p, T(change(before)));
    return before;
}
template <class T>
struct Same {
    using type = T;
};
}  // namespace emu

#define EMU_ATOMIC(NAME, EXPRESSION)                                                \
    template <class T>                                                              \
    EMU_INLINE T NAME(T* p, typename emu::Same<T>::type v) {                            \
        return emu::atomic(p, [v](T old) { return EXPRESSION; });                   \
    }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicMax, old < v ? v : old)
EMU_ATOMIC(atomicMin, v < old ? v : old)
EMU_ATOMIC(atomicExch, ((void)old, v))
EMU_ATOMIC(atomicAnd, old & v)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicXor, old ^ v)
EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
EMU_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)

template <class T>
EMU_INLINE T atomicCAS(T* p, typename emu::Same<T>::type compare, typename emu::Same<T>::type v) {
    return emu::atomic(p, [compare, v](T old) { return old == compare ? v : old; });
}

EMU_INLINE unsigned long __cvta_generic_to_shared(const void* p) { return (unsigned long)p; }

#include "vectors.h"

#include "functions.h"

#include "neoflow.h"

// nvcuda::wmma. Which element a lane's x[i] is, is left open by CUDA: here lane l has elements l, l + 32, ...
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

namespace detail {
template <class T>
struct Stored {
    using type = T;
};
template <>
struct Stored<precision::tf32> {
    using type = float;
};
template <class T>
constexpr int element() {
    if (std::is_same_v<T, __half>) return ELEMENT_F16;
    if (std::is_same_v<T, __nv_bfloat16>) return ELEMENT_BF16;
    if (std::is_same_v<T, precision::tf32>) return ELEMENT_TF32;
    if (std::is_same_v<T, float>) return ELEMENT_F32;
    if (std::is_same_v<T, signed char>) return ELEMENT_S8;
    if (std::is_same_v<T, unsigned char>) return ELEMENT_U8;
    if (std::is_same_v<T, int>) return ELEMENT_S32;
    return -1;
}
template <class Use, int m, int n, int k>
struct Extent {  // of the accumulator
    static constexpr int rows = m, columns = n;
};
template <int m, int n, int k>
struct Extent<matrix_a, m, n, k> {
    static constexpr int rows = m, columns = k;
};
template <int m, int n, int k>
struct Extent<matrix_b, m, n, k> {
    static constexpr int rows = k, columns = n;
};
template <class T, int m, int n, int k>
constexpr bool shape() {
    if (std::is_same_v<T, precision::tf32>) return m == 16 && n == 16 && k == 8;
    return k == 16 && ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32));
}
}  // namespace detail

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
    static_assert(detail::element<T>() >= 0, "a type that wmma has not");
    using element_type = T;
    using storage_element_type = typename detail::Stored<T>::type;
    using Extent = detail::Extent<Use, m, n, k>;
    static constexpr int num_elements = Extent::rows * Extent::columns / 32;
    static constexpr int num_storage_elements = num_elements;
    storage_element_type x[num_elements];
};

namespace detail {
// Where the elements of this lane lie.
template <class Fragment, class Pointer, class F>
EMU_INLINE void each(Fragment& f, Pointer p, unsigned stride, bool columns, int variant, F move) {
    using E = typename Fragment::Extent;
    emu_agree(p, stride, variant * 2 + columns);
    if ((unsigned long)p % 32) emu_misaligned(p, 32);
    if (stride * sizeof(*p) % 16) emu_misaligned(p + stride, 16);
    for (int i = 0; i < Fragment::num_elements; ++i) {
        int at = i * 32 + emu_lane(), row = at / E::columns, column = at % E::columns;
        move(f.x[i], p[columns ? column * (long)stride + row : row * (long)stride + column]);
    }
}
}  // namespace detail

template <class Use, int m, int n, int k, class T, class Layout, class P>
EMU_INLINE void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const P* p, unsigned stride) {
    static_assert(!std::is_same_v<Use, accumulator>, "an accumulator is loaded with its layout");
    detail::each(f, p, stride, std::is_same_v<Layout, col_major>, 0, [](auto& in, auto& out) { in = out; });
}
template <int m, int n, int k, class T, class P>
EMU_INLINE void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const P* p, unsigned stride, layout_t layout) {
    detail::each(f, p, stride, layout == mem_col_major, 1, [](auto& in, auto& out) { in = out; });
}
template <int m, int n, int k, class T, class P>
EMU_INLINE void store_matrix_sync(P* p, const fragment<accumulator, m, n, k, T>& f, unsigned stride, layout_t layout) {
    detail::each(f, p, stride, layout == mem_col_major, 2, [](auto& in, auto& out) { out = in; });
}
template <class Use, int m, int n, int k, class T, class Layout, class V>
EMU_INLINE void fill_fragment(fragment<Use, m, n, k, T, Layout>& f, const V& value) {
    emu_agree(nullptr, 0, 3);
    for (auto& x : f.x) x = typename fragment<Use, m, n, k, T, Layout>::storage_element_type(value);
}
template <int m, int n, int k, class A, class LA, class LB, class D, class C>
EMU_INLINE void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, A, LA>& a,
                     const fragment<matrix_b, m, n, k, A, LB>& b, const fragment<accumulator, m, n, k, C>& c) {
    static_assert(detail::shape<A, m, n, k>(), "a shape that wmma has not");
    static_assert(std::is_same_v<C, D>, "accumulators of two types");
    emu_wmma(d.x, a.x, b.x, c.x, m, n, k, detail::element<A>(), detail::element<D>());
}
EMU_INLINE float __float_to_tf32(float v) { return nf_tf32(v); }

}  // namespace wmma
}  // namespace nvcuda

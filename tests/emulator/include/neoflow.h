// The functions of neoflow/codegen/gpu/device.cuh, in the machine's terms.
#pragma once

EMU_INLINE void nf_cp_async_4(void* shared, const void* global) { emu_copy(shared, global, 4); }
EMU_INLINE void nf_cp_async_8(void* shared, const void* global) { emu_copy(shared, global, 8); }
EMU_INLINE void nf_cp_async_16(void* shared, const void* global) { emu_copy(shared, global, 16); }
EMU_INLINE void nf_cp_async_zfill_4(void* shared, const void* global, bool ok) { emu_copy(shared, ok ? global : nullptr, 4); }
EMU_INLINE void nf_cp_async_zfill_8(void* shared, const void* global, bool ok) { emu_copy(shared, ok ? global : nullptr, 8); }
EMU_INLINE void nf_cp_async_zfill_16(void* shared, const void* global, bool ok) { emu_copy(shared, ok ? global : nullptr, 16); }
EMU_INLINE void nf_cp_async_commit() { emu_copy_commit(); }
EMU_INLINE void nf_cp_async_wait_0() { emu_copy_wait(0, 0); }
EMU_INLINE void nf_cp_async_wait_1() { emu_copy_wait(1, 0); }
EMU_INLINE void nf_cp_async_wait_2() { emu_copy_wait(2, 0); }
EMU_INLINE void nf_cp_async_wait_3() { emu_copy_wait(3, 0); }
EMU_INLINE void nf_cp_async_wait_4() { emu_copy_wait(4, 0); }
EMU_INLINE void nf_cp_async_wait_all() { emu_copy_wait(0, 1); }

EMU_INLINE void nf_ldmatrix_x1(void* r, const void* row) { emu_ldmatrix((unsigned*)r, row, 1, 0); }
EMU_INLINE void nf_ldmatrix_x2(void* r, const void* row) { emu_ldmatrix((unsigned*)r, row, 2, 0); }
EMU_INLINE void nf_ldmatrix_x4(void* r, const void* row) { emu_ldmatrix((unsigned*)r, row, 4, 0); }
EMU_INLINE void nf_ldmatrix_x1_trans(void* r, const void* row) { emu_ldmatrix((unsigned*)r, row, 1, 1); }
EMU_INLINE void nf_ldmatrix_x2_trans(void* r, const void* row) { emu_ldmatrix((unsigned*)r, row, 2, 1); }
EMU_INLINE void nf_ldmatrix_x4_trans(void* r, const void* row) { emu_ldmatrix((unsigned*)r, row, 4, 1); }

EMU_INLINE void nf_mma_m16n8k8_f16(float* d, const void* a, const void* b) { emu_mma(d, (unsigned*)a, (unsigned*)b, 8, ELEMENT_F16); }
EMU_INLINE void nf_mma_m16n8k16_f16(float* d, const void* a, const void* b) { emu_mma(d, (unsigned*)a, (unsigned*)b, 16, ELEMENT_F16); }
EMU_INLINE void nf_mma_m16n8k8_bf16(float* d, const void* a, const void* b) { emu_mma(d, (unsigned*)a, (unsigned*)b, 8, ELEMENT_BF16); }
EMU_INLINE void nf_mma_m16n8k16_bf16(float* d, const void* a, const void* b) { emu_mma(d, (unsigned*)a, (unsigned*)b, 16, ELEMENT_BF16); }
EMU_INLINE void nf_mma_m16n8k4_tf32(float* d, const void* a, const void* b) { emu_mma(d, (unsigned*)a, (unsigned*)b, 4, ELEMENT_TF32); }
EMU_INLINE void nf_mma_m16n8k8_tf32(float* d, const void* a, const void* b) { emu_mma(d, (unsigned*)a, (unsigned*)b, 8, ELEMENT_TF32); }

EMU_INLINE unsigned long long nf_wgmma_operand(const void* p, int panel) { return emu_wgmma_operand(p, panel); }
EMU_INLINE void nf_wgmma_publish() { emu_wgmma_publish(); }

EMU_INLINE void nf_wgmma_commit() { emu_wgmma_commit(); }

EMU_INLINE void nf_mbarrier_new(void* barrier) { emu_mbarrier_new(barrier, 1); }
EMU_INLINE void nf_mbarrier_expect(void* barrier, int bytes) { emu_mbarrier_expect(barrier, bytes); }
EMU_INLINE void nf_mbarrier_wait(void* barrier, int parity) { emu_mbarrier_wait(barrier, parity); }
EMU_INLINE void nf_map_new(void* maps, int n, const void* tensor, int rank) { emu_map_new(maps, n, tensor, rank); }
#define EMU_MAP_DIM(D) EMU_INLINE void nf_map_dim_##D(void* maps, int n, int extent, int box) { emu_map_dim(maps, n, D, extent, box); }
#define EMU_MAP_STRIDE(D) EMU_INLINE void nf_map_stride_##D(void* maps, int n, long long bytes) { emu_map_stride(maps, n, D, bytes); }
EMU_MAP_DIM(0)
EMU_MAP_DIM(1)
EMU_MAP_DIM(2)
EMU_MAP_DIM(3)
EMU_MAP_DIM(4)
EMU_MAP_STRIDE(0)
EMU_MAP_STRIDE(1)
EMU_MAP_STRIDE(2)
EMU_MAP_STRIDE(3)
EMU_INLINE void nf_map_end_f16(void* maps, int n) { emu_map_end(maps, n, ELEMENT_F16); }
EMU_INLINE void nf_map_end_bf16(void* maps, int n) { emu_map_end(maps, n, ELEMENT_BF16); }
EMU_INLINE void nf_map_acquire(const void* maps, int n) { emu_map_acquire(maps, n); }
#define EMU_BULK_COPY(RANK)                                                                              \
    template <class... C>                                                                                \
    EMU_INLINE void nf_bulk_copy_##RANK(void* to, const void* maps, int n, void* barrier, C... at) {     \
        int places[] = {at...};                                                                          \
        static_assert(sizeof...(at) == RANK, "a place a dimension");                                     \
        emu_bulk_copy(to, maps, n, barrier, places, RANK);                                               \
    }
EMU_BULK_COPY(2)
EMU_BULK_COPY(3)
EMU_BULK_COPY(4)
EMU_BULK_COPY(5)

// To nearest, halves away from zero.
EMU_INLINE float nf_tf32(float v) {
    unsigned bits = __float_as_uint(v);
    if (v != v) return __uint_as_float(0x7fffffff);
    if ((bits & 0x7f800000) == 0x7f800000) return v;
    return __uint_as_float((bits + 0x1000) & ~0x1fffu);
}
EMU_INLINE void nf_tf32_x4(void* r) {
    for (int i = 0; i < 4; ++i) ((float*)r)[i] = nf_tf32(((float*)r)[i]);
}

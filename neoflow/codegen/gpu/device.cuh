// What kernels call beside CUDA's own names: asynchronous copies, matrices in registers, tensor cores. A prefix of every
// kernel's source. tests/emulator gives each of these functions its meaning in software.
//
// Registers of a lane follow the PTX manual ("Matrix Fragments for mma.m16n8k16" and its neighbours): of lane 4 g + t, with
// 16-bit elements in pairs,
//   a: (g, 2t) (g+8, 2t) (g, 2t+8) (g+8, 2t+8)      b: (2t, g) (2t+8, g)      d: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1)
// and with tf32, a: (g, t) (g+8, t) (g, t+4) (g+8, t+4), b: (t, g) (t+4, g).
#ifndef NEOFLOW_EMULATED

#define NF_DEVICE static __device__ __forceinline__

NF_DEVICE unsigned nf_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- ldmatrix, sm_75: lane i gives the row i % 8 of matrix i / 8, 16 aligned bytes of shared memory -----------------

#define NF_LDMATRIX_1(NAME, KIND)                                                     \
    NF_DEVICE void NAME(void* to, const void* row) {                                  \
        unsigned* r = (unsigned*)to;                                                  \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" KIND ".shared.b16 {%0}, [%1];\n" \
                     : "=r"(r[0])                                                     \
                     : "r"(nf_shared(row))                                            \
                     : "memory");                                                     \
    }
#define NF_LDMATRIX_2(NAME, KIND)                                                         \
    NF_DEVICE void NAME(void* to, const void* row) {                                      \
        unsigned* r = (unsigned*)to;                                                      \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" KIND ".shared.b16 {%0, %1}, [%2];\n" \
                     : "=r"(r[0]), "=r"(r[1])                                             \
                     : "r"(nf_shared(row))                                                \
                     : "memory");                                                         \
    }
#define NF_LDMATRIX_4(NAME, KIND)                                                                 \
    NF_DEVICE void NAME(void* to, const void* row) {                                              \
        unsigned* r = (unsigned*)to;                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" KIND ".shared.b16 {%0, %1, %2, %3}, [%4];\n" \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                             \
                     : "r"(nf_shared(row))                                                        \
                     : "memory");                                                                 \
    }
NF_LDMATRIX_1(nf_ldmatrix_x1, "")
NF_LDMATRIX_2(nf_ldmatrix_x2, "")
NF_LDMATRIX_4(nf_ldmatrix_x4, "")
NF_LDMATRIX_1(nf_ldmatrix_x1_trans, ".trans")
NF_LDMATRIX_2(nf_ldmatrix_x2_trans, ".trans")
NF_LDMATRIX_4(nf_ldmatrix_x4_trans, ".trans")

// ---- mma.sync: d += a b, d of float32 -------------------------------------------------------------------------------

#define NF_MMA_1(NAME, SHAPE_AND_TYPES)                                                                     \
    NF_DEVICE void NAME(float* d, const void* of_a, const void* of_b) {                                     \
        const unsigned *a = (const unsigned*)of_a, *b = (const unsigned*)of_b;                              \
        asm volatile("mma.sync.aligned." SHAPE_AND_TYPES " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n" \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                                    \
    }
#define NF_MMA_2(NAME, SHAPE_AND_TYPES)                                                                                     \
    NF_DEVICE void NAME(float* d, const void* of_a, const void* of_b) {                                                     \
        const unsigned *a = (const unsigned*)of_a, *b = (const unsigned*)of_b;                                              \
        asm volatile("mma.sync.aligned." SHAPE_AND_TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n" \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                   \
    }
NF_MMA_1(nf_mma_m16n8k8_f16, "m16n8k8.row.col.f32.f16.f16.f32")  // sm_75

#if __CUDA_ARCH__ >= 800

NF_MMA_2(nf_mma_m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32")
NF_MMA_1(nf_mma_m16n8k8_bf16, "m16n8k8.row.col.f32.bf16.bf16.f32")
NF_MMA_2(nf_mma_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
NF_MMA_1(nf_mma_m16n8k4_tf32, "m16n8k4.row.col.f32.tf32.tf32.f32")
NF_MMA_2(nf_mma_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")

// To the nearest tf32 (10 bits after the point), halves away from zero: what tensor cores take without cutting bits off.
NF_DEVICE float nf_tf32(float v) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(v));
    return __uint_as_float(bits);
}
// A fragment's registers, so.
NF_DEVICE void nf_tf32_x4(void* registers) {
    float* r = (float*)registers;
    for (int i = 0; i < 4; ++i) r[i] = nf_tf32(r[i]);
}

// ---- cp.async: 4, 8 or 16 aligned bytes from global to shared memory; 16 go past the first cache ---------------------
// What it brings is there after nf_cp_async_wait_N (all but the N last groups have come) and a barrier. `zfill`: zeros
// where not `ok`, and nothing is read.

#define NF_CP_ASYNC(BYTES, CACHE)                                                                       \
    NF_DEVICE void nf_cp_async_##BYTES(void* shared, const void* global) {                              \
        asm volatile("cp.async." CACHE ".shared.global [%0], [%1], " #BYTES ";\n" ::"r"(nf_shared(shared)), \
                     "l"(__cvta_generic_to_global(global))                                              \
                     : "memory");                                                                       \
    }                                                                                                   \
    NF_DEVICE void nf_cp_async_zfill_##BYTES(void* shared, const void* global, bool ok) {               \
        asm volatile("cp.async." CACHE ".shared.global [%0], [%1], " #BYTES ", %2;\n" ::"r"(nf_shared(shared)), \
                     "l"(__cvta_generic_to_global(global)), "r"(ok ? BYTES : 0)                         \
                     : "memory");                                                                       \
    }
NF_CP_ASYNC(4, "ca")
NF_CP_ASYNC(8, "ca")
NF_CP_ASYNC(16, "cg")

#define NF_CP_ASYNC_WAIT(N) \
    NF_DEVICE void nf_cp_async_wait_##N() { asm volatile("cp.async.wait_group " #N ";\n" ::: "memory"); }
NF_CP_ASYNC_WAIT(0)
NF_CP_ASYNC_WAIT(1)
NF_CP_ASYNC_WAIT(2)
NF_CP_ASYNC_WAIT(3)
NF_CP_ASYNC_WAIT(4)
NF_DEVICE void nf_cp_async_wait_all() { asm volatile("cp.async.wait_all;\n" ::: "memory"); }
NF_DEVICE void nf_cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

#endif  // sm_80

// ---- wgmma, sm_90a: operands in shared memory, in lines of 128 bytes, named by descriptors --------------------------
// Sums and instructions are functions of `wgmma.py`, which knows how many there are.

#if __CUDA_ARCH__ >= 900

// Of what is at p: its 128-byte lines with their chunks swizzled, 1024 bytes from 8 lines to the next. panel: bytes from
// 64 rows to the next where lines are not along K.
NF_DEVICE unsigned long long nf_wgmma_operand(const void* p, int panel) {
    unsigned long long start = (nf_shared(p) & 0x3ffff) >> 4, leading = (panel & 0x3ffff) >> 4, stride = 1024 >> 4;
    return start | leading << 16 | stride << 32 | 1ull << 62;
}
// What this thread has stored in shared memory, for instructions that read it by descriptors after a barrier.
NF_DEVICE void nf_wgmma_publish() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }
// What was begun since is a group, which is waited for by how many later ones there are.
NF_DEVICE void nf_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

// ---- barriers of shared memory that count the bytes of copies: 8 aligned bytes, one thread that comes a phase --------

NF_DEVICE void nf_mbarrier_new(void* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;\n" ::"r"(nf_shared(barrier))
                 : "memory");
}
// This phase is over when so many bytes have come.
NF_DEVICE void nf_mbarrier_expect(void* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(nf_shared(barrier)), "r"(bytes) : "memory");
}
// Until the phase of this parity, from 0 on, is over.
NF_DEVICE void nf_mbarrier_wait(void* barrier, int parity) {
    unsigned is_over = 0;
    while (!is_over)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(is_over)
                     : "r"(nf_shared(barrier)), "r"(parity)
                     : "memory");
}

// ---- maps of tensors, sm_90a: what a bulk copy takes a box of, 128 aligned bytes of global memory --------------------
// One launch makes them, from the fastest dimension on, in bytes and elements; later ones take copies by them.

NF_DEVICE unsigned long long nf_map(const void* maps, int n) {
    return (((unsigned long long)__cvta_generic_to_global(maps) + 127) & ~127ull) + 128 * n;
}
NF_DEVICE void nf_map_new(void* maps, int n, const void* tensor, int rank) {
    unsigned long long map = nf_map(maps, n);
    for (int i = 0; i < 16; ++i) ((unsigned long long*)map)[i] = 0;
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;\n" ::"l"(map),
                 "l"(__cvta_generic_to_global(tensor))
                 : "memory");
    asm volatile("tensormap.replace.tile.rank.global.b1024.b32 [%0], %1;\n" ::"l"(map), "r"(rank - 1) : "memory");
}
#define NF_MAP_DIM(D)                                                                                                      \
    NF_DEVICE void nf_map_dim_##D(void* maps, int n, int extent, int box) {                                                \
        unsigned long long map = nf_map(maps, n);                                                                          \
        asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], " #D ", %1;\n" ::"l"(map), "r"(extent)      \
                     : "memory");                                                                                          \
        asm volatile("tensormap.replace.tile.box_dim.global.b1024.b32 [%0], " #D ", %1;\n" ::"l"(map), "r"(box) : "memory"); \
        asm volatile("tensormap.replace.tile.element_stride.global.b1024.b32 [%0], " #D ", %1;\n" ::"l"(map), "r"(1)       \
                     : "memory");                                                                                          \
    }
// From a point of dimension D + 1 to the next.
#define NF_MAP_STRIDE(D)                                                                                                   \
    NF_DEVICE void nf_map_stride_##D(void* maps, int n, long long bytes) {                                                 \
        asm volatile("tensormap.replace.tile.global_stride.global.b1024.b64 [%0], " #D ", %1;\n" ::"l"(nf_map(maps, n)),   \
                     "l"(bytes)                                                                                            \
                     : "memory");                                                                                          \
    }
NF_MAP_DIM(0)
NF_MAP_DIM(1)
NF_MAP_DIM(2)
NF_MAP_DIM(3)
NF_MAP_DIM(4)
NF_MAP_STRIDE(0)
NF_MAP_STRIDE(1)
NF_MAP_STRIDE(2)
NF_MAP_STRIDE(3)
// Its elements, in lines of 128 bytes with their chunks swizzled; zeros outside. Then it is there for later launches.
#define NF_MAP_END(NAME, TYPE)                                                                                    \
    NF_DEVICE void nf_map_end_##NAME(void* maps, int n) {                                                         \
        asm volatile("tensormap.replace.tile.elemtype.global.b1024.b32 [%0], " #TYPE ";\n"                        \
                     "tensormap.replace.tile.interleave_layout.global.b1024.b32 [%0], 0;\n"                       \
                     "tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%0], 3;\n"                            \
                     "tensormap.replace.tile.fill_mode.global.b1024.b32 [%0], 0;\n"                               \
                     "fence.proxy.tensormap::generic.release.gpu;\n" ::"l"(nf_map(maps, n))                       \
                     : "memory");                                                                                 \
    }
NF_MAP_END(f16, 6)
NF_MAP_END(bf16, 10)
// What another launch has made of it, for this thread's copies.
NF_DEVICE void nf_map_acquire(const void* maps, int n) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;\n" ::"l"(nf_map(maps, n)) : "memory");
}

// ---- bulk copies: a box of a tensor to shared memory, by one thread, counted by a barrier when it is there -----------

#define NF_BULK_COPY(RANK, PARAMETERS, PLACES, ...)                                                                  \
    NF_DEVICE void nf_bulk_copy_##RANK(void* to, const void* maps, int n, void* barrier, PARAMETERS) {               \
        asm volatile("cp.async.bulk.tensor." #RANK                                                                   \
                     "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" PLACES "}], [%2];\n" :: \
                         "r"(nf_shared(to)),                                                                         \
                     "l"(nf_map(maps, n)), "r"(nf_shared(barrier)), __VA_ARGS__                                      \
                     : "memory");                                                                                    \
    }
#define NF_COMMA ,
NF_BULK_COPY(2, int c0 NF_COMMA int c1, "%3, %4", "r"(c0), "r"(c1))
NF_BULK_COPY(3, int c0 NF_COMMA int c1 NF_COMMA int c2, "%3, %4, %5", "r"(c0), "r"(c1), "r"(c2))
NF_BULK_COPY(4, int c0 NF_COMMA int c1 NF_COMMA int c2 NF_COMMA int c3, "%3, %4, %5, %6", "r"(c0), "r"(c1), "r"(c2), "r"(c3))
NF_BULK_COPY(5, int c0 NF_COMMA int c1 NF_COMMA int c2 NF_COMMA int c3 NF_COMMA int c4, "%3, %4, %5, %6, %7", "r"(c0), "r"(c1),
             "r"(c2), "r"(c3), "r"(c4))

#endif  // sm_90
#endif  // NEOFLOW_EMULATED

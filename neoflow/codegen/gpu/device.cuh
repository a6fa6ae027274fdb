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

#endif  // sm_90
#endif  // NEOFLOW_EMULATED

// C = A B of 32 x 32 x 32, bfloat16 to float32, by wmma: two warps, each with one row of two tiles (sm_80).
#include <mma.h>
extern "C" __global__ void __launch_bounds__(64) fragments(nv_bfloat16* __restrict__ A, nv_bfloat16* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(128) nv_bfloat16 As[1024];
  __shared__ __align__(128) nv_bfloat16 Bs[1024];
  int t = (int)threadIdx.x, warp = t / 32;
  for (int i = t; i < 512; i += 64) {
    *(nv_bfloat162*)(As + i * 2) = *(nv_bfloat162*)(A + i * 2);
    *(nv_bfloat162*)(Bs + i * 2) = *(nv_bfloat162*)(B + i * 2);
  }
  __syncthreads();
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c[2];
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, nv_bfloat16, nvcuda::wmma::row_major> a;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, nv_bfloat16, nvcuda::wmma::row_major> b;
  nvcuda::wmma::fill_fragment(c[0], 0.000000e+00f);
  nvcuda::wmma::fill_fragment(c[1], 0.000000e+00f);
  for (int k = 0; k < 2; ++k) {
    nvcuda::wmma::load_matrix_sync(a, As + (warp * 512 + k * 16), 32);
    for (int j = 0; j < 2; ++j) {
      nvcuda::wmma::load_matrix_sync(b, Bs + (k * 512 + j * 16), 32);
      nvcuda::wmma::mma_sync(c[j], a, b, c[j]);
    }
  }
  nvcuda::wmma::store_matrix_sync(C + warp * 512, c[0], 32, nvcuda::wmma::mem_row_major);
  nvcuda::wmma::store_matrix_sync(C + (warp * 512 + 16), c[1], 32, nvcuda::wmma::mem_row_major);
}

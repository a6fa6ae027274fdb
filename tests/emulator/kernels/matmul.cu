// C = A B of 64 x 128 x 64 in float32, tiles of 32 x 32, three of them under way (sm_80).
extern "C" __global__ void __launch_bounds__(128) matmul(float* __restrict__ A, float* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) float As[3 * 1024];
  __shared__ __align__(16) float Bs[3 * 1024];
  int t = (int)threadIdx.x;
  int row = (int)blockIdx.x / 2 * 32, column = (int)blockIdx.x % 2 * 32;
  float sums[8];
  for (int i = 0; i < 8; ++i) {
    sums[i] = 0.0f;
  }
  for (int k = 0; k < 2; ++k) {
    for (int i = 0; i < 2; ++i) {
      int y = t / 8 + i * 16, x = t % 8 * 4;
      nf_cp_async_16(As + (k * 1024 + y * 32 + x), A + ((row + y) * 128 + k * 32 + x));
      nf_cp_async_16(Bs + (k * 1024 + y * 32 + x), B + ((k * 32 + y) * 64 + column + x));
    }
    nf_cp_async_commit();
  }
  for (int k = 0; k < 4; ++k) {
    nf_cp_async_wait_1();
    __syncthreads();
    for (int i = 0; i < 2; ++i) {
      int y = t / 8 + i * 16, x = t % 8 * 4, next = (k + 2) % 3;
      bool ok = k + 2 < 4;
      nf_cp_async_zfill_16(As + (next * 1024 + y * 32 + x), A + ((row + y) * 128 + (k + 2) * 32 + x), ok);
      nf_cp_async_zfill_16(Bs + (next * 1024 + y * 32 + x), B + (((k + 2) * 32 + y) * 64 + column + x), ok);
    }
    nf_cp_async_commit();
    for (int j = 0; j < 32; ++j) {
      for (int i = 0; i < 8; ++i) {
        sums[i] = fmaf(As[k % 3 * 1024 + (t / 32 * 8 + i) * 32 + j], Bs[k % 3 * 1024 + j * 32 + t % 32], sums[i]);
      }
    }
  }
  for (int i = 0; i < 8; ++i) {
    C[(row + t / 32 * 8 + i) * 64 + column + t % 32] = sums[i];
  }
}

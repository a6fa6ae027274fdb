// C = A B of 32 x 32 x 64, float16 to float32, by mma.sync and ldmatrix; a warp has 16 x 16 of C (sm_80).
extern "C" __global__ void __launch_bounds__(128) tiles(half* __restrict__ A, half* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(128) half As[32 * 72];
  __shared__ __align__(128) half Bs[64 * 40];
  int t = (int)threadIdx.x, lane = t % 32, row = t / 64 * 16, column = t / 32 % 2 * 16;
  for (int i = t; i < 256; i += 128) {
    *(uint4*)(As + (i / 8 * 72 + i % 8 * 8)) = *(uint4*)(A + i * 8);
    *(uint4*)(Bs + (i / 4 * 40 + i % 4 * 8)) = *(uint4*)(B + i * 8);
  }
  __syncthreads();
  float d[8];
  unsigned a[4], b[4];
  for (int i = 0; i < 8; ++i) {
    d[i] = 0.0f;
  }
  for (int k = 0; k < 64; k += 16) {
    nf_ldmatrix_x4(a, As + ((row + lane % 16) * 72 + k + lane / 16 * 8));
    nf_ldmatrix_x4_trans(b, Bs + ((k + lane % 16) * 40 + column + lane / 16 * 8));
    nf_mma_m16n8k16_f16(d, a, b);
    nf_mma_m16n8k16_f16(d + 4, a, b + 2);
  }
  for (int j = 0; j < 2; ++j) {
    for (int i = 0; i < 4; ++i) {
      C[(row + lane / 4 + i / 2 * 8) * 32 + column + j * 8 + lane % 4 * 2 + i % 2] = d[j * 4 + i];
    }
  }
}

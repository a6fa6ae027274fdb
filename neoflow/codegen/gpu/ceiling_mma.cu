// NF_SYMBOL: a warp's products of small matrices by NF_MMA, 8 tiles of accumulators side by side.
extern "C" __global__ void __launch_bounds__(256) NF_SYMBOL(float* out) {
  unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
  float d[8][4];
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i) d[n][i] = 0.25f * n + i;
#pragma unroll 1
  for (int round = 0; round < NF_ROUNDS; ++round) {
#pragma unroll
    for (int n = 0; n < 8; ++n) NF_MMA(d[n], a, b);
  }
  float sum = 0.0f;
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i) sum += d[n][i];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

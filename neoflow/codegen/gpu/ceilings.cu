// What a GPU reaches at most: kernels of nothing but one kind of work. The results are stored, so that none is left out.
extern "C" __global__ void __launch_bounds__(256) nf_peak_empty(float* out) {}

// 16 chains of multiply-adds a thread, 8 x 16 each round.
extern "C" __global__ void __launch_bounds__(256) nf_peak_fma(float* out) {
  float v[16];
  for (int n = 0; n < 16; ++n) v[n] = 0.25f * n + threadIdx.x;
#pragma unroll 1
  for (int round = 0; round < NF_ROUNDS; ++round) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int n = 0; n < 16; ++n) v[n] = fmaf(v[n], 0.5f, 0.25f);
    }
  }
  float sum = 0.0f;
  for (int n = 0; n < 16; ++n) sum += v[n];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

// 16 bytes a thread each round, read and written.
extern "C" __global__ void __launch_bounds__(256) nf_peak_copy(float4* from, float4* to) {
  const unsigned first = blockIdx.x * (256 * NF_COPIES) + threadIdx.x;
#pragma unroll
  for (int n = 0; n < NF_COPIES; ++n) to[first + 256 * n] = from[first + 256 * n];
}

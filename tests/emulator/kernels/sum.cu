// Sums of 1024 elements a block: vectors, a tree in shared memory, shuffles at its end.
extern "C" __global__ void __launch_bounds__(256) sum(float* __restrict__ A, float* __restrict__ B, int* __restrict__ blocks) {
  __shared__ alignas(64) float S[256];
  int t = (int)threadIdx.x;
  float4 v = *(float4*)(A + ((int)blockIdx.x * 1024 + t * 4));
  S[t] = v.x + v.y + v.z + v.w;
  __syncthreads();
  for (int s = 128; s >= 32; s >>= 1) {
    if (t < s) {
      S[t] = S[t] + S[t + s];
    }
    __syncthreads();
  }
  if (t < 32) {
    float part = S[t];
    for (int i = 16; i > 0; i >>= 1) {
      part = part + __shfl_down_sync(0xffffffff, part, i, 32);
    }
    if (t == 0) {
      B[blockIdx.x] = part;
      atomicAdd(blocks, 1);
    }
  }
}

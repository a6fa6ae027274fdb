// Of rows of 100, a warp each.
extern "C" __global__ void __launch_bounds__(128) softmax(float* __restrict__ A, float* __restrict__ B) {
  int row = (int)blockIdx.x * 4 + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  float local[4];
  float most = -INFINITY;
  for (int i = 0; i < 4; ++i) {
    local[i] = lane + i * 32 < 100 ? A[row * 100 + lane + i * 32] : -INFINITY;
    most = max(most, local[i]);
  }
  for (int i = 16; i > 0; i >>= 1) {
    most = max(most, __shfl_xor_sync(0xffffffff, most, i, 32));
  }
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) {
    local[i] = expf(local[i] - most);
    sum = sum + local[i];
  }
  for (int i = 16; i > 0; i >>= 1) {
    sum = sum + __shfl_xor_sync(0xffffffff, sum, i, 32);
  }
  for (int i = 0; i < 4; ++i) {
    if (lane + i * 32 < 100) {
      B[row * 100 + lane + i * 32] = local[i] / sum;
    }
  }
}

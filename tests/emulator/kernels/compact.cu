// The positive elements of 64, one behind the other in each block, by votes; their running count by shuffles.
extern "C" __global__ void __launch_bounds__(64) compact(int* __restrict__ A, int* __restrict__ B, int* __restrict__ counts) {
  __shared__ int warps[2];
  int t = (int)threadIdx.x, lane = t % 32;
  int value = A[(int)blockIdx.x * 64 + t];
  unsigned votes = __ballot_sync(0xffffffff, value > 0);
  int scanned = value > 0 ? 1 : 0;
  for (int i = 1; i < 32; i <<= 1) {
    int other = __shfl_up_sync(0xffffffff, scanned, i);
    if (lane >= i) scanned += other;
  }
  if (lane == 0) {
    warps[t / 32] = __popc(votes);
  }
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1)) + (t >= 32 ? warps[0] : 0);
  if (value > 0) {
    B[(int)blockIdx.x * 64 + before] = value;
  }
  if (t == 63) {
    counts[blockIdx.x] = scanned + warps[0];
  }
  int any = __any_sync(0xffffffff, value > 0), all = __all_sync(0xffffffff, value > 0);
  if (any != (votes != 0) || all != (votes == 0xffffffff)) {
    counts[blockIdx.x] = -1;
  }
}

// Each warp reverses 32 elements of its own through shared memory, twice; lanes meet at __syncwarp.
extern "C" __global__ void __launch_bounds__(96) exchange(double* __restrict__ A, double* __restrict__ B) {
  extern __shared__ __align__(16) double buffer[];
  int t = (int)threadIdx.x, lane = t % 32, first = t - lane;
  buffer[t] = A[(int)blockIdx.x * 96 + t];
  __syncwarp();
  double mine = buffer[first + 31 - lane];
  __syncwarp(0xffffffff);
  buffer[t] = mine + 1.0;
  __syncwarp(lane < 16 ? 0x0000ffff : 0xffff0000);
  B[(int)blockIdx.x * 96 + t] = buffer[first + (lane ^ 15)];
}

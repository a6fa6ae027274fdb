// Adds rows of 64 to those of a table that indices name; the greatest index; the first index outside the table.
extern "C" __global__ void __launch_bounds__(64) scatter(int* __restrict__ ids, float* __restrict__ rows, float* __restrict__ table, int* __restrict__ greatest, int* __restrict__ status) {
  int id = ids[blockIdx.x];
  if (threadIdx.x == 0) {
    atomicMax(greatest, id);
  }
  if (id < 0 || id >= 10) {
    atomicCAS(status, 0, (int)blockIdx.x + 1);
  } else {
    atomicAdd(table + (id * 64 + (int)threadIdx.x), rows[(int)blockIdx.x * 64 + (int)threadIdx.x]);
  }
}

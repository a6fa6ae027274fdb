// Of a matrix of 96 x 70, by tiles of 32 x 32 in shared memory, whose rows are padded.
extern "C" __global__ void __launch_bounds__(256) transpose(half* __restrict__ A, half* __restrict__ B) {
  __shared__ half tile[32][33];
  int x = (int)threadIdx.x % 32, y = (int)threadIdx.x / 32;
  int row = (int)blockIdx.x / 3 * 32, column = (int)blockIdx.x % 3 * 32;
  for (int i = y; i < 32; i += 8) {
    if (column + x < 70) {
      tile[i][x] = A[(row + i) * 70 + column + x];
    }
  }
  __syncthreads();
  for (int i = y; i < 32; i += 8) {
    if (column + i < 70) {
      B[(column + i) * 96 + row + x] = tile[x][i];
    }
  }
}

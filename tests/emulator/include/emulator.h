// What a kernel's library calls in the machine: the border between the two.
#pragma once

struct Dim {
    unsigned x, y, z;
};

#define EMU_CONSTANT __attribute__((const))  // the same all through one thread's run

extern "C" {
Dim emu_thread() EMU_CONSTANT;
Dim emu_block() EMU_CONSTANT;
Dim emu_block_dim() EMU_CONSTANT;
Dim emu_grid_dim() EMU_CONSTANT;
unsigned emu_lane() EMU_CONSTANT;

char* emu_shared(unsigned window) EMU_CONSTANT;  // where a shared variable lies

void emu_barrier(int line);
int emu_barrier_count(int line, int value);  // threads whose value is not 0

unsigned emu_active();
void emu_warp_barrier(unsigned mask);
unsigned long long emu_shuffle(unsigned mask, unsigned long long value, unsigned source, int kind);
unsigned emu_ballot(unsigned mask, int value, int kind);

void emu_update(const void* address, unsigned long bytes);  // what follows is atomic there

void emu_copy(void* to, const void* from, unsigned bytes);  // from null: zeros
void emu_copy_commit();
void emu_copy_wait(unsigned groups_left, int open_too);

// Registers of the lanes of a warp; `kind` numbers the element type (enum Element).
void emu_ldmatrix(unsigned* registers, const void* row, int matrices, int transposed);
void emu_mma(float* d, const unsigned* a, const unsigned* b, int k, int kind);
// Of warpgroups: `sums` are n / 8 times 4 registers; what is multiplied is there after the wait.
unsigned long long emu_wgmma_operand(const void* p, int panel);
void emu_wgmma_publish();
void emu_wgmma_fence();
void emu_wgmma(float* const* sums, int n, unsigned long long a, unsigned long long b, int kind, int turned_a, int turned_b);
void emu_wgmma_commit();
void emu_wgmma_wait(int others);
// Bulk copies, which barriers in shared memory count, by maps of tensors in global memory.
void emu_mbarrier_new(void* barrier, unsigned count);
void emu_mbarrier_expect(void* barrier, int bytes);
void emu_mbarrier_wait(void* barrier, int parity);
void emu_map_new(void* maps, int n, const void* tensor, int rank);
void emu_map_dim(void* maps, int n, int dim, int extent, int box);
void emu_map_stride(void* maps, int n, int dim, long long bytes);
void emu_map_end(void* maps, int n, int kind);
void emu_map_acquire(const void* maps, int n);
void emu_bulk_copy(void* to, const void* maps, int n, void* barrier, const int* places, int rank);
void emu_read(const void* address, unsigned long bytes);  // of memory, by library code
void emu_write(const void* address, unsigned long bytes);
void emu_misaligned(const void* address, int multiple);
void emu_agree(const void* address, unsigned stride, int variant);  // a warp's lanes call this with equal arguments
// d[m][n] = a[m][k] b[k][n] + c[m][n]; each lane holds elements lane, lane + 32, ...
void emu_wmma(void* d, const void* a, const void* b, const void* c, int m, int n, int k, int kind, int accumulator);
}

enum Element { ELEMENT_F16, ELEMENT_BF16, ELEMENT_TF32, ELEMENT_F32, ELEMENT_S8, ELEMENT_U8, ELEMENT_S32 };

struct __attribute__((aligned(64))) SharedVariable {  // 64 bytes, so that they lie side by side; one a declaration; in the section emu_shared_variables of a kernel's library
    const char* function;
    const char* name;
    unsigned long window, bytes, element;
};

// Tensor cores: which element of a matrix a register of a lane holds is as the PTX manual draws it for mma and ldmatrix;
// for wmma it is nobody's business. Products are exact; each result is rounded once to its type.
#include "machine.h"

#include <cmath>
#include <cstring>
#include <immintrin.h>

#define PC __builtin_return_address(0)

namespace emu {

double decode(const void* at, int kind) {
    uint16_t half;
    uint32_t bits;
    float f;
    switch (kind) {
        case ELEMENT_F16: memcpy(&half, at, 2); return _cvtsh_ss(half);
        case ELEMENT_BF16: memcpy(&half, at, 2), bits = uint32_t(half) << 16, memcpy(&f, &bits, 4); return f;
        case ELEMENT_TF32: memcpy(&bits, at, 4), bits &= ~0x1fffu, memcpy(&f, &bits, 4); return f;  // the rest is not looked at
        case ELEMENT_F32: memcpy(&f, at, 4); return f;
        case ELEMENT_S8: return *(const signed char*)at;
        case ELEMENT_U8: return *(const unsigned char*)at;
        default: memcpy(&bits, at, 4); return (int)bits;
    }
}

static unsigned size_of(int kind) { return kind <= ELEMENT_BF16 ? 2 : kind == ELEMENT_S8 || kind == ELEMENT_U8 ? 1 : 4; }

static void encode(void* at, double value, int kind) {
    float f = float(value);
    uint16_t half;
    int whole = kind == ELEMENT_S32 ? int(value) : 0;
    switch (kind) {
        case ELEMENT_F16: half = _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT), memcpy(at, &half, 2); return;
        case ELEMENT_S32: memcpy(at, &whole, 4); return;
        default: memcpy(at, &f, 4);
    }
}

// ---- mma.sync m16n8k: registers of lane g * 4 + t --------------------------------------------------------------------

struct Mma {
    int k, kind;
    int per_register() const { return kind == ELEMENT_TF32 ? 1 : 2; }
    // a: rows g and g + 8, then the next columns likewise; a register holds neighbours of a row.
    void a(int row, int column, int& lane, int& element) const {
        int p = per_register(), quad = 4 * p;
        lane = row % 8 * 4 + column % quad / p;
        element = (row / 8 + column / quad * 2) * p + column % p;
    }
    // b: a register holds neighbours of a column.
    void b(int row, int column, int& lane, int& element) const {
        int p = per_register(), quad = 4 * p;
        lane = column * 4 + row % quad / p;
        element = row / quad * p + row % p;
    }
};

static void mma(Warp& warp, unsigned all, const void* pc) {
    const Slot& first = warp.lanes[0]->slot;
    Mma m{first.variant / 16, first.variant % 16};
    if (all != ~0u) fault(warp.lanes[0], WARPS, pc, 0, 0, "a warp of fewer than 32 lanes multiplies matrices");
    double a[16][16], b[16][8];
    unsigned bytes = size_of(m.kind);
    int lane, element;
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < m.k; ++k) {
            m.a(i, k, lane, element);
            a[i][k] = decode((char*)warp.lanes[lane]->slot.data[1] + element * bytes, m.kind);
        }
    for (int k = 0; k < m.k; ++k)
        for (int j = 0; j < 8; ++j) {
            m.b(k, j, lane, element);
            b[k][j] = decode((char*)warp.lanes[lane]->slot.data[2] + element * bytes, m.kind);
        }
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) {
            float* d = (float*)warp.lanes[i % 8 * 4 + j / 2]->slot.data[0] + i / 8 * 2 + j % 2;
            double sum = *d;
            for (int k = 0; k < m.k; ++k) sum += a[i][k] * b[k][j];
            *d = float(sum);
        }
}

// ---- ldmatrix: lane i gives the row i % 8 of matrix i / 8, and gets its part of every matrix --------------------------

static void ldmatrix(Warp& warp, unsigned all, const void* pc) {
    int matrices = warp.lanes[0]->slot.variant / 2, transposed = warp.lanes[0]->slot.variant % 2;
    if (all != ~0u) fault(warp.lanes[0], WARPS, pc, 0, 0, "a warp of fewer than 32 lanes loads matrices");
    for (int matrix = 0; matrix < matrices; ++matrix) {
        uint16_t rows[8][8];
        for (int row = 0; row < 8; ++row) memcpy(rows[row], warp.lanes[matrix * 8 + row]->slot.data[1], 16);
        for (int lane = 0; lane < 32; ++lane) {
            int i = lane / 4, j = lane % 4 * 2;
            unsigned low = transposed ? rows[j][i] : rows[i][j], high = transposed ? rows[j + 1][i] : rows[i][j + 1];
            ((unsigned*)warp.lanes[lane]->slot.data[0])[matrix] = high << 16 | low;
        }
    }
}

// ---- wmma: lane l holds elements l, l + 32, ... of a matrix, row by row ----------------------------------------------

struct Wmma {  // what the lanes bring beside their fragments
    void* d;
    const void *a, *b, *c;
    int m, n, k, kind, accumulator;
};

static void wmma(Warp& warp, unsigned all, const void* pc) {
    if (all != ~0u) fault(warp.lanes[0], WARPS, pc, 0, 0, "a warp of fewer than 32 lanes multiplies matrices");
    const Wmma* lanes[WARP];
    for (unsigned l = 0; l < WARP; ++l) lanes[l] = (const Wmma*)warp.lanes[l]->slot.data[0];
    const Wmma& w = *lanes[0];
    unsigned bytes = size_of(w.kind), wide = size_of(w.accumulator);
    static double a[32 * 32], b[32 * 32];
    for (int i = 0; i < w.m * w.k; ++i) a[i] = decode((const char*)lanes[i % 32]->a + i / 32 * bytes, w.kind);
    for (int i = 0; i < w.k * w.n; ++i) b[i] = decode((const char*)lanes[i % 32]->b + i / 32 * bytes, w.kind);
    for (int i = 0; i < w.m * w.n; ++i) {
        double sum = decode((const char*)lanes[i % 32]->c + i / 32 * wide, w.accumulator);
        for (int k = 0; k < w.k; ++k) sum += a[i / w.n * w.k + k] * b[k * w.n + i % w.n];
        encode((char*)lanes[i % 32]->d + i / 32 * wide, sum, w.accumulator);
    }
}

}  // namespace emu

using namespace emu;

extern "C" {
void emu_mma(float* d, const unsigned* a, const unsigned* b, int k, int kind) {
    meet({mma, ~0u, k * 16 + kind, 0, 0, {d, (void*)a, (void*)b}, PC});
}

void emu_ldmatrix(unsigned* registers, const void* row, int matrices, int transposed) {
    Thread* thread = machine.current;
    if (thread->lane < matrices * 8) {
        aligned(thread, row, 16, PC);
        if (uint64_t((char*)row - arena) >= GLOBAL) fault(thread, BOUNDS, PC, (uint64_t)row, 0, "loads a matrix from what is not shared memory");
        if (machine.checked) touch(thread, row, 16, READ, PC);
    }
    meet({ldmatrix, ~0u, matrices * 2 + transposed, 0, 0, {registers, (void*)row}, PC});
}

void emu_wmma(void* d, const void* a, const void* b, const void* c, int m, int n, int k, int kind, int accumulator) {
    Wmma w{d, a, b, c, m, n, k, kind, accumulator};
    meet({wmma, ~0u, ((m * 64 + n) * 64 + k) * 64 + kind * 8 + accumulator, 0, 0, {&w}, PC});
}
}

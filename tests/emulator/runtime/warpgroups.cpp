// Instructions of warpgroups: d[64][n] += a[64][16] b[16][n], of 16-bit operands that descriptors name in shared memory.
// They are asynchronous: sums are NaN from an instruction to its wait, and what it reads must stay until then.
// Descriptors and the layouts they name: PTX ISA, "Strides", "Matrix Descriptor Format", "Swizzling Modes".
#include "machine.h"

#include <cmath>
#include <cstring>

#define PC __builtin_return_address(0)

namespace emu {

constexpr int TERMS = 16, LINE = 128, SWIZZLE_128B = 1;

struct Matrix {  // a descriptor, decoded: offsets in the window of shared memory that it is in
    uint64_t start, leading, stride;
    bool turned;  // lines go along rows (or columns), not along the terms

    // Of an element, before chunks of 16 bytes change places within a line by the number of the line.
    uint64_t plain(int row, int term) const {
        if (!turned) return start + row / 8 * stride + row % 8 * LINE + term * 2;
        return start + row / 64 * leading + term / 8 * stride + term % 8 * LINE + row % 64 * 2;
    }
    uint64_t at(int row, int term) const {
        uint64_t place = plain(row, term);
        return place ^ (place / LINE % 8) * 16;
    }
};

static Matrix decoded(Thread* thread, uint64_t descriptor, bool turned, const void* pc) {
    if (descriptor >> 62 != SWIZZLE_128B || descriptor >> 49 & 7)
        fault(thread, WARPS, pc, 0, 0, "a descriptor of a swizzle or a base offset that nothing here has");
    return {(descriptor & 0x3fff) << 4, (descriptor >> 16 & 0x3fff) << 4, (descriptor >> 32 & 0x3fff) << 4, turned};
}

static const char* element(Thread* thread, const Product& p, const Matrix& m, int row, int term, const void* pc) {
    const char* at = p.window + m.at(row, term);
    if (machine.checked) touch(thread, at, 2, READ, pc);
    return at;
}

// Sums of lane 4 g + t of warp w: register i of square j is row 16 w + g + 8 (i / 2), column 8 j + 2 t + i % 2.
static void multiply(Thread* thread, Product& p, bool is_done, const void* pc) {
    Matrix a = decoded(thread, p.a, p.turned_a, pc), b = decoded(thread, p.b, p.turned_b, pc);
    int warp = thread->number / WARP % 4, g = thread->lane / 4, t = thread->lane % 4;
    double left[2][TERMS], right[TERMS];
    for (int half = 0; half < 2; ++half)
        for (int k = 0; k < TERMS; ++k)
            left[half][k] = decode(element(thread, p, a, 16 * warp + g + 8 * half, k, pc), p.kind);
    for (int j = 0; j < p.n / 8; ++j)
        for (int odd = 0; odd < 2; ++odd) {
            for (int k = 0; k < TERMS; ++k) right[k] = decode(element(thread, p, b, 8 * j + 2 * t + odd, k, pc), p.kind);
            for (int half = 0; half < 2 && is_done; ++half) {
                float* d = p.sums[j] + half * 2 + odd;
                double sum = *d;
                for (int k = 0; k < TERMS; ++k) sum += left[half][k] * right[k];
                *d = float(sum);
            }
        }
}

}  // namespace emu

using namespace emu;

extern "C" {
unsigned long long emu_wgmma_operand(const void* p, int panel) {
    Thread* thread = machine.current;
    uint64_t offset = (const char*)p - arena;
    if (offset >= GLOBAL) fault(thread, BOUNDS, PC, (uint64_t)p, 0, "a descriptor of what is not shared memory");
    aligned(thread, p, 16, PC);
    thread->window = arena + offset / WINDOW * WINDOW;
    uint64_t start = offset % WINDOW >> 4, leading = panel >> 4, stride = 1024 >> 4;
    return start | leading << 16 | stride << 32 | uint64_t(SWIZZLE_128B) << 62;
}

void emu_wgmma_publish() { machine.current->unpublished = false; }

void emu_wgmma_fence() { machine.current->fenced = true; }

void emu_wgmma(float* const* sums, int n, unsigned long long a, unsigned long long b, int kind, int turned_a, int turned_b) {
    Thread* thread = machine.current;
    if (machine.threads % (4 * WARP)) fault(thread, WARPS, PC, 0, 0, "a block of %u threads has no warpgroups", machine.threads);
    if (!thread->fenced) fault(thread, WARPS, PC, 0, 0, "a warpgroup multiplies with no fence after what was done to its sums");
    if (machine.unpublished) fault(thread, RACE, PC, 0, 0, "a warpgroup multiplies what was stored and not published before the barrier");
    emu_agree((void*)a, 0, n);
    emu_agree((void*)b, 0, n);
    Product p{{sums, sums + n / 8}, {}, thread->window, a, b, n, kind, turned_a != 0, turned_b != 0};
    multiply(thread, p, false, PC);
    bool is_first = true;
    for (const Product& other : thread->products) is_first &= other.sums[0] != p.sums[0];
    for (int j = 0; is_first && j < n / 8; ++j)
        for (int i = 0; i < 4; ++i) p.before.push_back(p.sums[j][i]), p.sums[j][i] = NAN;
    thread->products.push_back(p);
}

void emu_wgmma_wait() {
    Thread* thread = machine.current;
    emu_agree(nullptr, 0, int(thread->products.size()));
    for (Product& p : thread->products) {
        for (size_t i = 0; i < p.before.size(); ++i) p.sums[i / 4][i % 4] = p.before[i];
        multiply(thread, p, true, PC);
    }
    thread->products.clear();
    thread->fenced = false;
}
}

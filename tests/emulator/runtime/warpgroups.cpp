// Instructions of warpgroups: d[64][n] += a[64][k] b[k][n], k of 32 bytes, of operands that descriptors name in shared
// memory. They are asynchronous: sums are NaN from an instruction to the wait for its group, and what it reads must stay
// until then.
// Descriptors and the layouts they name: PTX ISA, "Strides", "Matrix Descriptor Format", "Swizzling Modes".
#include "machine.h"

#include <cmath>
#include <cstring>

#define PC __builtin_return_address(0)

namespace emu {

constexpr int TERM_BYTES = 32, LINE = 128, SWIZZLE_128B = 1;

static int width(int kind) { return kind == ELEMENT_TF32 ? 4 : 2; }

struct Matrix {  // a descriptor, decoded: offsets in the window of shared memory that it is in
    uint64_t start, leading, stride;
    bool turned;  // lines go along rows (or columns), not along the terms; then elements have 2 bytes
    int bytes;    // of an element

    // Of an element, before chunks of 16 bytes change places within a line by the number of the line.
    uint64_t plain(int row, int term) const {
        if (!turned) return start + row / 8 * stride + row % 8 * LINE + term * bytes;
        return start + row / 64 * leading + term / 8 * stride + term % 8 * LINE + row % 64 * 2;
    }
    uint64_t at(int row, int term) const {
        uint64_t place = plain(row, term);
        return place ^ (place / LINE % 8) * 16;
    }
};

static Matrix decoded(Thread* thread, uint64_t descriptor, bool turned, int bytes, const void* pc) {
    if (descriptor >> 62 != SWIZZLE_128B || descriptor >> 49 & 7)
        fault(thread, WARPS, pc, 0, 0, "a descriptor of a swizzle or a base offset that nothing here has");
    return {(descriptor & 0x3fff) << 4, (descriptor >> 16 & 0x3fff) << 4, (descriptor >> 32 & 0x3fff) << 4, turned, bytes};
}

static const char* element(Thread* thread, const Product& p, const Matrix& m, int row, int term, bool is_done, const void* pc) {
    const char* at = p.window + m.at(row, term);
    if (machine.checked) touch(thread, at, m.bytes, READ, pc);
    if (machine.checked && is_done) unchanged(thread, at, p, pc);
    return at;
}

// Sums of lane 4 g + t of warp w: register i of square j is row 16 w + g + 8 (i / 2), column 8 j + 2 t + i % 2.
static void multiply(Thread* thread, Product& p, bool is_done, const void* pc) {
    int bytes = width(p.kind), terms = TERM_BYTES / bytes;
    Matrix a = decoded(thread, p.a, p.turned_a, bytes, pc), b = decoded(thread, p.b, p.turned_b, bytes, pc);
    int warp = thread->number / WARP % 4, g = thread->lane / 4, t = thread->lane % 4;
    double left[2][TERM_BYTES], right[TERM_BYTES];
    for (int half = 0; half < 2; ++half)
        for (int k = 0; k < terms; ++k)
            left[half][k] = decode(element(thread, p, a, 16 * warp + g + 8 * half, k, is_done, pc), p.kind);
    for (int j = 0; j < p.n / 8; ++j)
        for (int odd = 0; odd < 2; ++odd) {
            for (int k = 0; k < terms; ++k)
                right[k] = decode(element(thread, p, b, 8 * j + 2 * t + odd, k, is_done, pc), p.kind);
            for (int half = 0; half < 2 && is_done; ++half) {
                float* d = p.sums[j] + half * 2 + odd;
                double sum = *d;
                for (int k = 0; k < terms; ++k) sum += left[half][k] * right[k];
                *d = float(sum);
            }
        }
}

// The first product that changes them keeps their values, until it is done.
static void hold_sums(Product& p) {
    for (int j = 0; j < p.n / 8; ++j)
        for (int i = 0; i < 4; ++i) p.before.push_back(p.sums[j][i]), p.sums[j][i] = NAN;
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
    Product p{{sums, sums + n / 8}, {}, thread->window, a, b, n, kind, turned_a != 0, turned_b != 0, thread->commits, machine.epoch, machine.arrivals};
    if (kind == ELEMENT_TF32 && (turned_a || turned_b)) fault(thread, WARPS, PC, 0, 0, "operands of 4 bytes lie along the terms");
    multiply(thread, p, false, PC);
    bool is_first = true;
    for (const Product& other : thread->products) is_first &= other.sums[0] != p.sums[0];
    if (is_first) hold_sums(p);
    thread->products.push_back(p);
}

void emu_wgmma_commit() {
    emu_agree(nullptr, 0, int(machine.current->products.size()));
    ++machine.current->commits;
}

// For all groups but so many.
void emu_wgmma_wait(int others) {
    Thread* thread = machine.current;
    std::vector<Product>& products = thread->products;
    emu_agree(nullptr, others, int(products.size()));
    while (!products.empty() && products[0].group + others < thread->commits) {
        Product done = products[0];
        products.erase(products.begin());
        for (size_t i = 0; i < done.before.size(); ++i) done.sums[i / 4][i % 4] = done.before[i];
        multiply(thread, done, true, PC);
        for (Product& next : products)
            if (next.sums[0] == done.sums[0]) {
                hold_sums(next);
                break;
            }
    }
    thread->fenced = false;
}
}

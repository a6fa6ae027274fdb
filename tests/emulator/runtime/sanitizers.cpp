// What g++ calls in a checked kernel: before each access, and where an address, an index or a divisor is wrong.
#include "machine.h"

#define PC __builtin_return_address(0)

using namespace emu;

#define PLAIN(N)                                                                                        \
    void __tsan_read##N(void* p) { touch(machine.current, p, N, READ, PC); }                              \
    void __tsan_write##N(void* p) { touch(machine.current, p, N, WRITE, PC); }
#define UNALIGNED(N)                                                                                    \
    void __tsan_unaligned_read##N(void* p) { aligned(machine.current, p, N, PC), touch(machine.current, p, N, READ, PC); }    \
    void __tsan_unaligned_write##N(void* p) { aligned(machine.current, p, N, PC), touch(machine.current, p, N, WRITE, PC); }

extern "C" {
PLAIN(1) PLAIN(2) PLAIN(4) PLAIN(8) PLAIN(16)
UNALIGNED(2) UNALIGNED(4) UNALIGNED(8) UNALIGNED(16)
void __tsan_read_range(void* p, unsigned long bytes) { touch(machine.current, p, bytes, READ, PC); }
void __tsan_write_range(void* p, unsigned long bytes) { touch(machine.current, p, bytes, WRITE, PC); }
void __tsan_init() {}

struct Place {
    const char* file;
    unsigned line, column;
};

void __ubsan_handle_type_mismatch_v1(Place* place, void* p) {
    unsigned char log_alignment = *((unsigned char*)place + sizeof(Place) + sizeof(void*));
    fault(machine.current, ALIGNMENT, nullptr, (uint64_t)p, place->line, "an address that is no multiple of %d", 1 << log_alignment);
}
void __ubsan_handle_out_of_bounds(Place* place, void* index) {
    fault(machine.current, BOUNDS, nullptr, 0, place->line, "index %ld of an array that ends before", (long)(int)(long)index);
}
void __ubsan_handle_divrem_overflow(Place* place, void*, void*) {
    fault(machine.current, ARITHMETIC, nullptr, 0, place->line, "an integer division by zero, or one that overflows");
}
}

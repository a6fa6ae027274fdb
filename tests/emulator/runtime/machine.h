// The machine that kernels run on: its threads, its memory and what they report. Included by the runtime alone.
#pragma once
#include "../include/emulator.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emu {

constexpr unsigned WARP = 32;
constexpr uint64_t ARENA_BYTES = uint64_t(8) << 30;
constexpr uint64_t PAGE = 256;               // allocations begin at a page; none shares one
constexpr uint64_t WINDOW = 256 << 10;       // of a shared variable: more than any block may have
constexpr uint64_t WINDOWS = 4096;           // the first stays empty, the second is dynamic shared memory's
constexpr uint64_t GLOBAL = WINDOW * WINDOWS;  // where global memory begins

// ---- what went wrong -------------------------------------------------------------------------------------------------

enum Kind : int { NONE, BARRIER, WARPS, UNINITIALISED, RACE, BOUNDS, ALIGNMENT, COPY, ARITHMETIC };

struct Report {  // read by Python: machine.py has the same fields
    int kind;
    int line;  // of the source; 0: what `pc` says
    unsigned block[3], thread[3];
    uint64_t address, pc;  // pc: in the kernel's library, from its beginning
    char text[512];
};

struct Thread;
[[noreturn]] void fault(Thread* thread, Kind kind, const void* pc, uint64_t address, int line, const char* format, ...)
    __attribute__((format(printf, 6, 7)));

// ---- threads ---------------------------------------------------------------------------------------------------------

struct Copy {
    char* to;
    const char* from;  // null: zeros
    unsigned bytes;
};

struct Product {  // of a warpgroup: begun, not waited for
    std::vector<float*> sums;   // of 4 each
    std::vector<float> before;  // their values, where this one is the first to change them
    const char* window;
    uint64_t a, b;  // descriptors
    int n, kind;
    bool turned_a, turned_b;
    uint32_t group;            // of the thread's commits: as many as there were before
    uint32_t epoch, arrivals;  // when it was begun
};

enum State : uint8_t { FRESH, READY, AT_BARRIER, IN_WARP, AT_COPIES, DONE };
constexpr unsigned MBARRIERS = 16;  // of a block, at most

struct Warp;
using Compute = void (*)(Warp& warp, unsigned lanes, const void* pc);

struct Slot {  // what a lane brings to an operation of its warp
    Compute compute;
    unsigned mask;
    int variant;       // lanes must agree on it
    uint64_t value;    // given, then received
    unsigned source;   // lane that is read
    void* data[3];
    const void* pc;
};

struct Thread {
    void* stack_pointer;
    char* stack;
    Dim index;
    uint16_t number;
    uint8_t lane;
    State state;
    int line;  // of the barrier it waits at
    Warp* warp;
    Slot slot;
    uint32_t known[WARP];  // once the warp's time has begun: accesses of a lane before this time of the warp happened before what comes now
    std::vector<Copy> open;                  // copies of no group yet
    std::vector<std::vector<Copy>> groups;   // oldest first
    std::vector<Product> products;           // oldest first
    const char* window;                      // of the shared memory that its last descriptor names
    uint32_t commits;                        // groups of products
    uint32_t seen[MBARRIERS];                // the last arrival of bulk copies that it knows of, by their barrier
    std::vector<const void*> maps;           // that it may copy by
    bool fenced, unpublished;                // its sums for products; what it has stored for descriptors
};

struct Warp {
    Thread* lanes[WARP];
    unsigned exist, done, waiting;
    uint32_t time;  // grows at each __syncwarp
};

struct Machine {
    // the launch
    Dim grid, block, block_index;
    const uint32_t* order;
    int checked, early_exit;
    uint32_t epoch, block_start, launch_start;  // an epoch ends at a barrier; numbers are never used again
    // the block
    unsigned threads, done, at_barrier;
    bool unpublished;  // at the last barrier, of some thread
    uint32_t arrivals;     // of bulk copies; numbers are never used again
    int counting, counted;  // what __syncthreads_count counts, and counted
    Thread* current;
    Report report;
    Dim index_of_block(uint64_t turn) const {
        uint64_t b = order ? order[turn] : turn;
        return {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
    }
};
extern Machine machine;

constexpr size_t STACK = 64 << 10;

void block_threads(unsigned count);  // makes them ready to run, and their stacks
void run_block(void* function, void** arguments, unsigned count);
void wait();  // the current thread goes on when it is READY again
void wake(Thread* thread);
void release_barrier();

// ---- memory ----------------------------------------------------------------------------------------------------------

struct Record {  // what happened last to a granule of memory
    uint32_t write_epoch, read_epoch;
    uint32_t write_time, read_time;  // of the warp; of what bulk copies brought, which arrival it was
    uint32_t readers;                // lanes of the last reader's warp
    uint16_t writer, reader;         // of what bulk copies brought, whose barrier's number
    uint32_t flags;
};

enum Flag : uint32_t {
    ATOMIC = 1,             // the last write was one
    ATOMIC_THREADS = 2,     // of several threads since the last barrier
    ATOMIC_BLOCKS = 4,      // of several blocks
    READ_WARPS = 8,         // by several warps since the last barrier
    READ_BLOCKS = 16,       // by several blocks
    PENDING = 32,           // a copy is under way
    BULK = 64,              // brought by a bulk copy: there for those who waited at its barrier
};

enum Access { READ, WRITE, UPDATE, COPY_BEGINS, COPY_ENDS, BULK_ENDS };

void touch(Thread* thread, const void* address, size_t bytes, Access access, const void* pc);
double decode(const void* at, int kind);  // of an element type
void brought(const void* address, size_t bytes, unsigned barrier);  // by the last arrival
void unchanged(Thread* thread, const void* address, const Product& since, const void* pc);
void aligned(Thread* thread, const void* address, size_t bytes, const void* pc);

inline bool in_arena(const void* address);
extern char* arena;
inline bool in_arena(const void* address) { return uint64_t((const char*)address - arena) < ARENA_BYTES; }

// ---- bulk copies -----------------------------------------------------------------------------------------------------

void forget_mbarriers();
void share_arrivals(std::vector<Thread>& threads, unsigned count);  // at a barrier: what one knows all know
bool is_bringing();                                                 // whether a copy was begun that nobody has waited for
const char* missing_bytes(const Thread* thread);                    // at its barrier, in words

// ---- warps -----------------------------------------------------------------------------------------------------------

uint64_t meet(Slot slot);  // returns what the current lane received
void leave(Thread* thread);
void finish_copies(Thread* thread, unsigned groups_left, bool open_too, const void* pc);

}  // namespace emu

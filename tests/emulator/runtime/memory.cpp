// Who read and wrote each granule of memory last, and what of it is a fault. g++ -fsanitize=thread calls these functions
// before each access of a kernel; nothing of its own run time is linked.
#include "machine.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>

namespace emu {

struct Allocation {
    uint64_t begin, end;     // from the arena's beginning
    const uint32_t* floor;   // an earlier write is none: nothing was written yet
    unsigned shift;          // a granule has 2**shift bytes: 4, or less where smaller accesses were seen
};

char* arena;
static Record* shadows[3];  // by shift
static uint32_t* pages;     // allocation of a page; 0: none
static std::vector<Allocation> allocations(1);
static std::vector<uint32_t> unused;
static const uint32_t from_the_beginning = 0, once_written = 1;
static std::vector<uint32_t> block_starts;  // of the launch

static void* reserve(uint64_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

static const char* who(uint16_t number, uint32_t epoch) {
    static char text[2][128];
    static int turn;
    char* t = text[turn ^= 1];
    Dim b = machine.block;
    unsigned x = number % b.x, y = number / b.x % b.y, z = number / b.x / b.y;
    if (epoch >= machine.block_start) snprintf(t, 128, "thread (%u, %u, %u)", x, y, z);
    else {
        auto after = std::upper_bound(block_starts.begin(), block_starts.end(), epoch);
        Dim i = machine.index_of_block(after - block_starts.begin() - 1);
        snprintf(t, 128, "thread (%u, %u, %u) of block (%u, %u, %u)", x, y, z, i.x, i.y, i.z);
    }
    return t;
}

// Whether what thread `number` did then happened before what `thread` does now.
// What was before `since` always did.
static bool before(const Thread* thread, uint32_t since, uint32_t epoch, uint16_t number, uint32_t time) {
    if (epoch < since) return true;
    if (epoch < machine.block_start) return false;
    if (epoch < machine.epoch || number == thread->number) return true;
    return number / WARP == thread->number / WARP && thread->warp->time && thread->known[number % WARP] > time;
}

struct Touch {
    Thread* thread;
    const void* pc;
    uint64_t address;
    bool shared;
    uint32_t since;  // no access before this epoch matters: of the launch, and to shared memory of the block
    const char* where() const { return shared ? "shared" : "global"; }
    [[noreturn]] void race(const char* does, const char* did, uint16_t other, uint32_t epoch) const {
        fault(thread, RACE, pc, address, 0, "%s %s memory that %s %s%s", does, where(), who(other, epoch), did,
              epoch >= machine.block_start ? " since the last barrier" : ", in the same launch");
    }
};

static void written(const Touch& t, const Record& r, const char* does) {
    if ((r.flags & BULK) && r.write_epoch >= machine.block_start) {
        if (t.thread->seen[r.writer] < r.write_time)
            fault(t.thread, COPY, t.pc, t.address, 0, "%s %s memory that a bulk copy has brought, at whose barrier it has not waited", does, t.where());
        return;
    }
    if (!before(t.thread, t.since, r.write_epoch, r.writer, r.write_time)) t.race(does, "writes", r.writer, r.write_epoch);
    if ((r.flags & ATOMIC_THREADS) && r.write_epoch == machine.epoch) t.race(does, "and others change atomically", r.writer, r.write_epoch);
    if ((r.flags & ATOMIC_BLOCKS) && r.write_epoch >= t.since)
        t.race(does, "and threads of other blocks change atomically", r.writer, r.write_epoch);
}

static void read_by_others(const Touch& t, const Record& r, const char* does) {
    if (r.read_epoch < t.since) return;
    if (r.read_epoch < machine.block_start) t.race(does, "reads", r.reader, r.read_epoch);
    if (r.flags & READ_BLOCKS) t.race(does, "and a thread of another block read", r.reader, r.read_epoch);
    if (r.read_epoch < machine.epoch) return;
    if (r.flags & READ_WARPS) t.race(does, "and one of another warp read", r.reader, r.read_epoch);
    if (r.reader / WARP != t.thread->number / WARP) t.race(does, "reads", r.reader, r.read_epoch);
    for (unsigned lanes = r.readers & ~(1u << t.thread->lane); lanes; lanes &= lanes - 1) {
        unsigned lane = __builtin_ctz(lanes);
        if (!t.thread->warp->time || t.thread->known[lane] <= r.read_time) t.race(does, "reads", r.reader / WARP * WARP + lane, r.read_epoch);
    }
}

static void note_read(const Touch& t, Record& r) {
    const Thread* thread = t.thread;
    uint32_t time = thread->warp->time;
    if (r.read_epoch == machine.epoch) {
        if (r.reader / WARP == thread->number / WARP) r.readers |= 1u << thread->lane;
        else r.flags |= READ_WARPS;
    } else {
        bool other_block = r.read_epoch >= t.since && r.read_epoch < machine.block_start;
        if (other_block) r.flags |= READ_BLOCKS;
        else if (r.read_epoch < t.since) r.flags &= ~READ_BLOCKS;
        r.flags &= ~READ_WARPS;
        r.readers = 1u << thread->lane;
    }
    r.read_epoch = machine.epoch, r.reader = thread->number, r.read_time = time;
}

static void note_write(const Thread* thread, Record& r, uint32_t flags) {
    r.flags = (r.flags & ~(ATOMIC | ATOMIC_THREADS | ATOMIC_BLOCKS | PENDING | BULK)) | flags;
    r.write_epoch = machine.epoch, r.writer = thread->number, r.write_time = thread->warp->time;
}

static void update(const Touch& t, Record& r) {
    read_by_others(t, r, "changes atomically");
    uint32_t flags = ATOMIC;
    if (r.flags & ATOMIC) {
        bool launch = r.write_epoch >= t.since;
        if (launch) flags |= r.flags & ATOMIC_BLOCKS;
        if (launch && r.write_epoch < machine.block_start) flags |= ATOMIC_BLOCKS;
        if (r.write_epoch == machine.epoch) flags |= r.flags & ATOMIC_THREADS;
        if (r.write_epoch == machine.epoch && r.writer != t.thread->number) flags |= ATOMIC_THREADS;
    } else {
        written(t, r, "changes atomically");
    }
    note_write(t.thread, r, flags);
}

static void granule(const Touch& t, Record& r, Access access, uint32_t floor) {
    if ((r.flags & PENDING) && access < COPY_ENDS && r.write_epoch >= machine.block_start)
        fault(t.thread, COPY, t.pc, t.address, 0, "touches %s memory to which an asynchronous copy of %s goes that was not waited for",
              t.where(), who(r.writer, r.write_epoch));
    if ((access == READ || access == UPDATE) && r.write_epoch < floor)
        fault(t.thread, UNINITIALISED, t.pc, t.address, 0, "reads %s memory that nothing was written to", t.where());
    switch (access) {
        case READ:
            if (r.read_epoch == machine.epoch && r.reader == t.thread->number && r.read_time == t.thread->warp->time) return;
            written(t, r, "reads");
            note_read(t, r);
            return;
        case WRITE:
        case COPY_BEGINS:
            written(t, r, "writes");
            read_by_others(t, r, "writes");
            note_write(t.thread, r, access == WRITE ? 0u : uint32_t(PENDING));
            return;
        case UPDATE: update(t, r); return;
        case COPY_ENDS: note_write(t.thread, r, 0); return;
        case BULK_ENDS: note_write(t.thread, r, BULK); return;
    }
}

// Finer granules from now on; each begins with what was known of the one it lies in.
static void refine(Allocation& a, unsigned shift) {
    uint64_t begin = a.begin >> a.shift, end = (a.end + (1u << a.shift) - 1) >> a.shift;
    for (unsigned s = a.shift - shift; begin < end; ++begin)
        std::fill_n(&shadows[shift][begin << s], 1u << s, shadows[a.shift][begin]);
    a.shift = shift;
}

static void outside(Thread* thread, const void* address, size_t bytes, Access access, const void* pc) {
    const char* verb = access == READ ? "reads" : access == UPDATE ? "changes atomically" : "writes";
    uint64_t offset = (const char*)address - arena;
    const char* where = !in_arena(address) ? "of memory that is neither a buffer's, nor shared, nor its own"
                        : offset < GLOBAL  ? "outside its shared memory"
                                           : "outside every buffer";
    fault(thread, BOUNDS, pc, (uint64_t)address, 0, "%s %zu bytes %s", verb, bytes, where);
}

void touch(Thread* thread, const void* address, size_t bytes, Access access, const void* pc) {
    uint64_t offset = (const char*)address - arena;
    if (offset >= ARENA_BYTES) {
        if (thread && access <= WRITE && uint64_t((const char*)address - thread->stack) < STACK) return;
        outside(thread, address, bytes, access, pc);
    }
    uint32_t index = pages[offset / PAGE];
    Allocation& a = allocations[index];
    if (!index || offset < a.begin || offset + bytes > a.end) outside(thread, address, bytes, access, pc);
    unsigned mask = (offset | bytes) & ((1u << a.shift) - 1);
    if (mask) refine(a, mask & 1 ? 0 : 1);
    Record* r = &shadows[a.shift][offset >> a.shift];
    size_t step = size_t(1) << a.shift;
    bool shared = offset < GLOBAL;
    if (thread && shared && (access == WRITE || access == UPDATE || access == COPY_ENDS)) thread->unpublished = true;
    Touch t{thread, pc, (uint64_t)address, shared, shared ? machine.block_start : machine.launch_start};
    for (size_t done = 0; done < bytes; done += step, ++r, t.address += step) granule(t, *r, access, *a.floor);
}

static Record& record_of(const void* address, unsigned& bytes) {
    uint64_t offset = (const char*)address - arena;
    const Allocation& a = allocations[pages[offset / PAGE]];
    bytes = 1u << a.shift;
    return shadows[a.shift][offset >> a.shift];
}

void brought(const void* address, size_t bytes, unsigned barrier) {
    unsigned step;
    for (size_t done = 0; done < bytes; done += step) {
        Record& r = record_of((const char*)address + done, step);
        r.writer = uint16_t(barrier), r.write_time = machine.arrivals;
    }
}

void unchanged(Thread* thread, const void* address, const Product& since, const void* pc) {
    unsigned step;
    const Record& r = record_of(address, step);
    bool is_new = r.flags & BULK ? r.write_time > since.arrivals : r.write_epoch > since.epoch;
    if (is_new) fault(thread, RACE, pc, (uint64_t)address, 0, "a warpgroup still multiplies shared memory that was written meanwhile");
}

void aligned(Thread* thread, const void* address, size_t bytes, const void* pc) {
    if ((uint64_t)address % bytes) fault(thread, ALIGNMENT, pc, (uint64_t)address, 0, "an address that is no multiple of %zu", bytes);
}

}  // namespace emu

using namespace emu;

// ---- what Python calls -----------------------------------------------------------------------------------------------

extern "C" {
int emu_open() {
    if (arena) return 1;
    pages = (uint32_t*)reserve(ARENA_BYTES / PAGE * sizeof *pages);
    for (unsigned shift = 0; shift < 3; ++shift)
        if (!(shadows[shift] = (Record*)reserve((ARENA_BYTES >> shift) * sizeof(Record)))) return 0;
    arena = (char*)reserve(ARENA_BYTES);
    return pages && arena;
}

uint64_t emu_base() { return (uint64_t)arena; }

// `offset` is a multiple of a page; `written`: reads find something. Shared memory is written anew in each block.
uint32_t emu_map(uint64_t offset, uint64_t bytes, unsigned shift, int written) {
    uint32_t index = uint32_t(allocations.size());
    if (unused.empty()) allocations.emplace_back();
    else index = unused.back(), unused.pop_back();
    const uint32_t* floor = offset < GLOBAL ? &machine.block_start : written ? &from_the_beginning : &once_written;
    allocations[index] = {offset, offset + bytes, floor, shift};
    for (uint64_t page = offset / PAGE; page * PAGE < offset + bytes; ++page) pages[page] = index;
    return index;
}

static void forget(const Allocation& a) {
    for (unsigned shift = a.shift; shift < 3; ++shift) {
        // Pages of the shadow are the allocation's alone: it begins at a page of the arena, whose shadow is this aligned.
        Record *begin = &shadows[shift][a.begin >> shift], *end = &shadows[shift][((a.end - 1) >> shift) + 1];
        uint64_t whole = ((char*)end - (char*)begin) & ~uint64_t(4095);
        if ((uint64_t)begin % 4096) whole = 0;
        if (whole) madvise(begin, whole, MADV_DONTNEED);
        memset((char*)begin + whole, 0, (char*)end - (char*)begin - whole);
    }
}

void emu_unmap(uint32_t index) {
    Allocation& a = allocations[index];
    for (uint64_t page = a.begin / PAGE; page * PAGE < a.end; ++page) pages[page] = 0;
    forget(a);
    a = {};
    unused.push_back(index);
}

// The host wrote these bytes of an allocation.
void emu_written(uint32_t index, uint64_t offset, uint64_t bytes) {
    Allocation& a = allocations[index];
    if (bytes == a.end - a.begin) {
        a.floor = &from_the_beginning;
        return;
    }
    unsigned mask = (offset | bytes) & ((1u << a.shift) - 1);
    if (mask) refine(a, mask & 1 ? 0 : 1);
    for (uint64_t g = (a.begin + offset) >> a.shift; g << a.shift < a.begin + offset + bytes; ++g)
        shadows[a.shift][g].write_epoch = std::max(shadows[a.shift][g].write_epoch, once_written);
}

// Between launches: of all that happened only counts what was ever written. Epochs can begin anew.
static void renumber() {
    for (const Allocation& a : allocations)
        for (uint64_t g = a.begin >> a.shift; a.end && g <= (a.end - 1) >> a.shift; ++g) {
            Record& r = shadows[a.shift][g];
            r = Record{r.write_epoch ? 1u : 0u, 0, 0, 0, 0, 0, 0, 0};
        }
    machine.epoch = 2;
}

void emu_pass_time(uint32_t epochs) { machine.epoch += epochs; }

struct Launch {  // written by Python
    void* function;
    void** arguments;
    unsigned argument_count;
    Dim grid, block;
    const uint32_t* order;  // of the blocks; null: as numbered
    uint64_t shared[64][2];  // offset, bytes; filled anew for each block
    unsigned shared_count;
    int checked, early_exit;
};

int emu_launch(const Launch* launch, Report* report) {
    Machine& m = machine;
    unsigned threads = launch->block.x * launch->block.y * launch->block.z;
    uint64_t blocks = uint64_t(launch->grid.x) * launch->grid.y * launch->grid.z;
    m.grid = launch->grid, m.block = launch->block;
    m.order = launch->order, m.checked = launch->checked, m.early_exit = launch->early_exit;
    m.report = {};
    if (m.epoch > 3u << 30) renumber();
    m.epoch = std::max(m.epoch, 2u) + 1;
    m.launch_start = m.epoch;
    block_starts.clear();
    for (uint64_t i = 0; i < blocks && m.report.kind == NONE; ++i) {
        m.block_index = m.index_of_block(i);
        m.block_start = ++m.epoch;
        block_starts.push_back(m.block_start);
        for (unsigned s = 0; s < launch->shared_count; ++s)  // as NaN, whatever is read of it
            memset(arena + launch->shared[s][0], 0xff, launch->shared[s][1]);
        block_threads(threads);
        run_block(launch->function, launch->arguments, launch->argument_count);
    }
    *report = m.report;
    return m.report.kind;
}

char* emu_shared(unsigned window) { return arena + window * WINDOW; }
void emu_update(const void* p, unsigned long bytes) {
    if (bytes > 1) aligned(machine.current, p, bytes, __builtin_return_address(0));
    if (machine.checked) touch(machine.current, p, bytes, UPDATE, __builtin_return_address(0));
}
void emu_misaligned(const void* p, int multiple) {
    fault(machine.current, ALIGNMENT, __builtin_return_address(0), (uint64_t)p, 0, "an address that is no multiple of %d", multiple);
}
void emu_read(const void* p, unsigned long bytes) {
    if (machine.checked) touch(machine.current, p, bytes, READ, __builtin_return_address(0));
}
void emu_write(const void* p, unsigned long bytes) {
    if (machine.checked) touch(machine.current, p, bytes, WRITE, __builtin_return_address(0));
}
}

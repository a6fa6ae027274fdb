// Bulk copies: boxes of tensors, by maps in global memory, to lines of 128 bytes in shared memory whose chunks change
// places; and the barriers in shared memory that count what they bring. They are done as late as they may be: when a
// thread waits for their phase. What they brought is there for those who waited, and for others after a barrier.
// Sources: PTX ISA, "Tensor-map", "Swizzling Modes", "mbarrier", "cp.async.bulk.tensor".
#include "machine.h"

#include <cstdio>
#include <cstring>

#define PC __builtin_return_address(0)

namespace emu {

constexpr int MOST_DIMS = 5, LINE = 128, CHUNK = 16, MAP_BYTES = 128;
constexpr uint64_t MADE = 0x6d61646521;

struct Map {  // what the 128 bytes hold here
    uint64_t made, tensor;
    int64_t strides[MOST_DIMS];  // in bytes, from the second dimension on
    int32_t extents[MOST_DIMS], boxes[MOST_DIMS];
    int rank, kind;
};
static_assert(sizeof(Map) <= MAP_BYTES, "a map has 128 bytes");

struct BulkCopy {
    Map map;
    char* to;
    int places[MOST_DIMS];
    int64_t lines() const {
        int64_t n = 1;
        for (int d = 1; d < map.rank; ++d) n *= map.boxes[d];
        return n;
    }
    int64_t bytes() const { return lines() * map.boxes[0] * 2; }
    // Where a line of the box begins in the tensor, and how many of its elements are there; null for none.
    const char* line(int64_t number, int& first, int& last) const {
        int64_t at = map.tensor;
        for (int d = 1; d < map.rank; ++d) {
            int place = places[d] + int(number % map.boxes[d]);
            number /= map.boxes[d];
            if (place < 0 || place >= map.extents[d]) return nullptr;
            at += place * map.strides[d];
        }
        first = places[0] < 0 ? -places[0] : 0;
        last = map.extents[0] - places[0] < map.boxes[0] ? map.extents[0] - places[0] : map.boxes[0];
        return first < last ? (const char*)(at + int64_t(places[0]) * 2) : nullptr;
    }
};

struct Mbarrier {
    const void* address;
    unsigned count, arrived, phase;
    int64_t expected;  // bytes of this phase
    uint32_t arrival;  // of the last phase that is over
    std::vector<BulkCopy> copies;
    std::vector<Thread*> waiting;
    int64_t begun() const {
        int64_t bytes = 0;
        for (const BulkCopy& c : copies) bytes += c.bytes();
        return bytes;
    }
};
static std::vector<Mbarrier> mbarriers;

void forget_mbarriers() { mbarriers.clear(); }

void share_arrivals(std::vector<Thread>& threads, unsigned count) {
    for (unsigned b = 0; b < mbarriers.size(); ++b) {
        uint32_t most = 0;
        for (unsigned i = 0; i < count; ++i) most = threads[i].seen[b] > most ? threads[i].seen[b] : most;
        for (unsigned i = 0; i < count; ++i) threads[i].seen[b] = most;
    }
}

bool is_bringing() {
    for (const Mbarrier& b : mbarriers)
        if (!b.copies.empty()) return true;
    return false;
}

const char* missing_bytes(const Thread* thread) {
    static char text[128];
    for (const Mbarrier& b : mbarriers)
        for (const Thread* t : b.waiting)
            if (t == thread)
                snprintf(text, sizeof text, "%u of %u have come to it, and of %lld bytes %lld are on their way", b.arrived, b.count,
                         (long long)b.expected, (long long)b.begun());
    return text;
}

static Mbarrier& mbarrier(Thread* thread, void* address, const void* pc) {
    if (machine.checked) touch(thread, address, 8, READ, pc);
    for (Mbarrier& b : mbarriers)
        if (b.address == address) return b;
    fault(thread, COPY, pc, (uint64_t)address, 0, "a barrier of copies that was not made");
}

// What a copy brings, and zeros for what is outside of the tensor.
static void bring(Thread* thread, const BulkCopy& c, unsigned barrier, const void* pc) {
    for (int64_t n = 0; n < c.lines(); ++n) {
        int first = 0, last = 0;
        const char* from = c.line(n, first, last);
        char line[LINE] = {};
        if (from) memcpy(line + 2 * first, from + 2 * first, 2 * (last - first));
        char* to = c.to + n * LINE;
        if (machine.checked) touch(thread, to, LINE, BULK_ENDS, pc), brought(to, LINE, barrier);
        for (int chunk = 0; chunk < LINE / CHUNK; ++chunk)
            memcpy(to + (chunk ^ (to - arena) / LINE % 8) * CHUNK, line + chunk * CHUNK, CHUNK);
    }
}

static bool finished(Thread* thread, Mbarrier& b, const void* pc) {
    if (b.arrived < b.count || b.begun() != b.expected) return false;
    ++machine.arrivals;
    for (const BulkCopy& c : b.copies) bring(thread, c, unsigned(&b - mbarriers.data()), pc);
    b.copies.clear();
    b.arrived = 0, b.expected = 0, b.arrival = machine.arrivals;
    ++b.phase;
    for (Thread* t : b.waiting) wake(t);
    b.waiting.clear();
    return true;
}

static Map& map_of(Thread* thread, const void* maps, int n, Access access, const void* pc) {
    Map* map = (Map*)(((uint64_t)maps + MAP_BYTES - 1) / MAP_BYTES * MAP_BYTES + n * MAP_BYTES);
    if (machine.checked) touch(thread, map, MAP_BYTES, access, pc);
    return *map;
}

}  // namespace emu

using namespace emu;

extern "C" {
void emu_mbarrier_new(void* address, unsigned count) {
    Thread* thread = machine.current;
    aligned(thread, address, 8, PC);
    if (uint64_t((char*)address - arena) >= GLOBAL) fault(thread, BOUNDS, PC, (uint64_t)address, 0, "a barrier of copies that is not in shared memory");
    bool unpublished = thread->unpublished;
    if (machine.checked) touch(thread, address, 8, WRITE, PC);
    thread->unpublished = unpublished;  // no descriptor names it
    if (mbarriers.size() == MBARRIERS) fault(thread, COPY, PC, (uint64_t)address, 0, "a block has more than %u barriers of copies", MBARRIERS);
    mbarriers.push_back({address, count});
}

void emu_mbarrier_expect(void* address, int bytes) {
    Thread* thread = machine.current;
    Mbarrier& b = mbarrier(thread, address, PC);
    if (b.arrived == b.count) fault(thread, COPY, PC, (uint64_t)address, 0, "comes to a barrier of copies whose phase nobody has waited for");
    ++b.arrived, b.expected += bytes;
    if (!b.waiting.empty()) finished(thread, b, PC);
}

void emu_mbarrier_wait(void* address, int parity) {
    Thread* thread = machine.current;
    Mbarrier* b = &mbarrier(thread, address, PC);
    unsigned number = unsigned(b - mbarriers.data());
    while (int(mbarriers[number].phase % 2) == parity && !finished(thread, mbarriers[number], PC)) {
        mbarriers[number].waiting.push_back(thread);
        thread->slot.pc = PC;
        thread->state = AT_COPIES;
        wait();
    }
    thread->seen[number] = mbarriers[number].arrival;
}

void emu_map_new(void* maps, int n, const void* tensor, int rank) {
    Thread* thread = machine.current;
    Map& map = map_of(thread, maps, n, WRITE, PC);
    map = {};
    aligned(thread, tensor, CHUNK, PC);
    if (rank < 1 || rank > MOST_DIMS) fault(thread, BOUNDS, PC, (uint64_t)&map, 0, "a map of %d dimensions", rank);
    map.tensor = (uint64_t)tensor, map.rank = rank;
}

void emu_map_dim(void* maps, int n, int dim, int extent, int box) {
    Thread* thread = machine.current;
    Map& map = map_of(thread, maps, n, WRITE, PC);
    if (dim >= map.rank || extent < 1 || box < 1 || box > 256)
        fault(thread, BOUNDS, PC, (uint64_t)&map, 0, "dimension %d of a map has %d points and a box of %d", dim, extent, box);
    map.extents[dim] = extent, map.boxes[dim] = box;
}

void emu_map_stride(void* maps, int n, int dim, long long bytes) {
    Thread* thread = machine.current;
    Map& map = map_of(thread, maps, n, WRITE, PC);
    if (dim + 1 >= map.rank || bytes < 0 || bytes % CHUNK || bytes >> 40)
        fault(thread, ALIGNMENT, PC, (uint64_t)&map, 0, "dimension %d of a map has steps of %lld bytes", dim + 1, bytes);
    map.strides[dim + 1] = bytes;
}

void emu_map_end(void* maps, int n, int kind) {
    Thread* thread = machine.current;
    Map& map = map_of(thread, maps, n, WRITE, PC);
    for (int d = 0; d < map.rank; ++d)
        if (!map.boxes[d]) fault(thread, COPY, PC, (uint64_t)&map, 0, "dimension %d of a map was not given", d);
    if (map.boxes[0] * 2 != LINE) fault(thread, COPY, PC, (uint64_t)&map, 0, "lines of a box have %d bytes", map.boxes[0] * 2);
    map.kind = kind, map.made = MADE;
}

void emu_map_acquire(const void* maps, int n) {
    Thread* thread = machine.current;
    thread->maps.push_back(&map_of(thread, maps, n, READ, PC));
}

void emu_bulk_copy(void* to, const void* maps, int n, void* barrier, const int* places, int rank) {
    Thread* thread = machine.current;
    Map& map = map_of(thread, maps, n, READ, PC);
    bool is_mine = false;
    for (const void* m : thread->maps) is_mine |= m == &map;
    if (!is_mine) fault(thread, COPY, PC, (uint64_t)&map, 0, "copies by a map that it has not acquired");
    if (map.made != MADE || map.rank != rank) fault(thread, COPY, PC, (uint64_t)&map, 0, "copies %d dimensions by a map of %d", rank, map.rank);
    if (uint64_t((char*)to - arena) >= GLOBAL) fault(thread, BOUNDS, PC, (uint64_t)to, 0, "a bulk copy goes to what is not shared memory");
    aligned(thread, to, LINE, PC);
    Mbarrier& b = mbarrier(thread, barrier, PC);
    BulkCopy copy{map, (char*)to, {}};
    memcpy(copy.places, places, rank * sizeof *places);
    for (int64_t line = 0; machine.checked && line < copy.lines(); ++line) {
        int first = 0, last = 0;
        if (const char* from = copy.line(line, first, last)) touch(thread, from + 2 * first, 2 * (last - first), READ, PC);
        touch(thread, copy.to + line * LINE, LINE, COPY_BEGINS, PC);
    }
    b.copies.push_back(copy);
    if (!b.waiting.empty()) finished(thread, b, PC);
}
}

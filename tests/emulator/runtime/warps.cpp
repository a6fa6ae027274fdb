// What the lanes of a warp do together: each brings its slot and waits; the last one to come does the work for all.
#include "machine.h"

#include <cstring>

#define PC __builtin_return_address(0)

namespace emu {

static unsigned lanes_of(const Slot& slot, const Warp& warp) { return slot.mask & warp.exist; }

uint64_t meet(Slot slot) {
    Thread* thread = machine.current;
    Warp& warp = *thread->warp;
    thread->slot = slot;
    if (!(slot.mask >> thread->lane & 1))
        fault(thread, WARPS, slot.pc, 0, 0, "lane %u comes to an operation whose mask 0x%08x does not name it", thread->lane, slot.mask);
    if (unsigned gone = lanes_of(slot, warp) & warp.done)
        fault(thread, WARPS, slot.pc, 0, 0, "lane %d, named by mask 0x%08x, has ended", __builtin_ctz(gone), slot.mask);
    warp.waiting |= 1u << thread->lane;
    unsigned all = lanes_of(slot, warp), missing = all & ~warp.waiting;
    for (unsigned lanes = missing ? 0 : all; lanes; lanes &= lanes - 1) {
        const Slot& other = warp.lanes[__builtin_ctz(lanes)]->slot;
        if (other.compute != slot.compute || other.mask != slot.mask) missing |= lanes & -lanes;
        else if (other.variant != slot.variant)
            fault(thread, WARPS, slot.pc, 0, 0, "lane %u comes to another operation than lane %d, or with other arguments", thread->lane, __builtin_ctz(lanes));
    }
    if (missing) {
        thread->state = IN_WARP;
        wait();
        return thread->slot.value;
    }
    warp.waiting &= ~all;
    slot.compute(warp, all, slot.pc);
    for (unsigned lanes = all & ~(1u << thread->lane); lanes; lanes &= lanes - 1) wake(warp.lanes[__builtin_ctz(lanes)]);
    return thread->slot.value;
}

void leave(Thread* thread) {
    finish_copies(thread, 0, true, nullptr);
    Warp& warp = *thread->warp;
    thread->state = DONE;
    ++machine.done;
    warp.done |= 1u << thread->lane;
    for (unsigned lanes = warp.waiting; lanes; lanes &= lanes - 1) {
        Thread* other = warp.lanes[__builtin_ctz(lanes)];
        if (other->slot.mask >> thread->lane & 1)
            fault(other, WARPS, other->slot.pc, 0, 0, "lane %u, named by mask 0x%08x, has ended", thread->lane, other->slot.mask);
    }
    if (machine.at_barrier && machine.at_barrier + machine.done == machine.threads) release_barrier();
}

// ---- barrier of a warp: what its lanes did before it happened before what they do after it ----------------------------

static void order(Warp& warp, unsigned all, const void*) {
    uint32_t known[WARP] = {};
    if (!warp.time)
        for (unsigned lanes = warp.exist; lanes; lanes &= lanes - 1) memset(warp.lanes[__builtin_ctz(lanes)]->known, 0, sizeof known);
    uint32_t now = ++warp.time;
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) {
        const uint32_t* other = warp.lanes[__builtin_ctz(lanes)]->known;
        for (unsigned i = 0; i < WARP; ++i) known[i] = known[i] > other[i] ? known[i] : other[i];
    }
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) known[__builtin_ctz(lanes)] = now;
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) memcpy(warp.lanes[__builtin_ctz(lanes)]->known, known, sizeof known);
}

// ---- shuffles and votes ----------------------------------------------------------------------------------------------

static void shuffle(Warp& warp, unsigned all, const void* pc) {
    uint64_t given[WARP];
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) {
        unsigned lane = __builtin_ctz(lanes);
        given[lane] = warp.lanes[lane]->slot.value;
    }
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) {
        Thread* thread = warp.lanes[__builtin_ctz(lanes)];
        unsigned source = thread->slot.source;
        if (source >= WARP || !(all >> source & 1)) fault(thread, WARPS, pc, 0, 0, "a shuffle reads lane %u, which takes no part in it", source);
        thread->slot.value = given[source];
    }
}

static void vote(Warp& warp, unsigned all, const void*) {
    unsigned ballot = 0;
    for (unsigned lanes = all; lanes; lanes &= lanes - 1)
        if (warp.lanes[__builtin_ctz(lanes)]->slot.value) ballot |= lanes & -lanes;
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) warp.lanes[__builtin_ctz(lanes)]->slot.value = ballot;
}

static void agree(Warp& warp, unsigned all, const void* pc) {
    const Slot* first = nullptr;
    for (unsigned lanes = all; lanes; lanes &= lanes - 1) {
        Thread* thread = warp.lanes[__builtin_ctz(lanes)];
        if (!first) first = &thread->slot;
        if (thread->slot.data[0] != first->data[0] || thread->slot.source != first->source)
            fault(thread, WARPS, pc, (uint64_t)thread->slot.data[0], 0, "lanes of a warp give this operation different addresses or strides");
    }
}

// ---- asynchronous copies: what they bring is there when they were waited for, not before -----------------------------

void finish_copies(Thread* thread, unsigned groups_left, bool open_too, const void* pc) {
    auto finish = [&](std::vector<Copy>& copies) {
        for (const Copy& c : copies) {
            if (machine.checked && pc && c.from) touch(thread, c.from, c.bytes, READ, pc);
            if (machine.checked) touch(thread, c.to, c.bytes, COPY_ENDS, pc);
            if (c.from) memcpy(c.to, c.from, c.bytes);
            else memset(c.to, 0, c.bytes);
        }
        copies.clear();
    };
    while (thread->groups.size() > groups_left) {
        finish(thread->groups.front());
        thread->groups.erase(thread->groups.begin());
    }
    if (open_too) finish(thread->open);
}

}  // namespace emu

using namespace emu;

extern "C" {
unsigned emu_active() { return machine.current->warp->exist & ~machine.current->warp->done; }

void emu_warp_barrier(unsigned mask) { meet({order, mask, 0, 0, 0, {}, PC}); }

unsigned long long emu_shuffle(unsigned mask, unsigned long long value, unsigned source, int kind) {
    int width = kind % 64 + 1;
    if (width > 32 || width & (width - 1)) fault(machine.current, WARPS, PC, 0, 0, "a shuffle of width %d", width);
    return meet({shuffle, mask, kind, value, source, {}, PC});
}

unsigned emu_ballot(unsigned mask, int value, int kind) { return unsigned(meet({vote, mask, kind, value != 0, 0, {}, PC})); }

void emu_agree(const void* address, unsigned stride, int variant) {
    meet({agree, ~0u, variant, 0, stride, {(void*)address}, PC});
}

void emu_copy(void* to, const void* from, unsigned bytes) {
    Thread* thread = machine.current;
    aligned(thread, to, bytes, PC);
    if (from) aligned(thread, from, bytes, PC);
    if (uint64_t((char*)to - arena) >= GLOBAL)
        fault(thread, BOUNDS, PC, (uint64_t)to, 0, "an asynchronous copy goes to what is not shared memory");
    if (machine.checked && from) touch(thread, from, bytes, READ, PC);
    if (machine.checked) touch(thread, to, bytes, COPY_BEGINS, PC);
    thread->open.push_back({(char*)to, (const char*)from, bytes});
}

void emu_copy_commit() {
    Thread* thread = machine.current;
    thread->groups.emplace_back();
    thread->groups.back().swap(thread->open);
}

void emu_copy_wait(unsigned groups_left, int open_too) { finish_copies(machine.current, groups_left, open_too, PC); }
}

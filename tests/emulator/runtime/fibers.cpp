// Threads of a block as fibers: each runs until it must wait, then the next one that is ready does.
#include "machine.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <utility>

namespace emu {

Machine machine;
static std::vector<Thread> threads;
static std::vector<Warp> warps;
static std::vector<char*> stacks, free_stacks;
static std::vector<uint16_t> ready;  // a ring
static size_t ready_begin, ready_count;
static void* scheduler;
static void* kernel_function;
static void** kernel_arguments;
static unsigned kernel_argument_count;

// Keeps what the ABI says a call keeps (the control words are never changed), and goes on where `to` left off.
extern "C" void emu_switch(void** from, void* to);
asm(R"(
.text
.type emu_switch, @function
emu_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emu_switch, .-emu_switch
)");

template <size_t>
using Pointer = void*;

template <size_t... I>
static void call(void* function, void** a, std::index_sequence<I...>) {
    reinterpret_cast<void (*)(Pointer<I>...)>(function)(a[I]...);
}

template <size_t... N>
static void call_any(void* function, void** a, size_t count, std::index_sequence<N...>) {
    using Call = void (*)(void*, void**);
    static const Call calls[] = {[](void* f, void** p) { call(f, p, std::make_index_sequence<N>()); }...};
    calls[count](function, a);
}

static Thread* next() {
    if (!ready_count) return nullptr;
    Thread* thread = &threads[ready[ready_begin]];
    if (++ready_begin == ready.size()) ready_begin = 0;
    --ready_count;
    return thread;
}

void wake(Thread* thread) {
    size_t end = ready_begin + ready_count++;
    ready[end < ready.size() ? end : end - ready.size()] = thread->number;
    thread->state = READY;
}

static char* take_stack() {
    if (free_stacks.empty()) {
        char* stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(stack, 4096, PROT_NONE);
        stacks.push_back(stack);
        return stack;
    }
    char* stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
}

static void body() {
    for (;;) {
        call_any(kernel_function, kernel_arguments, kernel_argument_count, std::make_index_sequence<65>());
        Thread* thread = machine.current;
        leave(thread);
        Thread* after = next();
        if (after && after->state == FRESH) {  // on this very stack, which is warm
            after->stack = thread->stack;
            after->state = READY;
            machine.current = after;
            continue;
        }
        free_stacks.push_back(thread->stack);
        machine.current = after;
        emu_switch(&thread->stack_pointer, after ? after->stack_pointer : scheduler);
    }
}

static void prepare(Thread* thread) {
    thread->stack = take_stack();
    thread->state = READY;
    void** top = (void**)(thread->stack + STACK) - 1;  // aligned as after a call
    *--top = (void*)body;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    thread->stack_pointer = top;
}

static void go(void** from) {
    Thread* thread = next();
    if (thread && thread->state == FRESH) prepare(thread);
    machine.current = thread;
    emu_switch(from, thread ? thread->stack_pointer : scheduler);
}

void wait() {
    Thread* thread = machine.current;
    go(&thread->stack_pointer);
}

void block_threads(unsigned count) {
    if (threads.size() < 1024) threads.resize(1024), warps.resize(32), ready.resize(1024);
    Dim block = machine.block, index{};
    for (unsigned i = 0; i < (count + WARP - 1) / WARP; ++i) warps[i] = {};
    for (unsigned i = 0; i < count; ++i) {
        Thread& t = threads[i];
        t.number = i, t.lane = i % WARP, t.warp = &warps[i / WARP], t.state = FRESH, t.line = 0;
        t.index = index;
        t.products.clear(), t.maps.clear(), t.fenced = t.unpublished = false, t.commits = 0;
        memset(t.seen, 0, sizeof t.seen);
        if (++index.x == block.x) {
            index.x = 0;
            if (++index.y == block.y) index.y = 0, ++index.z;
        }
        t.warp->lanes[t.lane] = &t;
        t.warp->exist |= 1u << t.lane;
        ready[i] = i;
    }
    ready_begin = 0, ready_count = count;
    machine.threads = count, machine.done = 0, machine.at_barrier = 0, machine.counting = 0, machine.unpublished = false;
    free_stacks = stacks;
    forget_mbarriers();
}

static void record(Thread* thread, Kind kind, const void* pc, uint64_t address, int line, const char* format, va_list list) {
    Report& report = machine.report;
    report.kind = kind, report.address = address, report.line = line, report.pc = 0;
    Dim block = machine.block_index, at = thread ? thread->index : Dim{};
    report.block[0] = block.x, report.block[1] = block.y, report.block[2] = block.z;
    report.thread[0] = at.x, report.thread[1] = at.y, report.thread[2] = at.z;
    Dl_info info;
    if (pc && dladdr(pc, &info)) report.pc = (uint64_t)pc - (uint64_t)info.dli_fbase;
    vsnprintf(report.text, sizeof report.text, format, list);
}

void fault(Thread* thread, Kind kind, const void* pc, uint64_t address, int line, const char* format, ...) {
    va_list list;
    va_start(list, format);
    record(thread, kind, pc, address, line, format, list);
    va_end(list);
    void* nowhere;
    emu_switch(&nowhere, scheduler);  // no fiber of this block runs again
    __builtin_unreachable();
}

// The same from the scheduler.
static void end_block(Thread* thread, Kind kind, const void* pc, int line, const char* format, ...) {
    va_list list;
    va_start(list, format);
    record(thread, kind, pc, 0, line, format, list);
    va_end(list);
}

static void stuck() {
    Thread *barrier = nullptr, *warp = nullptr, *copies = nullptr;
    unsigned barriers = 0, in_warps = 0;
    for (unsigned i = 0; i < machine.threads; ++i) {
        Thread* t = &threads[i];
        if (t->state == AT_BARRIER) barrier = barrier ? barrier : t, ++barriers;
        if (t->state == IN_WARP) warp = warp ? warp : t, ++in_warps;
        if (t->state == AT_COPIES) copies = copies ? copies : t;
    }
    if (copies) return end_block(copies, COPY, copies->slot.pc, 0, "waits at a barrier of copies that never ends: %s", missing_bytes(copies));
    if (!warp) return end_block(barrier, BARRIER, nullptr, barrier->line, "%u of %u threads wait at it", barriers, machine.threads);
    Thread* missing = nullptr;
    for (unsigned lane = 0; lane < WARP; ++lane) {
        Thread* t = warp->warp->lanes[lane];
        bool same = t && t->state == IN_WARP && t->slot.mask == warp->slot.mask && t->slot.compute == warp->slot.compute;
        if (t && (warp->slot.mask >> lane & 1) && !same) missing = missing ? missing : t;
    }
    const char* doing = !missing ? "" : missing->state == AT_BARRIER ? " (it waits at a barrier)" : " (it waits in another operation)";
    end_block(warp, WARPS, warp->slot.pc, 0, "lane %u, named by mask 0x%08x, does not come to this operation%s",
          missing ? missing->lane : 0, warp->slot.mask, doing);
}

void run_block(void* function, void** arguments, unsigned count) {
    kernel_function = function, kernel_arguments = arguments, kernel_argument_count = count;
    go(&scheduler);
    if (machine.report.kind == NONE && machine.done < machine.threads) stuck();
    if (machine.report.kind == NONE && is_bringing())
        end_block(nullptr, COPY, nullptr, 0, "the block ends while a bulk copy to its shared memory is under way");
    if (machine.report.kind != NONE)
        for (Thread& t : threads) t.open.clear(), t.groups.clear();
}

// ---- barriers of the block -------------------------------------------------------------------------------------------

void release_barrier() {
    Thread* first = nullptr;
    for (unsigned i = 0; i < machine.threads; ++i) {
        Thread* t = &threads[i];
        if (t->state == DONE) {
            if (machine.early_exit) continue;
            for (unsigned j = 0; j < machine.threads; ++j)
                if (threads[j].state == AT_BARRIER)
                    fault(&threads[j], BARRIER, nullptr, 0, threads[j].line,
                          "thread (%u, %u, %u) ended without coming to it", t->index.x, t->index.y, t->index.z);
        }
        if (!first) first = t;
        if (t->line != first->line)
            fault(t, BARRIER, nullptr, 0, t->line, "thread (%u, %u, %u) waits at another barrier, at line %d", first->index.x,
                  first->index.y, first->index.z, first->line);
    }
    ++machine.epoch;
    machine.at_barrier = 0, machine.unpublished = false;
    for (unsigned i = 0; i < machine.threads; ++i) machine.unpublished |= threads[i].unpublished;
    share_arrivals(threads, machine.threads);
    machine.counted = machine.counting, machine.counting = 0;
    for (unsigned i = 0; i < machine.threads; ++i)
        if (threads[i].state == AT_BARRIER) {
            if (&threads[i] != machine.current) wake(&threads[i]);
            else threads[i].state = READY;
        }
}

static void arrive(int line) {
    Thread* thread = machine.current;
    thread->state = AT_BARRIER, thread->line = line;
    if (++machine.at_barrier + machine.done == machine.threads) release_barrier();
    else wait();
}

}  // namespace emu

using namespace emu;

extern "C" {
Dim emu_thread() { return machine.current->index; }
Dim emu_block() { return machine.block_index; }
Dim emu_block_dim() { return machine.block; }
Dim emu_grid_dim() { return machine.grid; }
unsigned emu_lane() { return machine.current->lane; }
void emu_barrier(int line) { arrive(line); }
int emu_barrier_count(int line, int value) {
    machine.counting += value != 0;
    arrive(line);
    return machine.counted;
}
}

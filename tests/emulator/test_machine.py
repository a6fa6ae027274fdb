"""The emulator as its callers meet it: memory between launches, what is refused, and what it says."""

import threading

import numpy as np
import pytest

from tests.emulator import MEMORY, Fault, Program, SourceError, build, emulate
from tests.emulator.faults import NoCompiler
from tests.emulator.kernels import source
from tests.emulator.machine import runtime

COPY = 'extern "C" __global__ void k(float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }'


def refused(text, error, says, *arrays, blocks=1, threads=32, shared_bytes=0):
    with pytest.raises(error, match=says):
        emulate(source(text), [("k", blocks, threads, shared_bytes, list(arrays))])


def test_memory_lives_from_launch_to_launch():
    program = Program(source(COPY))
    a, b, c = (MEMORY.allocate(128, 4, name) for name in "abc")
    MEMORY.write(a.address, np.arange(32, dtype=np.float32))
    for x, y in [(a, b), (b, c)]:
        program.launch("k", 1, 32, 0, [x.address, y.address])
    out = np.zeros(32, np.float32)
    MEMORY.read(c.address, out)
    assert out.tolist() == list(range(32))
    assert c.view(np.dtype(np.float32), (4, 8))[3, 7] == 31
    program.launch("k", 1, 4, 0, [a.address + 16, b.address])  # from within a buffer
    assert b.view(np.dtype(np.float32), (32,))[:5].tolist() == [4, 5, 6, 7, 4]
    for buffer in (a, b, c):
        MEMORY.free(buffer)


def test_what_nothing_was_written_to_is_not_read():
    program = Program(source(COPY))
    a, b = MEMORY.allocate(128, 4, "a"), MEMORY.allocate(128, 4, "b")
    with pytest.raises(Fault, match=r"reads global memory that nothing was written to \(a\[0\] of 32\)"):
        program.launch("k", 1, 32, 0, [a.address, b.address])
    MEMORY.write(a.address + 4, np.zeros(30, np.float32))
    with pytest.raises(Fault, match=r"\(a\[0\] of 32\)"):
        program.launch("k", 1, 32, 0, [a.address, b.address])
    MEMORY.write(a.address, np.zeros(1, np.float32))
    with pytest.raises(Fault, match=r"\(a\[31\] of 32\)"):
        program.launch("k", 1, 32, 0, [a.address, b.address])
    MEMORY.write(a.address, np.zeros(32, np.float32))
    program.launch("k", 1, 32, 0, [a.address, b.address])
    for buffer in (a, b):
        MEMORY.free(buffer)


def test_without_a_compiler_it_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    with pytest.raises(NoCompiler, match=r"the emulator, which runs kernels for GPUs, needs g\+\+"):
        build._machine_key.__wrapped__()


def test_memory_that_was_freed_is_nobodys():
    program = Program(source(COPY))
    a, b = MEMORY.allocate(128, 4, "a", written=True), MEMORY.allocate(128, 4, "b")
    MEMORY.free(a)
    with pytest.raises(Fault, match="reads 4 bytes outside every buffer"):
        program.launch("k", 1, 32, 0, [a.address, b.address])
    again = MEMORY.allocate(128, 4, "again")
    assert again.address == a.address
    with pytest.raises(Fault, match=r"nothing was written to \(again\[0\]"):
        program.launch("k", 1, 32, 0, [again.address, b.address])
    for buffer in (again, b):
        MEMORY.free(buffer)
    with pytest.raises(ValueError, match=r"128 bytes at .* are in no buffer"):
        MEMORY.write(a.address, np.zeros(32, np.float32))


def test_arrays_change_up_to_the_fault():
    text = 'extern "C" __global__ void k(float* a) { a[blockIdx.x] = 1; }'
    a = np.zeros(3, np.float32)
    refused(text, Fault, r"block \(3, 0, 0\), thread \(0, 0, 0\): writes 4 bytes outside", a, blocks=4, threads=1)
    assert a.tolist() == [1, 1, 1]


def test_a_fault_knows_where_it_is():
    text = 'extern "C" __global__ void k(double* weights)\n{\n  weights[threadIdx.y * 9] = 0.0;\n}'
    with pytest.raises(Fault) as caught:
        emulate(text, [("k", 1, (1, 2, 1), 0, [np.zeros(9)])])
    fault = caught.value
    assert (fault.kind, fault.kernel, fault.block, fault.thread) == ("bounds", "k", (0, 0, 0), (0, 1, 0))
    assert (fault.line, fault.code, fault.word) == (3, "weights[threadIdx.y * 9] = 0.0;", "weights[9] of 9")


def test_one_array_may_be_given_twice_but_not_in_parts():
    a = np.arange(64, dtype=np.float32)
    emulate(COPY, [("k", 1, 32, 0, [a, a])])
    refused(COPY, ValueError, "the array of b overlaps another", a, a[32:])
    refused(COPY, ValueError, "the array of a is not contiguous", a[::2], a)


def test_arguments_that_do_not_fit_are_refused():
    a = np.zeros(32, np.float32)
    refused(COPY, ValueError, "1 arrays for 2 parameters", a)
    refused(COPY, ValueError, r"b is float\*, its array float64", a, np.zeros(32))
    refused(COPY.replace("k(", "other("), ValueError, r"no kernel 'k', only \['other'\]", a, a)
    refused(COPY, ValueError, "1056 threads a block, 1024 at most", a, a, threads=1056)
    bounded = COPY.replace("void k", "void __launch_bounds__(16) k")
    refused(bounded, ValueError, "32 threads a block, 16 at most", a, a)
    refused(
        COPY,
        ValueError,
        "0 bytes of static and 300000 of dynamic shared memory are too many",
        a,
        a,
        shared_bytes=300000,
    )
    shared = COPY.replace("{", "{ __shared__ float s[20000]; s[0] = 1; ")
    refused(shared, ValueError, "80000 bytes of static", a, a)


def test_what_is_not_understood_is_refused():
    a = np.zeros(1, np.float32)
    refused("__global__ void k(float* a) {}", SourceError, "a kernel that does not read", a)
    refused('extern "C" __global__ void k(float a) {}', SourceError, "k: a parameter that is no pointer: 'float a'", a)
    two = 'extern "C" __global__ void k(float* a) { __shared__ float s[4], t[4]; }'
    refused(two, SourceError, "a __shared__ variable that does not read", a)
    assembly = """extern "C" __global__ void k(float* a) { asm volatile("cp.async.wait_all;"); }"""
    refused(assembly, SourceError, "cp.async.wait_all", a)
    refused('extern "C" __global__ void k(float* a) { nothing(a); }', SourceError, "nothing.* was not declared", a)


def test_comments_are_no_source():
    text = """// __shared__ float s[1], t[2]; and __global__ as well
    extern "C" __global__ void k(float* a /* , float b */) { /* __shared__ x */ a[0] = 0x1p+1f/*2.0*/; }"""
    a = np.zeros(1, np.float32)
    emulate(text, [("k", 1, 1, 0, [a])])
    assert a[0] == 2


def test_threads_may_end_before_a_barrier_where_that_is_allowed():
    text = """extern "C" __global__ void k(int* a) {
      if (threadIdx.x >= 40) return;
      __syncthreads();
      a[threadIdx.x] = 1;
    }"""
    a = np.zeros(64, np.int32)
    with pytest.raises(Fault, match=r"thread \(40, 0, 0\) ended without coming to it"):
        emulate(text, [("k", 1, 64, 0, [a])])
    emulate(text, [("k", 1, 64, 0, [a])], early_exit=True)
    assert a.sum() == 40


def test_small_accesses_to_wide_memory_do_not_race():
    text = """extern "C" __global__ void k(int* a) {
      ((unsigned char*)a)[threadIdx.x] = threadIdx.x;
      if (threadIdx.x < 4) ((unsigned char*)a)[threadIdx.x * 2 + FIRST] = 0;
    }"""
    a = np.zeros(4, np.int32)
    with pytest.raises(Fault, match="writes global memory that"):
        emulate(text.replace("FIRST", "9"), [("k", 1, 16, 0, [a])])
    emulate(text.replace("threadIdx.x * 2 + FIRST", "threadIdx.x"), [("k", 1, 16, 0, [a])])
    assert a.view(np.uint8).tolist() == [0] * 4 + list(range(4, 16))


def test_shared_memory_holds_nothing_when_a_block_begins():
    text = """extern "C" __global__ void k(float* a) {
      __shared__ float s[1];
      if (blockIdx.x == 0) s[0] = 1;
      a[blockIdx.x] = s[0];
    }"""
    a = np.zeros(2, np.float32)
    with pytest.raises(Fault, match=r"block \(1, 0, 0\).*reads shared memory that nothing was written to"):
        emulate(text, [("k", 2, 1, 0, [a])])
    emulate(text, [("k", 2, 1, 0, [a])], checked=False)
    assert np.isnan(a[1])


def test_many_launches_begin_anew():
    text = 'extern "C" __global__ void k(int* a) { a[0] = a[0] + (int)blockIdx.x + 1; }'
    a = np.zeros(1, np.int32)
    emulate(text, [("k", 1, 1, 0, [a])] * 50)  # in one launch two blocks would race
    assert a[0] == 50
    with pytest.raises(Fault, match="race"):
        emulate(text, [("k", 2, 1, 0, [a])])


def test_what_was_written_is_known_when_time_begins_anew():
    program = Program(source(COPY))
    a, b = MEMORY.allocate(128, 4, "a", written=True), MEMORY.allocate(128, 4, "b")
    program.launch("k", 1, 31, 0, [a.address, b.address])
    runtime().emu_pass_time(3 << 30)
    program.launch("k", 1, 31, 0, [b.address, a.address])
    runtime().emu_pass_time(3 << 30)
    with pytest.raises(Fault, match=r"nothing was written to \(b\[31\] of 32\)"):
        program.launch("k", 1, 32, 0, [b.address, a.address])
    for buffer in (a, b):
        MEMORY.free(buffer)


def test_threads_of_python_take_turns():
    text = 'extern "C" __global__ void k(int* a) { atomicAdd(a, 1); __syncthreads(); }'
    arrays = [np.zeros(1, np.int32) for _ in range(4)]
    callers = [threading.Thread(target=emulate, args=(text, [("k", 20, 64, 0, [a])] * 5)) for a in arrays]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [int(a[0]) for a in arrays] == [6400] * 4


def test_a_device_function_may_have_shared_memory_and_local_arrays():
    text = """__device__ float total(const float* p) {
      __shared__ float s[32];
      s[threadIdx.x] = p[threadIdx.x];
      __syncthreads();
      float sum = 0;
      for (int i = 0; i < 32; ++i) sum += s[i];
      return sum;
    }
    extern "C" __global__ void k(float* a) {
      float local[8];
      for (int i = 0; i < 8; ++i) local[i] = a[i];
      float sum = total(a);
      __syncthreads();
      a[threadIdx.x] = sum + local[threadIdx.x % 8];
    }"""
    a = np.arange(32, dtype=np.float32)
    emulate(text, [("k", 1, 32, 0, [a])])
    assert a.tolist() == [496.0 + i % 8 for i in range(32)]

"""Programs on a GPU, which is the emulator: memory, graphs, parameters that come and go, errors."""

import gc

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen, devices, pipeline
from neoflow.architectures import ARCHITECTURES, GPU_KINDS, gpu_target, runs_on
from neoflow.codegen.gpu import compile, compilers
from neoflow.runtime.device.cuda import DeviceArray
from tests.emulator.driver import EmulatedDriver, emulated


@pytest.fixture
def gpu(monkeypatch):
    return emulated(monkeypatch)


def program():
    x, w = nf.placeholder((5, 6), name="x"), nf.parameter((6,), name="w", init=np.arange(6, dtype=np.float32))
    return x, w, x * w + 1.0, {w: w * 0.5}


def test_a_step_is_one_graph_and_gives_what_numpy_gives(gpu):
    x, w, y, updates = program()
    f = nf.compile([y], [x], updates, target="cuda")
    a = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    for n in range(3):
        np.testing.assert_array_equal(f(a)[0], a * (np.arange(6, dtype=np.float32) * 0.5**n) + 1)
    assert f.runs == 3 and gpu.driver.calls.count("graph") == 1 and gpu.driver.calls.count("run") == 3
    np.testing.assert_array_equal(nf.get_value(w), np.arange(6, dtype=np.float32) / 8)


def test_a_parameter_goes_where_it_is_used(gpu):
    x, w, y, updates = program()
    there = nf.compile([y], [x], updates, target="cuda")
    here = nf.compile([y], [x], updates)
    a, value = np.ones((5, 6), np.float32), np.arange(6, dtype=np.float32)
    for f in (here, there, there, here, there):
        np.testing.assert_array_equal(f(a)[0], a * value + 1)
        value = value / 2
    nf.set_value(w, np.full(6, 3.0, np.float32))
    np.testing.assert_array_equal(there(a)[0], np.full((5, 6), 4.0))
    np.testing.assert_array_equal(here(a)[0], np.full((5, 6), 2.5))


def test_memory_is_freed_with_its_last_holder(gpu):
    gc.collect()
    before = gpu.driver.used
    x = nf.placeholder((1000,))
    f = nf.compile([x + 1.0], [x], target="cuda")
    f(np.zeros(1000, np.float32))
    assert gpu.driver.used >= before + 8000
    del f, x
    gc.collect()
    assert gpu.driver.used == before


def test_what_does_not_fit_is_told_with_figures(monkeypatch):
    gpu = emulated(monkeypatch, limit=10 << 20)
    x, w = nf.placeholder((1000, 1000), name="x"), nf.parameter((1000, 500), name="w")
    figures = r"\(temporaries 0\.\d+, parameters 0\.002, inputs and outputs 0\.008\)"
    text = rf"out of memory on the GPU: 0\.\d+ GB are needed {figures}, 0\.010 GB of 0\.0 GB are free; take a smaller"
    with pytest.raises(nf.RuntimeFault, match=text):
        nf.compile([nf.sum(x @ w), x + 1.0], [x], target="cuda")
    assert gpu.driver.used == 0
    with pytest.raises(nf.RuntimeFault, match=r"0.011 GB are needed for float32\[2700, 1000\], 0.010 GB of 0.0 GB"):
        gpu.allocate((2700, 1000), "float32")


def test_what_is_there_already_needs_no_room(monkeypatch):
    gpu = emulated(monkeypatch, limit=5 << 20)
    w, c = nf.parameter((1000, 500), name="w"), nf.constant(np.arange(500_000, dtype=np.float32).reshape(1000, 500))
    f = nf.compile([nf.sum(w * c)], [], target="cuda")
    g = nf.compile([nf.max(w * c)], [], target="cuda")
    assert gpu.driver.used > 4_000_000 and f()[0] == 0 and g()[0] == 0


def test_an_exception_between_launch_and_wait_finds_the_step_made(gpu, monkeypatch):
    x, w, y, updates = program()
    f = nf.compile([y], [x], updates, target="cuda")
    a, value = np.ones((5, 6), np.float32), np.arange(6, dtype=np.float32)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EmulatedDriver, "synchronize", interrupted)
        patch.setattr(EmulatedDriver, "to_host", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(a)
    assert f.runs == 1
    np.testing.assert_array_equal(f.results()[0], a * value + 1)
    np.testing.assert_array_equal(nf.get_value(w), value / 2)
    with monkeypatch.context() as patch:
        patch.setattr(EmulatedDriver, "run_graph", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(a)
    with monkeypatch.context() as patch:
        patch.setattr(EmulatedDriver, "run_graph", lambda *_: nf.RuntimeFault("not launched"))
        with pytest.raises(nf.RuntimeFault, match="not launched"):
            f(a)
    assert f.runs == 1
    np.testing.assert_array_equal(nf.get_value(w), value / 2)
    np.testing.assert_array_equal(f(a)[0], a * value / 2 + 1)


def test_an_index_out_of_its_table_is_told_with_the_line(gpu):
    x, ids = nf.placeholder((7,), name="x"), nf.placeholder((3,), "int64", name="ids")
    y = nf.compute((3,), lambda i: x[ids[i]] * 2.0, name="y")
    f = nf.compile([y], [x, ids], target="cuda")
    a = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(f(a, np.array([6, 0, 3]))[0], [12, 0, 6])
    with pytest.raises(nf.RuntimeFault, match=r"7") as caught:
        f(a, np.array([6, 7, 3]))
    assert "test_cuda.py" in str(caught.value)
    np.testing.assert_array_equal(f(a, np.array([1, 1, 1]))[0], [2, 2, 2])


def test_a_step_with_an_index_out_of_its_table_goes_on_and_says_so(gpu):
    table, ids = nf.parameter((7, 2), name="table", init=np.ones((7, 2), np.float32)), nf.placeholder((3,), "int64")
    rows = nf.nn.functional.embedding(table, ids)
    f = nf.compile([nf.sum(rows)], [ids], {table: table * 2.0}, target="cuda")
    with pytest.raises(nf.RuntimeFault, match="already overwritten: table; set or load them again"):
        f(np.array([0, 9, 1]))
    assert f.runs == 0
    np.testing.assert_array_equal(nf.get_value(table), np.full((7, 2), 2.0))
    assert f(np.array([0, 1, 2]))[0] == 12 and f.runs == 1


def test_a_profile_has_every_call(gpu):
    x, _, y, updates = program()
    f = nf.compile([y], [x], updates, target="cuda")
    times = f.profile(np.ones((5, 6), np.float32), runs=2)
    assert len(times) == len(f.plan.calls) and all(t.seconds > 0 for t in times) and f.runs == 2


def test_without_a_gpu_the_code_can_be_looked_at():
    x = nf.placeholder((3,))
    f = nf.compile([x + 1.0], [x], target="cuda:sm_75")
    assert "__global__" in f.source("cuda") and "gpu_map" in f.explain("schedules")
    with pytest.raises(nf.RuntimeFault, match="the program cannot run here: "):
        f(np.zeros(3, np.float32))
    with pytest.raises(nf.RuntimeFault, match="the program cannot run here: "):
        f.profile(np.zeros(3, np.float32))


def test_without_a_compiler_the_code_can_be_looked_at(monkeypatch):
    said = "there is no CUDA compiler here: pip install 'neoflow[cuda]' brings NVRTC, a CUDA toolkit brings nvcc"
    x = nf.placeholder((3,), name="x")
    y = nf.compute((3,), lambda i: x[i] * 17.25 + 1.0, name="y")
    with monkeypatch.context() as patch:
        patch.setattr(compilers, "COMPILERS", {})
        f = nf.compile([y], [x], target="cuda:sm_75")
        assert "__global__" in f.source("cuda") and "gpu_map" in f.explain("schedules") and f.plan.calls
        (code,) = [r for r in f.compiled.trace.records if r.name == "code"]
        assert code.summary == f"1 kernels written, not compiled: {said}" and f.compiled.cached == 0
        patch.setattr(pipeline, "device", lambda target: None)
        with pytest.raises(nf.CodegenError, match="there is no CUDA compiler here"):
            nf.compile([y], [x], target="cuda:sm_75")
    assert nf.compile([y], [x], target="cuda:sm_75").compiled.modules[0].library or codegen.missing(f.compiled.target)


def test_without_libdevice_ptx_is_not_built(monkeypatch):
    def absent():
        raise nf.CodegenError("PTX needs libdevice")

    monkeypatch.setattr(compile, "libdevice", absent)
    assert codegen.missing(gpu_target("nvptx", "sm_80")) == "PTX needs libdevice"
    assert codegen.missing(devices.resolve_target("cpu")) is None


def test_copies_go_both_ways(gpu):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    there = gpu.allocate((3, 4), "float32")
    assert isinstance(there, DeviceArray) and there.nbytes == 48
    gpu.copy(there, a)
    gpu.copy(gpu.view(there, 16, (4,), "float32"), np.float32(7))
    back = np.zeros((3, 4), np.float32)
    gpu.copy(back, there)
    np.testing.assert_array_equal(back, [[0, 1, 2, 3], [7, 7, 7, 7], [8, 9, 10, 11]])


def test_code_for_another_architecture_is_refused(gpu):
    x = nf.placeholder((3,))
    f = nf.compile([x + 1.0], [x], target="cuda:sm_90")
    with pytest.raises(
        nf.RuntimeFault, match=r"the code is for cuda\(sm_90\), the GPU .* sm_80: compile for target='cuda'"
    ):
        f(np.zeros(3, np.float32))
    assert devices.resolve_target("cuda").mcpu == gpu.driver.gpu.architecture
    taken = {("cuda", "sm_80"), ("cuda", "sm_86"), ("nvptx", "sm_75"), ("nvptx", "sm_80"), ("nvptx", "sm_86")}
    every = [(kind, name) for kind in GPU_KINDS for name in ARCHITECTURES]
    assert {(kind, name) for kind, name in every if runs_on(gpu_target(kind, name), "sm_86")} == taken

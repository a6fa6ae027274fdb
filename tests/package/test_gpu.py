"""Packages for a GPU in C: one program, whose driver is the emulator as a library, trains, infers and is refused."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.package.commands import make_commands
from neoflow.package.contents import read_contents
from tests.emulator.driver import emulated
from tests.emulator.library import calls, cuda_library
from tests.package.network import BATCH, batch, functions, ten_steps
from tests.runtime.test_loops import recurrence

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]
SOURCE = Path(__file__).parent / "train_gpu.c"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the package, the program, its environment, what ten steps of the compiled functions gave, parameters after)."""
    folder = tmp_path_factory.mktemp("gpu")
    path, program = folder / "net.nflib", folder / "train"
    with pytest.MonkeyPatch.context() as patch:
        emulated(patch, checked=False)
        step, infer = functions("cuda")
        step.save(path, "step", infer=infer)
        expected = ten_steps(step, infer)
        after = {p.name: nf.get_value(p) for p in step.parameters}
    modules = [(path / name).read_text() for name in json.loads((path / "program.json").read_text())["libraries"]]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{path}"]
    link = [f"-L{path}", "-lnf_net", f"-Wl,-rpath,{path}"]
    subprocess.run(["cc", *flags, str(SOURCE), *link, "-o", str(program)], check=True)
    return path, program, cuda_library(folder / "driver", modules), expected, after


def run(made, tmp_path, ordinal=0, **environment):
    """(status, what it wrote, the lines it told, the calls of the driver)."""
    path, program, there, _, _ = made
    ids, labels = batch()
    command = [str(program), str(path / "parameters.safetensors"), str(tmp_path / "after.safetensors"), str(ordinal)]
    given = ids.tobytes() + labels.tobytes()
    calls(there)
    done = subprocess.run(command, input=given, env={**there, **environment}, capture_output=True, check=False)
    return done.returncode, np.frombuffer(done.stdout, np.float32), done.stderr.decode().splitlines(), calls(there)


def test_a_program_in_c_trains_and_infers_on_a_gpu(made, tmp_path):
    """To the last bit as the compiled functions do."""
    _, _, _, expected, after = made
    status, found, said, _ = run(made, tmp_path)
    assert status == 0, said
    assert found[:10].tolist() == expected[0]
    np.testing.assert_array_equal(found[10:20], expected[1])
    np.testing.assert_array_equal(found[20:100].reshape(BATCH, 10), expected[2])
    np.testing.assert_array_equal(found[100:], after["table"].reshape(-1)[:4])
    kept = {p: nf.parameter(v.shape, name=p) for p, v in after.items()}
    nf.load_parameters(tmp_path / "after.safetensors", kept.values())
    for name, value in after.items():
        np.testing.assert_array_equal(nf.get_value(kept[name]), value)
    assert said[:5] == [
        "an array is a null pointer",
        "an array is a null pointer",
        "there is no parameter of this number",
        "the file of parameters cannot be read or written",
        "the file of parameters is not one of this model",
    ]
    assert "failed: index out of range: " in said[5] and "has extent 20 there; already overwritten: " in said[5]


def test_what_it_gives_is_what_a_cpu_gives(made):
    """Other kernels, in another library."""
    expected = made[3]
    step, infer = functions("cpu")
    losses, bias, scores = ten_steps(step, infer)
    np.testing.assert_allclose(expected[0], losses, rtol=1e-4)
    np.testing.assert_allclose(expected[1], bias, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(expected[2], scores, rtol=1e-3, atol=1e-4)


def captured(found):
    """The launches of each graph that was made."""
    graphs, inside = [], False
    for name, *rest in found:
        inside = name == "cuStreamBeginCapture_v2" or (inside and name != "cuStreamEndCapture")
        if name == "cuStreamBeginCapture_v2":
            graphs.append([])
        elif inside and name == "cuLaunchKernel":
            graphs[-1].append(rest)
    return graphs


def test_what_the_driver_is_asked_for(made, tmp_path):
    """Launches are those of the plans, over one memory; arrays that are copied have their sizes."""
    said = json.loads((made[0] / "program.json").read_text())
    _, _, _, found = run(made, tmp_path)
    names = [name for name, *_ in found]
    assert names.count("cuModuleLoadData") == names.count("cuModuleUnload") == len(said["libraries"])
    assert names.count("cuMemAlloc_v2") == 1 and names.count("cuGraphInstantiateWithFlags") == 2
    parameters = {}
    for program, graph in zip(said["programs"], captured(found), strict=True):
        plan, launches = program["plan"], iter(graph)
        for call in plan["calls"]:
            kernel = plan["kernels"][call["kernel"]]
            numbers = [*call["arguments"], *call["workspaces"]]
            for entry in kernel["entries"]:
                symbol, tasks, threads, shared, *places = next(launches)
                assert symbol == entry["symbol"]
                assert (int(tasks), int(threads), int(shared)) == (
                    entry["tasks"], entry["threads"], entry["shared_bytes"],
                )  # fmt: skip
                assert len(places) == len(numbers) + bool(kernel["faults"])
                for number, place in zip(numbers, places, strict=False):
                    if number in plan["parameters"]:
                        which = program["parameters"][plan["parameters"].index(number)]
                        assert parameters.setdefault(which, place) == place
        assert next(launches, None) is None
    sizes = {n: nf.dtype.itemsize(p["dtype"]) * int(np.prod(p["shape"])) for n, p in enumerate(said["parameters"])}
    spans = sorted((int(place), int(place) + sizes[n]) for n, place in parameters.items())
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    ran = [[n, *r] for n, *r in found if n in ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2")]
    first = next(n for n, c in enumerate(ran) if c[0] == "cuGraphLaunch")
    assert [c[-1] for c in ran[first - 2 : first]] == ["64", "64"]
    assert [c[-1] for c in ran[first + 1 : first + 3]] == ["4", "40"]
    assert found[-1] == ["cuDevicePrimaryCtxRelease_v2", "live", "0"]


@pytest.mark.parametrize("here, fits", [("80", True), ("86", True), ("75", False), ("90", False)])
def test_a_gpu_of_another_architecture_is_told(made, tmp_path, here, fits):
    status, _, said, found = run(made, tmp_path, NF_EMULATOR_ARCHITECTURE=here)
    if fits:
        assert status == 0
        return
    assert status == 3
    assert said == ["the package is for sm_80, and the GPU here is of another architecture: build it for that"]
    assert found[-1] == ["cuDeviceGetAttribute"]


def test_a_machine_without_a_driver_is_told(made, tmp_path):
    """And one with a driver that lacks what is needed."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    status, _, said, _ = run(made, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert status == 3 and said == ["there is no NVIDIA driver on this machine: libcuda.so.1 is not found"]
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "libcuda.so.1")]
    (tmp_path / "libcuda.so.1").unlink()
    subprocess.run(command, input=b"int cuInit(unsigned flags) { return (int)flags; }", check=True)
    status, _, said, _ = run(made, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert status == 3 and said == ["the NVIDIA driver of this machine is too old for this package: update it"]


def test_a_gpu_that_is_not_there_is_told(made, tmp_path):
    status, _, said, _ = run(made, tmp_path, ordinal=1)
    assert status == 3 and said == ["invalid device ordinal"]


@pytest.mark.parametrize("call, status", [("cuMemAlloc_v2", 3), ("cuLaunchKernel", 3), ("cuGraphLaunch", 4)])
def test_a_call_that_fails_is_told_and_all_is_given_back(made, tmp_path, call, status):
    found = run(made, tmp_path, NF_EMULATOR_FAILS=call)
    assert found[0] == status and found[2] == ["out of memory"]
    assert found[3][-1] == ["cuDevicePrimaryCtxRelease_v2", "live", "0"]


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_header_is_of_cpp_too(made):
    source = '#include "net.h"\nint main() { return net_open(0) == nullptr; }\n'
    command = ["c++", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{made[0]}", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def test_names_of_the_header_are_refused(monkeypatch, tmp_path):
    """On a CPU there is no `get`."""
    x = nf.placeholder((3,), name="x")
    nf.compile([x * 2.0], [x]).save(tmp_path / "p.nflib", "get")
    emulated(monkeypatch, checked=False)
    f = nf.compile([x * 2.0], [x], target="cuda")
    with pytest.raises(
        nf.PackageError, match=r"is called by a word of C, and not open, .*, get, set, read, write: 'get'"
    ):
        f.save(tmp_path / "q.nflib", "get")


def test_much_shared_memory_is_asked_for_and_ptx_runs_on_newer_gpus(made):
    """Both as the commands say it: up to 48 KiB are there without asking."""
    contents = read_contents((made[0] / "program.json").read_bytes())

    def commands(shared_bytes, kind):
        first, *others = contents.programs
        code, *codes = first.plan.kernels
        entry = code.entries[0]._replace(shared_bytes=shared_bytes)
        plan = first.plan._replace(kernels=(code._replace(entries=(entry,)), *codes))
        given = contents._replace(programs=(first._replace(plan=plan), *others))
        target = gpu_target(kind, "sm_80")
        return make_commands("net", given, target, [b"code"] * len(given.libraries), b"", b"head").opening

    for shared_bytes, asked in ((48 << 10, []), ((48 << 10) + 16, [[8, (48 << 10) + 16]])):
        found = [c.arguments for c in commands(shared_bytes, "cuda") if c.function == "cuFuncSetAttribute"]
        assert [[w.added for w in arguments[1:]] for arguments in found] == asked
    for kind, most in (("cuda", 90), ("nvptx", 1 << 31)):
        (found,) = [c.arguments for c in commands(0, kind) if c.function == "is_other"]
        assert [w.added for w in found[2:]] == [80, most]


CALLER = """
import ctypes, sys
import numpy as np
path, *files = sys.argv[1:]
library = ctypes.CDLL(f"{path}/libnf_p.so")
library.p_open.restype, library.p_message.restype = ctypes.c_void_p, ctypes.c_char_p
model = ctypes.c_void_p(library.p_open(0))
arrays = [np.load(f) for f in files]
failed = library.p_run(model, *(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))
assert failed == 0, library.p_message(failed)
library.p_close(model)
for f, a in zip(files, arrays):
    np.save(f, a)
"""


def called(f, inputs, tmp_path):
    """(the outputs of a function that was saved and called once by its C name, the calls of the driver)."""
    path = tmp_path / "p.nflib"
    f.save(path)
    modules = [(path / name).read_text() for name in json.loads((path / "program.json").read_text())["libraries"]]
    there = cuda_library(tmp_path / "driver", modules)
    outputs = [np.zeros(f.plan.buffers[n].shape, np.float32) for n in f.plan.outputs]
    files = [str(tmp_path / f"{n}.npy") for n in range(len(inputs) + len(outputs))]
    for file, array in zip(files, [*inputs, *outputs], strict=True):
        np.save(file, array)
    command = [sys.executable, "-c", CALLER, str(path), *files]
    done = subprocess.run(command, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [np.load(file) for file in files[len(inputs) :]], calls(there)


def test_loops_go_turn_by_turn(monkeypatch, tmp_path):
    """A recurrence and its gradients."""
    emulated(monkeypatch, checked=False)
    outputs, inputs = recurrence(4, reverse=False)
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape).astype(np.float32) for n, t in enumerate(inputs)}
    f = nf.compile(outputs, inputs, target="cuda")
    found, _ = called(f, list(feeds.values()), tmp_path)
    assert f.plan.loops
    for a, b in zip(found, nf.evaluate(outputs, feeds, "float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_calls_of_a_group_are_branches_of_a_graph(monkeypatch, tmp_path):
    emulated(monkeypatch, checked=False)
    monkeypatch.setenv("NEOFLOW_WITH", "together")
    x = nf.placeholder((7,), name="x")
    outputs = [nf.sum(nf.sin(x * float(n))) for n in range(1, 4)]
    parameters = [nf.parameter((40 + n,), name=f"p{n}", init=np.full(40 + n, n, np.float32)) for n in range(3)]
    f = nf.compile(outputs, [x], {p: p * 0.5 + nf.tanh(p) for p in parameters}, target="cuda")
    (first, count), *_ = f.plan.together
    value = np.linspace(0, 1, 7, dtype=np.float32)
    found, asked = called(f, [value], tmp_path)
    np.testing.assert_allclose(found, [np.sin(value * n).sum() for n in range(1, 4)], rtol=1e-5)
    names = [name for name, *_ in asked]
    branches = sum(n for _, n in f.plan.together)
    assert count > 1 and names.count("cuStreamWaitEvent") == 2 * branches, (first, branches)

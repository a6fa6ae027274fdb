"""Packages: what is saved runs again to the last bit, without a compiler, in Python and in C."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from neoflow import devices, pipeline, trials
from neoflow.graph import canonicalize, make_graph
from neoflow.loops import problem_of, space
from neoflow.package import manifest as manifests
from neoflow.rewriting.gathered import gatherings
from tests.emulator.driver import emulated
from tests.package.network import BATCH, batch, functions, ten_steps

pytestmark = pytest.mark.tvm
HERE = Path(__file__).parent
ROOT = Path(nf.__file__).parents[1]
NEEDED = ("numpy", "numpy.libs", "ml_dtypes", "safetensors")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the package, what ten steps of the compiled functions gave, their parameters after them)."""
    path = tmp_path_factory.mktemp("package") / "net.nflib"
    step, infer = functions()
    step.save(path, "step", infer=infer)
    expected = ten_steps(step, infer)
    return path, expected, {p.name: nf.get_value(p) for p in step.parameters}


@pytest.fixture
def copy(made, tmp_path):
    """A copy that may be damaged."""
    return Path(shutil.copytree(made[0], tmp_path / "copy.nflib"))


def same(found, expected):
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[2], expected[2])


def test_a_package_gives_what_the_compiled_functions_give(made, tmp_path):
    path, expected, after = made
    package = nf.load(path)
    assert set(package.functions) == {"step", "infer"} and set(package.parameters) == set(after)
    assert expected[0][-1] < expected[0][0]
    same(ten_steps(package.step, package["infer"]), expected)
    assert package.step.runs == 10
    for name, value in after.items():
        np.testing.assert_array_equal(nf.get_value(package.parameters[name]), value)
    nf.save_parameters(tmp_path / "after.safetensors", package.parameters.values())
    again = nf.load(path)
    nf.load_parameters(tmp_path / "after.safetensors", again.parameters.values())
    np.testing.assert_array_equal(again.infer(batch()[0])[0], expected[2])
    assert len(package.step.profile(*batch(), runs=2)) == len(package.step.plan.calls)


def test_what_a_package_says_of_itself(made):
    path, _, _ = made
    package = nf.load(str(path))
    assert repr(package).startswith("<Package net for cpu(") and "step, infer; 7 parameters>" in repr(package)
    assert "step(ids: int64[8], labels: int64[8]) -> [" in repr(package.step) and "updates table" in repr(package.step)
    assert repr(package.parameters["table"]) == "<PackagedParameter table: float32[20, 16]>"
    assert sorted(p.name for p in path.iterdir()) == sorted(
        ["manifest.json", "program.json", "parameters.safetensors", "libnf_net.so", "net.h"]
    )
    said = json.loads((path / "program.json").read_text())
    assert [p["name"] for p in said["programs"]] == ["step", "infer"]
    assert said["programs"][0]["inputs"][0] == {"name": "ids", "shape": [BATCH], "dtype": "int64"}


def test_it_runs_where_there_is_no_compiler_and_imports_little(made, tmp_path):
    """A process that finds what a package needs and no more; what it imports is counted, not timed."""
    path, expected, _ = made
    there = tmp_path / "packages"
    there.mkdir()
    site = Path(np.__file__).parents[1]
    for name in NEEDED:
        (there / name).symlink_to(site / name)
    (there / "neoflow").symlink_to(ROOT / "neoflow")
    for name in ("tvm", "tvm_ffi", "torch"):
        (there / f"{name}.py").write_text("raise ImportError('this is not here')")
    program = f"""
        import sys
        import numpy as np
        import neoflow as nf
        package = nf.load({str(path)!r})
        ids, labels = np.array({batch()[0].tolist()}), np.array({batch()[1].tolist()})
        print([float(package.step(ids, labels)[0]) for _ in range(10)])
        loaded = [m for m in sys.modules if m.partition(".")[0] not in ("numpy", "ml_dtypes", "safetensors")]
        print(sorted(m for m in loaded if m.startswith(("neoflow.", "tvm", "scipy", "islpy", "flint"))))
        print([m for m in ("dataclasses", "ml_dtypes", "pathlib", "urllib", "logging") if m in sys.modules])
    """
    environment = {"PYTHONPATH": str(there), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses, modules, slow = done.stdout.splitlines()
    assert json.loads(losses) == expected[0]
    assert slow == "[]"
    top = {m.split(".")[1] for m in json.loads(modules.replace("'", '"'))}
    assert top <= {
        *("arguments", "boundary", "caller", "code", "config", "dtype", "errors", "machine", "package", "plain"),
        "runtime",
    }


@pytest.mark.parametrize("linker", ["cc", "ld"])
@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("ld") is None, reason="no C compiler")
def test_a_program_in_c_trains_and_infers(made, tmp_path, linker):
    """Compiled with all warnings, linked by the compiler or by `ld`, with all threads and with one."""
    path, expected, after = made
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{path}"]
    program, object_file = tmp_path / "train", tmp_path / "train.o"
    subprocess.run(["cc", *flags, "-c", str(HERE / "train.c"), "-o", str(object_file)], check=True)
    link = ["-o", str(program), str(object_file), f"-L{path}", "-lnf_net"]
    if linker == "cc":
        subprocess.run(["cc", *link, f"-Wl,-rpath,{path}"], check=True)
    else:
        asked = [["cc", f"-print-file-name={n}"] for n in ("Scrt1.o", "crti.o", "crtn.o")]
        tools = [subprocess.run(c, capture_output=True, text=True, check=True).stdout.strip() for c in asked]
        dynamic = ["-pie", "-dynamic-linker", "/lib64/ld-linux-x86-64.so.2", "-rpath", str(path)]
        subprocess.run(["ld", *dynamic, *tools, *link, f"-L{Path(tools[0]).parent}", "-lc"], check=True)
    ids, labels = batch()
    for threads in (0, 1):
        result = tmp_path / "result.safetensors"
        done = subprocess.run(
            [str(program), str(path / "parameters.safetensors"), str(result), str(threads)],
            input=ids.tobytes() + labels.tobytes(), capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = np.frombuffer(done.stdout, np.float32)
        same(([float(v) for v in found[:10]], found[10:20], found[20:100].reshape(BATCH, 10)), expected)
        np.testing.assert_array_equal(found[100:], after["table"].reshape(-1)[:4])
        package = nf.load(path)
        nf.load_parameters(result, package.parameters.values())
        for name, p in package.parameters.items():
            np.testing.assert_array_equal(nf.get_value(p), after[name])
        said = done.stderr.decode().splitlines()
        assert said[0] == "an array does not begin at a multiple of 64 bytes"
        assert said[1] == "an array is a null pointer"
        assert "failed: index out of range: " in said[2] and "has extent 20 there; " in said[2]
        assert said[3] == "the file of parameters cannot be read or written"
        assert said[4] == "the file of parameters is not one of this model"


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_header_is_of_cpp_too(made):
    source = '#include "net.h"\nint main() { return net_open(1) == nullptr; }\n'
    command = ["c++", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{made[0]}", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def test_an_index_that_leaves_its_table_is_told(made):
    package = nf.load(made[0])
    ids, labels = batch()
    ids[3] = 1000
    with pytest.raises(nf.RuntimeFault, match=r"failed: index out of range: .*; "):
        package.step(ids, labels)
    assert package.step.runs == 0
    with pytest.raises(nf.RuntimeFault, match=r"input ids has shape \(8,\), the array \(7,\)"):
        package.infer(ids[:7])


def test_one_function_is_called_by_the_package(tmp_path):
    x = nf.placeholder((3,), name="x")
    nf.compile([x * 2.0], [x]).save(tmp_path / "9 lives.nflib")
    package = nf.load(tmp_path / "9 lives.nflib")
    np.testing.assert_array_equal(package(np.arange(3, dtype=np.float32))[0], [0, 2, 4])
    assert package.name == "m9_lives" and package.run is package["run"] and not package.parameters
    header = (tmp_path / "9 lives.nflib" / "m9_lives.h").read_text()
    assert "int32_t m9_lives_run(m9_lives *model, const float *x, float *mul);" in header
    with pytest.raises(AttributeError, match=r"Package has no attribute 'walk'"):
        package.walk  # noqa: B018


def test_what_has_no_such_function_says_which_it_has(made):
    package = nf.load(made[0])
    with pytest.raises(nf.PackageError, match=r"has no function 'train'; it has step, infer"):
        package["train"]
    with pytest.raises(nf.PackageError, match=r"several functions, step, infer: call one, package\.infer\(\.\.\.\)"):
        package(np.zeros(3))


def test_what_cannot_be_saved(made, tmp_path, monkeypatch):
    x, w = nf.placeholder((3,), name="x"), nf.parameter((3,), name="w")
    f = nf.compile([x * w], [x])
    for name in ("open", "two words", "1st", ""):
        with pytest.raises(nf.PackageError, match=r"is called by a word of C"):
            f.save(tmp_path / "p.nflib", name)
    with pytest.raises(nf.PackageError, match=r"two functions of a package are named 'run'"):
        f.save(tmp_path / "p.nflib", "run", run=f)
    with pytest.raises(nf.CheckpointError, match=r"two parameters are named w"):
        f.save(tmp_path / "p.nflib", "run", other=nf.compile([x * nf.parameter((3,), name="w")], [x]))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(nf.PackageError, match=r"is there, and is no package: choose another folder"):
        f.save(tmp_path / "mine")
    with pytest.raises(nf.PackageError, match=r"cannot be written: "):
        f.save(tmp_path / "mine" / "thesis.tex" / "p.nflib")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    emulated(monkeypatch, checked=False)
    with pytest.raises(nf.PackageError, match=r"for one target, not for cpu.*, cuda"):
        f.save(tmp_path / "p.nflib", "run", other=nf.compile([x * w], [x], target="cuda"))


def test_schedules_that_were_adopted_are_saved(tmp_path):
    step, infer = functions()
    rng = np.random.default_rng(4)
    chosen = {k.subgraph.digest: space(problem_of(k.subgraph), k.target).sample(rng) for k in step.compiled.kernels}
    assert pipeline.adopt(step, chosen) > 3
    step.save(tmp_path / "p.nflib", "step", infer=infer)
    package = nf.load(tmp_path / "p.nflib")
    assert package.step.plan.scratch_bytes == step.plan.scratch_bytes
    same(ten_steps(package.step, package.infer), ten_steps(step, infer))


def test_a_package_takes_the_place_of_another(tmp_path):
    x = nf.placeholder((3,), name="x")
    for factor in (2.0, 3.0):
        nf.compile([x * factor], [x]).save(tmp_path / "p.nflib")
        assert nf.load(tmp_path / "p.nflib")(np.ones(3, np.float32))[0].tolist() == [factor] * 3
    assert [p.name for p in tmp_path.iterdir()] == ["p.nflib"]


def test_a_gpu_runs_its_package(monkeypatch, tmp_path):
    emulated(monkeypatch, checked=False)
    x, w, wave = nf.placeholder((40,), name="x"), nf.parameter((40,), name="w"), np.sin(np.arange(40, dtype=np.float32))
    y = nf.exp(x * nf.constant(wave)) + w
    nf.compile([y], [x], {w: w + x}, "cuda").save(tmp_path / "p.nflib")
    package = nf.load(tmp_path / "p.nflib")
    value = np.linspace(-1, 1, 40).astype(np.float32)
    found = [package(value)[0] for _ in range(3)]
    np.testing.assert_allclose(found, [np.exp(value * wave) + n * value for n in range(3)], rtol=1e-5)
    np.testing.assert_allclose(nf.get_value(package.parameters["w"]), 3 * value, rtol=1e-6)


@pytest.mark.slow
def test_a_gpu_runs_the_package_of_a_network(monkeypatch, tmp_path):
    emulated(monkeypatch, checked=False)
    step, infer = functions("cuda")
    step.save(tmp_path / "net.nflib", "step", infer=infer)
    assert (tmp_path / "net.nflib" / "kernels_0.cubin").is_file()
    expected = ten_steps(step, infer)
    package = nf.load(tmp_path / "net.nflib")
    same(ten_steps(package.step, package.infer), expected)
    assert package.target.kind == "cuda"


def test_a_package_of_a_gpu_without_that_gpu(monkeypatch, tmp_path):
    emulated(monkeypatch, checked=False)
    x = nf.placeholder((3,), name="x")
    nf.compile([x * 2.0], [x], target="cuda").save(tmp_path / "p.nflib")
    resealed(tmp_path / "p.nflib", lambda said: said["target"].update(mcpu="sm_75"))
    with pytest.raises(nf.PackageError, match=r"is for sm_75, and the GPU here, .*, is sm_"):
        nf.load(tmp_path / "p.nflib")
    resealed(tmp_path / "p.nflib", lambda said: said["target"].update(mcpu="sm_1"))
    with pytest.raises(nf.PackageError, match=r"is for a target that is not known: "):
        nf.load(tmp_path / "p.nflib")
    resealed(tmp_path / "p.nflib", lambda said: said["target"].update(kind="abacus"))
    with pytest.raises(nf.PackageError, match=r"is for a target that is not known: there is no target 'abacus'"):
        nf.load(tmp_path / "p.nflib")
    monkeypatch.undo()
    with pytest.raises(nf.PackageError, match=r"cannot be loaded: "):
        nf.load(tmp_path / "p.nflib")


# --------------------------------------------------------------------------------------------- what is no package


def resealed(path, change):
    """A manifest that says something else, under a seal that fits."""
    said = json.loads((path / "manifest.json").read_text())
    change(said)
    said.pop("seal", None)
    seal = manifests.digest(json.dumps(said, sort_keys=True).encode())
    (path / "manifest.json").write_text(json.dumps({**said, "seal": seal}))


def replaced(path, name, data):
    """Another file in the place of one, which the manifest knows of."""
    (path / name).write_bytes(data)
    written = {"bytes": len(data), "sha256": manifests.digest(data)}
    resealed(path, lambda said: said["files"].update({name: written}))


FILES = ["manifest.json", "program.json", "parameters.safetensors", "libnf_net.so"]


@pytest.mark.parametrize("name", FILES)
def test_damage_is_told(copy, name):
    whole = (copy / name).read_bytes()
    for data in (whole[:-1], whole[: len(whole) // 2], b"", whole[:-9] + b"~" + whole[-8:], whole + b" {"):
        (copy / name).write_bytes(data)
        with pytest.raises(nf.PackageError, match=r"is damaged|is no manifest|bytes, more than"):
            nf.load(copy)
    (copy / name).unlink()
    with pytest.raises(nf.PackageError, match=f"is no package, or not a whole one: it has no {name}"):
        nf.load(copy)
    os.mkfifo(copy / name)
    with pytest.raises(nf.PackageError, match=r"is no plain file"):
        nf.load(copy)
    (copy / name).unlink()
    (copy / name).symlink_to("/etc/passwd")
    with pytest.raises(nf.PackageError, match=f"has an unreadable {name}"):
        nf.load(copy)
    (copy / name).unlink()
    (copy / name).mkdir()
    with pytest.raises(nf.PackageError, match=r"is no plain file"):
        nf.load(copy)


def test_another_machine_or_version_is_told(copy):
    resealed(copy, lambda said: said["target"].update(mcpu="granite", features=["avx2", "avx99"]))
    with pytest.raises(
        nf.PackageError, match=r"is for a CPU like granite, and this machine's lacks avx99: build it here"
    ):
        nf.load(copy)
    resealed(copy, lambda said: said.update(format=2, neoflow="7.0.0"))
    message = r"has format 2, and this neoflow reads up to 1: load it with neoflow 7\.0\.0 or a newer one"
    with pytest.raises(nf.PackageError, match=message):
        nf.load(copy)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", "[" * 100_000, '{"format": 1}', '{"format": true}', '{"format": 0}', '{"format": 1e99}',
     '{"format": ' + "9" * 5000 + "}", '{"format": 1, "seal": 3}', "\ud800".encode("utf-8", "surrogatepass")],
)  # fmt: skip
def test_what_is_no_manifest(tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(nf.PackageError, match=r"is no manifest of a package: "):
        nf.load(tmp_path)


def test_a_path_to_nothing(tmp_path):
    for path in (tmp_path / "nothing", tmp_path, "/dev/null", "a\0b"):
        with pytest.raises(
            nf.PackageError, match=r"is no package, or not a whole one: it has (no|an unreadable) manifest"
        ):
            nf.load(path)


@pytest.mark.parametrize("name", ["../net.so", "/etc/passwd", "a/b", "..", "", "a\0b", "x" * 300])
def test_files_lie_in_the_package(copy, name):
    resealed(copy, lambda said: said["files"].update({name: {"bytes": 1, "sha256": ""}}))
    with pytest.raises(nf.PackageError, match=r"is no name of a file in it"):
        nf.load(copy)


def changes(said):
    """Each makes the description of a program one that does not fit together."""
    step = said["programs"][0]
    plan = step["plan"]
    yield said.clear
    yield lambda: said.update(programs=[])
    yield lambda: said["programs"].append(step)
    yield lambda: step.update(name="no word")
    yield lambda: step.update(inputs=[])
    yield lambda: step.update(outputs=None)
    yield lambda: step.update(parameters=[99])
    yield lambda: step.update(updated=[99])
    yield lambda: step.update(libraries=[])
    yield lambda: step.update(libraries=[7] * len(plan["kernels"]))
    yield lambda: plan.update(arena_bytes=0)
    yield lambda: plan.update(arena_bytes=-1)
    yield lambda: plan.update(arena_bytes=1 << 70)
    yield lambda: plan.update(copies=[[0, 10**6]])
    yield lambda: plan.update(copies=[0])
    yield lambda: plan.update(saves=7)
    yield lambda: plan["calls"][0].update(kernel=10**6)
    yield lambda: plan["calls"][0].update(arguments=[10**6])
    yield lambda: plan["calls"][0].update(name=7)
    yield lambda: plan["buffers"][0].update(kind="dream")
    yield lambda: plan["buffers"][0].update(kind="view", base=0)
    yield lambda: plan["buffers"][0].update(dtype="complex64")
    yield lambda: plan["buffers"][0].update(shape=[-1])
    yield lambda: plan["buffers"][0].update(shape=[1 << 40, 1 << 40])
    yield lambda: plan["buffers"][0].update(shape=[1.5])
    yield lambda: plan["kernels"][0]["entries"][0].update(tasks=1 << 40)
    yield lambda: said["constants"].append({"offset": 1 << 40})
    yield lambda: said.update(libraries=[3])


def test_what_is_no_program(copy):
    whole = (copy / "program.json").read_bytes()
    count = len(list(changes(json.loads(whole))))
    for n in range(count):
        said = json.loads(whole)
        list(changes(said))[n]()
        replaced(copy, "program.json", json.dumps(said).encode())
        with pytest.raises(nf.PackageError, match=r"program\.json does not describe a program: "):
            nf.load(copy)
    assert count == 28
    replaced(copy, "program.json", b"[" * 100_000)
    with pytest.raises(nf.PackageError, match=r"program\.json does not describe a program: "):
        nf.load(copy)


def test_files_that_are_others(copy):
    for name in ("parameters.safetensors", "libnf_net.so"):
        whole = (copy / name).read_bytes()
        for data in (b"", b"MZ" * 100, b"\x7fELF" + bytes(60), (1 << 62).to_bytes(8, "little") + b"{}"):
            replaced(copy, name, data)
            with pytest.raises(nf.PackageError, match=r"cannot be loaded: |is no readable safetensors file|is damaged"):
                nf.load(copy)
        replaced(copy, name, whole)
    said = json.loads((copy / "program.json").read_text())
    said["programs"][0]["plan"]["kernels"][0]["entries"][0]["symbol"] = "nf_elsewhere"
    replaced(copy, "program.json", json.dumps(said).encode())
    with pytest.raises(nf.PackageError, match=r"cannot be loaded: the library has no function named 'nf_elsewhere'"):
        nf.load(copy)
    x = nf.placeholder((2,), name="x")
    w = nf.parameter((2,), name="w")
    nf.save_parameters(copy / "parameters.safetensors", [w])
    replaced(copy, "parameters.safetensors", (copy / "parameters.safetensors").read_bytes())
    with pytest.raises(nf.PackageError, match=r"is damaged: parameters\.safetensors has no table: float32\[20, 16\]"):
        nf.load(copy)
    assert nf.evaluate([x * w], {x: np.ones(2, np.float32), w: np.ones(2, np.float32)})[0].sum() == 2


@pytest.mark.parametrize("is_faster", [False, True])
def test_what_a_search_found_is_saved_where_it_is_faster_with_weights_that_are_made_ready_in_every_call(
    monkeypatch, is_faster
):
    """Packages prepare nothing: a graph that was chosen since weights are packed once may lose that."""
    x = nf.placeholder((3, 1, 128), name="x")
    w = nf.parameter((512, 128), name="w", init=lambda shape, rng: rng.standard_normal(shape) / 12)
    outputs = [nf.tanh(nf.nn.functional.linear(x[t], w)) * float(t + 1) for t in range(3)]
    optimizer = trials.optimizer_of(devices.resolve_target("cpu"), 1.0)
    graph = canonicalize(make_graph(outputs, [x]))
    (move,) = gatherings(graph)
    optimizer.take(graph, dataclasses.replace(optimizer(graph), graph=move.replay(graph), moves=(move,)))
    compiled = pipeline.compile_program(outputs, [x], optimizer=optimizer)
    prepares = dataclasses.replace(compiled, plan=compiled.plan._replace(prepared=1))
    monkeypatch.setattr(trials, "in_turns", lambda *_: (2.0, 1.0) if is_faster else (1.0, 2.0))
    whole = pipeline._whole(prepares)
    assert sum(t.definition.has_reduction for t in whole.graph.nodes) == (1 if is_faster else 3)
    array = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    for a, b in zip(pipeline.bind(whole)(array), pipeline.bind(compiled)(array), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

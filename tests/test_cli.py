"""The command: what it prints, for people and for programs, and how it fails."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import typer

import neoflow
import neoflow as nf
from neoflow import cli, pipeline
from neoflow.commands.options import WithDefault
from neoflow.kept import records_in
from neoflow.models import build_model, find_model
from neoflow.report import packaged, tuning
from neoflow.report.tuning import TunedModel
from neoflow.tune.records import Records
from tests.tune.candidates import TARGET, product, trials

MODEL = """
import neoflow as nf
from neoflow import nn

VARIANTS = {"tiny": {}, "tiny_wide": {"size": 10}}

def build(batch=8, size=8):
    p = nn.Parameters("tiny")
    x = nf.placeholder((batch, 1, size, size), name="x")
    labels = nf.placeholder((batch,), "int64", name="labels")
    scores = nf.expr("s[b,k] = sum(x[b,i] * w[k,i])", x=nf.reshape(x, (batch, size * size)), w=p("w", 10, size * size))
    loss = nn.functional.cross_entropy(scores, labels)
    return nn.Model("tiny", x, labels, p, loss, scores, 10)
"""
PEER = """
import torch

class Peer:
    def __init__(self, parameters):
        self.w = torch.tensor(parameters["w"], requires_grad=True)

    def loss_and_grads(self, x, labels):
        scores = torch.from_numpy(x).flatten(1) @ self.w.T
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
        return loss.item(), {"w": torch.autograd.grad(loss, self.w)[0].numpy()}

    def step(self, x, labels, lr=0.01):
        loss, gradients = self.loss_and_grads(x, labels)
        with torch.no_grad():
            self.w -= lr * torch.from_numpy(gradients["w"])
        return loss

    def infer(self, x):
        with torch.inference_mode():
            return (torch.from_numpy(x).flatten(1) @ self.w.T).numpy()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with one model and its peer, which the commands run in."""
    for path, text in (("models/tiny.py", MODEL), ("benchmarks/peers/torch_tiny.py", PEER)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command: (exit status, standard output, standard error)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["neoflow", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)])
def test_help(run, command):
    status, out, _ = run(*command, "--help")
    assert status == 0 and "Usage: " in out
    if not command:
        assert all(name in out for name in cli.COMMANDS)


def test_each_file_of_commands_is_one():
    files = {p.stem for p in (Path(cli.__file__).parent / "commands").glob("*.py")} - {"__init__", "options"}
    assert set(cli.COMMANDS) == files and len(cli.COMMANDS) == len(files)


def test_help_loads_little():
    code = "import sys, neoflow.cli; print([m for m in ('tvm', 'torch', 'sklearn', 'tvm_ffi') if m in sys.modules])"
    root = Path(neoflow.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["explain", "absent"], r"there is no model absent: give a file, or one of .*tiny \(tiny, tiny_wide\)"),
        (["explain", "capsnt"], r"there is no model capsnt \(did you mean capsnet\?\): give a file, or one of "),
        (["explain", "absent.py"], "there is no file absent.py"),
        (["explain", "tiny_wid"], r"there is no model tiny_wid \(did you mean tiny_wide\?\)"),
        (["bench", "tiny", "--against", "abacus"], "there is no peer 'abacus'; there are torch, jax"),
        (["bench", "tiny", "--check"], "--check compares with a peer"),
        (["train", "tiny", "--resume"], "--resume needs --checkpoint"),
        (["train", "tiny", "--lr", "0"], "a learning rate above 0"),
        (["train", "tiny", "--data", "."], "train-images"),
    ],
)
def test_errors_are_one_line_and_a_status(run, arguments, message):
    status, out, err = run(*arguments)
    assert status == 1 and out == ""
    assert err.startswith("neoflow: ") and err.count("\n") == 1
    assert re.search(message, err)


def test_wrong_use_is_status_2(run):
    assert run("train")[0] == 2
    assert run("train", "tiny", "--epochs", "0")[0] == 2
    assert run("build")[0] == 2


def test_files_that_are_no_models(run, folder):
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "broken.py").write_text("def build(:\n")
    (folder / "other.py").write_text("def build(batch=1): return 3\n")
    for name, message in (
        ("empty", "has no function build"),
        ("broken", "cannot be loaded: "),
        ("other", "gives int, not nf.nn.Model"),
    ):
        status, _, err = run("explain", f"{name}.py")
        assert status == 1 and message in err


def test_models_are_listed_with_their_variants(run, folder):
    """Nothing in a file runs for it; what cannot be read without that is its own default."""
    (folder / "models" / "computed.py").write_text("raise RuntimeError\nVARIANTS = dict(a={}, b={})\n")
    (folder / "models" / "broken.py").write_text("def build(:\n")
    found = {m["name"]: m for m in json.loads(run("models", "--json")[1])}
    assert found["tiny"] == {
        "name": "tiny",
        "variants": ["tiny", "tiny_wide"],
        "path": str(folder / "models" / "tiny.py"),
    }
    assert found["resnet"]["variants"] == ["resnet18", "resnet50", "resnext50"]
    assert found["computed"]["variants"] == found["broken"]["variants"] == []
    lines = run("models")[1].splitlines()
    assert len(lines) == len(found) and any(line.startswith("tiny (tiny, tiny_wide)  ") for line in lines)


def test_a_variant_of_a_computed_table_is_found_by_its_file(run, folder):
    text = textwrap.dedent(MODEL).replace(
        'VARIANTS = {"tiny": {}, "tiny_wide": {"size": 10}}', "VARIANTS = dict(own={}, own_b={})"
    )
    (folder / "models" / "own.py").write_text(text)
    assert find_model("own_b") == (folder / "models" / "own.py", "own_b")
    assert build_model("own_b").name == "tiny"
    with pytest.raises(nf.ConfigError, match=r"own\.py has no variant own_c; it has own, own_b"):
        build_model("own_c")


@pytest.mark.torch
def test_a_peer_lies_beside_a_users_model(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine.py").write_text(textwrap.dedent(MODEL))
    status, _, err = run("bench", elsewhere / "mine.py", "--against", "torch", "--seconds", "0")
    assert status == 1 and "mine has no peer in torch: put torch_mine.py beside it, or into benchmarks/peers" in err
    (elsewhere / "torch_mine.py").write_text(textwrap.dedent(PEER))
    status, out, _ = run("bench", elsewhere / "mine.py", "--batch", "2", "--against", "torch", "--seconds", "0")
    assert status == 0 and "torch" in out


@pytest.mark.tvm
def test_train(run, folder):
    arguments = ["train", "tiny", "--batch", "8", "--epochs", "2", "--lr", "0.05", "--checkpoint", folder / "kept"]
    status, out, err = run(*arguments, "--json")
    summary = json.loads(out)
    assert status == 0 and err == ""
    assert summary["stopped"] == "finished" and summary["accuracy"] > 0.8 and summary["steps"] == 2 * (1437 // 8)
    assert summary["report"] == "neoflow-tiny.html" and "<svg" in (folder / "neoflow-tiny.html").read_text()
    assert {"seconds", "to_first_step", "steps_per_second", "built", "cached", "temporary_bytes"} <= summary.keys()
    status, out, err = run(*arguments[:5], "3", *arguments[6:], "--resume", "--report", folder / "r" / "{model}.html")
    assert status == 0 and err.startswith("epoch 3/3  loss ")
    assert "tiny on digits: test accuracy" in out and "kernels: 0 compiled" in out
    assert f"report: {folder / 'r' / 'tiny.html'}" in out and (folder / "r" / "tiny.html").is_file()
    assert run(*arguments)[0] == 1  # it has checkpoints of another run
    assert json.loads((folder / "neoflow-tiny.trace.json").read_text())["traceEvents"]
    places = re.findall(r'<small class="place">(.*?):', (folder / "neoflow-tiny.html").read_text())
    assert set(places) == {"tiny.py"}  # what the command adds, the updates, is at the line of what it updates
    status, out, _ = run("compare", "neoflow-tiny.html", folder / "r" / "tiny.html", "--output", "both.html")
    assert status == 0 and out == "both.html\n" and "tiny, two runs" in (folder / "both.html").read_text()
    status, _, err = run("compare", "neoflow-tiny.html", "models/tiny.py")
    assert status == 1 and "models/tiny.py is no report of neoflow that keeps its run" in err
    status, _, err = run("compare", "neoflow-tiny.html", "neoflow-tiny.html", "--output", "models/tiny.py/x.html")
    assert status == 1 and "models/tiny.py/x.html cannot be written" in err


@pytest.mark.tvm
def test_explain_prints_each_stage(run):
    stages = [
        "model",
        "gradients",
        "expressions",
        "canonicalize",
        "constants",
        "pad guards",
        "factor",
        "hoist",
        "batch",
        "chain sums",
        "read slices",
        "move offsets",
        "partition",
        "order",
        "schedules",
    ]
    stages += ["code", "plan"]
    status, out, _ = run("explain", "tiny", "--json")
    content = json.loads(out)
    assert status == 0 and [s["name"] for s in content["stages"]] == stages
    assert all(s["summary"] and s["text"] for s in content["stages"])
    _, out, _ = run("explain", "models/tiny.py", "--format", "tir")
    headings = [line.split(": ")[0].split(" (")[0] for line in out.splitlines() if line.startswith("=== ")]
    assert headings == [f"=== {name}" for name in [*stages, "tir"]]
    _, out, _ = run("explain", "tiny", "--stage", "partition", "--mode", "infer")
    assert out.startswith("=== partition") and out.count("=== ") == 1
    _, out, _ = run("explain", "tiny", "--stage", "schedules", "--format", "asm")
    assert re.findall(r"^=== (\w+)", out, re.MULTILINE) == ["schedules", "asm"] and ".text" in out
    status, _, err = run("explain", "tiny", "--stage", "poetry")
    assert status == 1 and "there is no stage 'poetry'; there are model, gradients," in err


@pytest.mark.tvm
def test_explain_shows_what_became_of_each_tensor_in_mixed_precision(run):
    status, out, _ = run("explain", "tiny", "--precision", "bf16", "--stage", "precision")
    assert status == 0 and re.match(r"=== precision \(.*\): \d+ of \d+ float32 tensors are bfloat16", out)
    assert "result: the program gives it back" in out
    for command in ("explain", "train"):
        status, _, err = run(command, "tiny", "--precision", "tf32")
        assert status == 1 and "precision 'tf32' is one of NVIDIA's tensor cores" in err


@pytest.mark.tvm
@pytest.mark.torch
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_bench(run, mode):
    pytest.importorskip("torch")
    status, out, _ = run("bench", "tiny", "--mode", mode, "--against", "torch", "--seconds", 0.1, "--json")
    result = json.loads(out)
    assert status == 0 and list(result) == ["model", "batch", "mode", "neoflow_ms", "peers", "loss"]
    assert (result["model"], result["batch"], result["mode"]) == ("tiny", 16, mode)
    assert result["neoflow_ms"] > 0 and result["peers"]["torch"] > 0 and 1 < result["loss"] < 5


@pytest.mark.tvm
@pytest.mark.torch
def test_bench_check(run, folder):
    pytest.importorskip("torch")
    arguments = ["bench", "tiny", "--against", "torch", "--seconds", 0.1, "--check"]
    status, out, _ = run(*arguments, "--json")
    assert status == 0 and json.loads(out)["check"][0]["agrees"]
    assert "torch in float32 is off: agrees" in run(*arguments)[1]
    peer = folder / "benchmarks" / "peers" / "torch_tiny.py"
    peer.write_text(peer.read_text().replace("self.w -= lr", "self.w -= 2 * lr"))
    status, out, _ = run(*arguments)
    assert status == 1 and "DISAGREES" in out


@pytest.mark.tvm
@pytest.mark.torch
def test_bench_check_judges_each_gradient_by_the_peers_own(run, folder):
    """A gradient of the peer off by one part in two thousand, in float32 as in float64: it is not rounding."""
    pytest.importorskip("torch")
    peer = folder / "benchmarks" / "peers" / "torch_tiny.py"
    peer.write_text(peer.read_text().replace("self.w)[0].numpy()", "self.w)[0].numpy() * 1.0005"))
    status, out, _ = run("bench", "tiny", "--against", "torch", "--seconds", 0.1, "--check")
    assert status == 1 and "DISAGREES" in out
    assert re.search(r"gradient w +5\.0e-04 of its largest entry \(at most 2e-06, too much\)", out)


@pytest.mark.tvm
def test_doctor(run):
    status, out, _ = run("doctor", "--json")
    machine = json.loads(out)
    assert status == 0
    assert list(machine) == [
        *(
            "neoflow",
            "python",
            "processor",
            "cores",
            "threads",
            "vector_bits",
            "memory_bytes",
            "busy",
            "tvm",
            "tvm_ffi",
        ),
        *("llvm_mcpu", "fma_gflops", "cache_gb_s", "memory_gb_s", "gpu", "torch", "jax", "cache_dir"),
        *("cache_bytes", "missing"),
    ]
    assert machine["fma_gflops"] > 1 and machine["cache_gb_s"] > 0.1 and machine["memory_gb_s"] > 0.1
    _, out, _ = run("doctor")
    assert all(word in out for word in ("GFLOP/s", "GB/s in cache", "threads", "-bit vectors", machine["cache_dir"]))


@pytest.mark.tvm
def test_train_without_a_report_or_without_a_place_for_one(run, folder, caplog):
    arguments = ["train", "tiny", "--epochs", "1", "--json"]
    status, out, _ = run(*arguments, "--no-report")
    assert status == 0 and json.loads(out)["report"] is None and not list(folder.glob("*.html"))
    (folder / "neoflow-tiny.html").mkdir()  # where it goes when nobody says where
    status, out, _ = run(*arguments)
    assert status == 0 and json.loads(out)["report"] is None
    assert "neoflow-tiny.html was not written: " in caplog.text


def test_what_cannot_be_written_is_said_before_the_run(run, folder):
    for path in (folder / "models" / "tiny.py" / "r.html", folder / "models"):
        status, out, err = run("train", "tiny", "--report", path)
        assert status == 1 and out == "" and f"neoflow: the report cannot be written to {path}: " in err
        assert "give another --report, or --no-report" in err
    status, out, err = run("train", "tiny", "--no-report", "--checkpoint", folder / "models" / "tiny.py" / "kept")
    assert status == 1 and "neoflow: no checkpoint can be written to " in err and "epoch" not in err


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder of an empty cache."""
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def compiled(factor=0.125):
    """A kernel in the cache, called once."""
    x = nf.placeholder((7,), name="x")
    f = nf.compile([nf.exp(x) * factor], inputs=[x])
    f(np.ones(7, np.float32))
    return f.compiled


@pytest.mark.tvm
def test_cache(run, kept):
    compiled()
    status, out, _ = run("cache", "--json")
    found = json.loads(out)
    assert status == 0 and found["folder"] == str(kept) and (found["trials"], found["damaged"]) == (0, 0)
    assert found["kernels"] >= 1 and found["modules"] >= 1 and 0 < found["nbytes"] < found["limit_bytes"]
    status, out, _ = run("cache", "--clear")
    assert status == 0 and "0 kernels in 0 modules, 0.0 of at most 2048 MiB; 0 compared with NumPy" in out
    compiled()  # compiled again
    assert json.loads(run("cache", "clear", "--json")[1])["kernels"] == 0


@pytest.mark.tvm
def test_cache_ls_says_what_kernels_compute(run, kept):
    made = compiled()
    rows = {row["key"]: row for row in json.loads(run("cache", "ls", "--json")[1])}
    (kernel,) = made.kernels
    row = rows[kernel.key]
    assert row["subgraph"] == kernel.subgraph.to_text() and row["target"] == kernel.target.to_text()
    assert row["schedule"] == kernel.schedule.to_json() and not row["is_judged"]
    assert row["module_bytes"] > 0 and row["module_kernels"] == 1 and 0 <= row["unused_seconds"] < 600
    out = run("cache", "ls")[1]
    assert kernel.key[:16] in out and "exp(" in out and "today" in out and "not compared" in out


@pytest.mark.tvm
def test_cache_verify_reads_and_judges_again(run, kept):
    compiled(0.125)
    second = compiled(0.25)
    status, out, _ = run("cache", "verify", "--json")
    found = json.loads(out)
    assert status == 0 and found["judged"] == 2 and found["damaged"] == found["wrong"] == {} and found["files"] >= 6
    module = kept / f"{second.modules[0].name}.module"
    module.write_bytes(module.read_bytes()[:-1])
    assert json.loads(run("cache", "verify", "--files", "--json")[1])["damaged"] == {module.name: "is damaged"}
    status, out, _ = run("cache", "verify", "--json")
    found = json.loads(out)
    assert status == 1 and found["judged"] == 1 and list(found["damaged"].values()) == ["leads to no module"]


@pytest.mark.tvm
def test_cache_verify_finds_a_kernel_that_is_wrong(run, kept):
    """One that is said to be of the other's subgraph, under a seal that is right."""
    from neoflow.runtime.cache import KernelCache

    one, other = compiled(0.125), compiled(0.25)
    cache = KernelCache(kept)
    said = {about["kernel"]: (file.name.partition(".")[0], about) for file, about in cache.said("request")}
    request, _ = said[one.kernels[0].key]
    cache.remember(request, one.kernels[0].key, said[other.kernels[0].key][1])
    status, out, _ = run("cache", "verify")
    assert status == 1 and "2 kernels compared with NumPy, 1 wrong" in out and "computes v2[" in out
    assert run("cache", "verify")[0] == 0  # it has left the cache


@pytest.mark.tvm
def test_cache_prune(run, kept):
    compiled(0.125)
    compiled(0.25)
    everything = json.loads(run("cache", "--json")[1])
    assert json.loads(run("cache", "prune", "--older", "1", "--json")[1]) == everything
    oldest = sorted(kept.glob("*.module"))[0]
    for path in (oldest, *kept.glob("*.request")):
        os.utime(path, (time.time() - 5 * 86400,) * 2)
    found = json.loads(run("cache", "prune", "--older", "4.5", "--json")[1])
    assert found["modules"] == everything["modules"] - 1 and not oldest.exists() and not list(kept.glob("*.request"))
    assert json.loads(run("cache", "prune", "--bytes", "0", "--json")[1])["nbytes"] == 0
    status, _, err = run("cache", "prune")
    assert status == 1 and "say what is to go: --older DAYS, --bytes N, or both" in err
    compiled()


def test_schedules_are_passed_on(run, kept, tmp_path, monkeypatch):
    measured = trials(product(), 10)
    records_in(kept).add(product(), TARGET, measured)
    best = min((t for t in measured if t.seconds), key=lambda t: t.seconds)
    for group in ("tune", "cache"):
        monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(kept))
        path = tmp_path / f"{group}.jsonl"
        assert json.loads(run(group, "export", path, "--json")[1]) == {"path": str(path), "schedules": 8}
        assert "1 schedules: " in run(group, "export", path, "--best", "1")[1]
        monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path / f"other {group}"))
        status, out, _ = run(group, "import", path, "--json")
        assert status == 0 and json.loads(out) == {"new": 1, "known": 0, "refused": 0, "reasons": []}
        there = records_in(tmp_path / f"other {group}")
        assert there.to_measure(product(), TARGET) == [best.schedule] and there.best(product(), TARGET) is None
        path.write_text("roses are red\n" + path.read_text())
        status, out, _ = run(group, "import", path)
        assert status == 0 and "0 schedules imported" in out and "1 known already, 1 lines refused\nline 1: " in out
        path.write_text("roses are red\n")
        assert run(group, "import", path)[0] == 1
        assert json.loads(run("cache", "--json")[1])["trials"] == 1
        assert json.loads(run("cache", "clear", "--json")[1])["trials"] == 1
        assert json.loads(run("cache", "clear", "--records", "--json")[1])["trials"] == 0
    monkeypatch.setattr(Records, "clear", lambda records: os.unlink(tmp_path / "absent"))
    status, _, err = run("cache", "clear", "--records")
    assert status == 1 and "the records of tuning cannot be removed: No such file" in err
    status, _, err = run("tune", "import", tmp_path / "absent")
    assert status == 1 and "the schedules " in err and "cannot be read: No such file" in err
    status, _, err = run("tune", "export", tmp_path)
    assert status == 1 and "the schedules cannot be written to " in err


def test_a_group_may_have_a_command_that_goes_without_name(capsys):
    app, said = typer.Typer(cls=WithDefault), []

    @app.command("model", hidden=True)
    def model(name: str):
        said.append(name)

    @app.command()
    def export(path: str):
        said.append(("export", path))

    for words in (["capsnet"], ["export", "x"], ["model", "lstm"]):
        app(words, standalone_mode=False)
    assert said == ["capsnet", ("export", "x"), "lstm"]
    app(["--help"], standalone_mode=False)
    assert "export" in capsys.readouterr().out


@pytest.mark.tvm
def test_build(run, folder):
    status, out, _ = run("build", "tiny", "--json")
    said = json.loads(out)
    assert status == 0 and said["path"] == "tiny.nflib" and said["functions"] == ["step", "infer"]
    assert set(said["files"]) == {"program.json", "parameters.safetensors", "libnf_tiny.so", "tiny.h"}
    model, package = build_model("tiny"), nf.load("tiny.nflib")
    x, labels = model.example()
    (scores,) = package.infer(x)
    np.testing.assert_allclose(scores, nf.evaluate([model.scores], {model.x: x, **model.initial()})[0], rtol=1e-4)
    assert package.step(x, labels)[0] > package.step(x, labels)[0]
    status, out, _ = run("build", "tiny_wide", "-o", folder / "wide", "--batch", "3")
    assert status == 0 and re.search(r"wide: step and infer of tiny for cpu.*\n +[\d,]+ program\.json", out)
    assert nf.load(folder / "wide").infer.inputs[0].shape == (3, 1, 10, 10)


def test_build_tunes_both_functions_within_its_seconds(run, monkeypatch):
    asked = []

    def tuning(outputs, inputs, updates=None, target="cpu", precision="fp32", tune=None, fleet=None):
        asked.append((tune, fleet))
        if updates is None:
            raise nf.ConfigError("as far as this")

    monkeypatch.setattr(packaged.pipeline, "compile_program", tuning)
    assert "as far as this" in run("build", "tiny", "--tune", "2", "--fleet", "10.0.0.1:6379")[2]
    assert asked == [(1.5, "10.0.0.1:6379"), (0.5, "10.0.0.1:6379")]
    assert "as far as this" in run("build", "tiny")[2] and asked[2:] == [(None, None)] * 2
    status, _, err = run("build", "tiny", "--fleet", "local")
    assert status == 1 and "--fleet: its machines measure for a search, and there is none: add --tune SECONDS" in err


@pytest.mark.tvm
@pytest.mark.slow
def test_build_measures_candidates(run):
    said = json.loads(run("build", "tiny", "--tune", "4", "--json")[1])
    assert said["trials"] > 0 and json.loads(run("cache", "--json")[1])["trials"] > 0
    model = build_model("tiny")
    (scores,) = nf.load("tiny.nflib").infer(model.example()[0])
    expected = nf.evaluate([model.scores], {model.x: model.example()[0], **model.initial()})[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_the_page_of_a_tuning_is_written(run, monkeypatch, tmp_path):
    found = TunedModel("tiny", 1, "train", "cpu", 1.0, 0, "seconds", None, None, ())
    monkeypatch.setattr(tuning, "tune", lambda *arguments, **options: found)
    status, out, _ = run("tune", "tiny", "--report", tmp_path / "page.html", "--json")
    assert status == 0 and json.loads(out)["model"] == "tiny" and "tiny, tuned" in (tmp_path / "page.html").read_text()
    status, _, err = run("tune", "tiny", "--report", tmp_path)
    assert status == 1 and f"the report cannot be written to {tmp_path}: Is a directory" in err


@pytest.mark.parametrize("command", [("tune", "tiny", "--seconds", "1"), ("build", "tiny", "--tune", "1")])
def test_a_fleet_measures_where_its_address_says(run, monkeypatch, command):
    def fleet(target, address):
        raise nf.RuntimeFault(f"no fleet answers at {address!r}")

    monkeypatch.setattr(pipeline, "Fleet", fleet)
    status, _, err = run(*command, "--fleet", "10.0.0.1:6379")
    assert status == 1 and "no fleet answers at '10.0.0.1:6379'" in err

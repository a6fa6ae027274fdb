"""The command: what it prints, for people and for programs, and how it fails."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import neoflow
import neoflow as nf
from neoflow import cli
from neoflow.commands.options import WithDefault
from neoflow.models import build_model, find_model, find_peer


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)])
def test_help(run, command):
    status, out, _ = run(*command, "--help")
    assert status == 0 and "Usage: " in out
    if not command:
        assert all(name in out for name in cli.COMMANDS)


def test_each_file_of_commands_is_one():
    files = {p.stem for p in (Path(cli.__file__).parent / "commands").glob("*.py")} - {"__init__", "options"}
    assert set(cli.COMMANDS) == files and len(cli.COMMANDS) == len(files)


def test_the_package_is_the_command():
    """Where the environment's `bin` is not on the path."""
    root = Path(neoflow.__file__).parents[1]
    done = subprocess.run([sys.executable, "-m", "neoflow", "--help"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "Usage: python -m neoflow" in done.stdout


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
        (
            ["bench", "tiny", "--against", "abacus"],
            "there is no peer 'abacus'; there are torch, torch-expert, inductor, jax",
        ),
        (["bench", "tiny", "--check"], "--check compares with a peer"),
        (["bench", "tiny", "--check", "--against", "torch", "--target", "cuda"], "--check compares on the CPU"),
        (["bench", "tiny", "--target", "abacus"], "there is no target 'abacus'"),
        (["bench", "tiny", "--memory", "plenty"], "memory='plenty' is no amount of memory"),
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
    text = (
        (folder / "models/tiny.py")
        .read_text()
        .replace('VARIANTS = {"tiny": {}, "tiny_wide": {"size": 10}}', "VARIANTS = dict(own={}, own_b={})")
    )
    (folder / "models" / "own.py").write_text(text)
    assert find_model("own_b") == (folder / "models" / "own.py", "own_b")
    assert build_model("own_b").name == "tiny"
    with pytest.raises(nf.ConfigError, match=r"own\.py has no variant own_c; it has own, own_b"):
        build_model("own_c")


@pytest.mark.torch
def test_a_peer_lies_beside_a_users_model(run, folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine.py").write_text((folder / "models/tiny.py").read_text())
    status, _, err = run("bench", elsewhere / "mine.py", "--against", "torch", "--seconds", "0")
    assert status == 1 and "mine has no peer in torch: put torch_mine.py beside it, or into benchmarks/peers" in err
    (elsewhere / "torch_mine.py").write_text((folder / "benchmarks/peers/torch_tiny.py").read_text())
    values = build_model(str(elsewhere / "mine.py")).values()
    assert find_peer("torch", str(elsewhere / "mine.py"), values).infer(np.ones((2, 1, 8, 8), np.float32)).shape == (
        2,
        10,
    )


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
        "share sums",
        "hoist",
        "read slices",
        "batch",
        "chain sums",
        "move offsets",
        "sums within",
        "packed parameters",
        "layouts",
        "partition",
        "order",
        "prepared",
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
def test_a_limit_to_memory(run):
    status, out, _ = run("explain", "tiny", "--memory", "1GiB", "--stage", "memory")
    assert status == 0 and "of 1.00 GiB: nothing need be computed again" in out
    status, out, _ = run("bench", "tiny", "--seconds", "0", "--memory", "1GiB", "--json")
    assert status == 0 and json.loads(out)["memory"].endswith("nothing need be computed again")
    status, _, err = run("train", "tiny", "--epochs", "1", "--no-report", "--memory", "1KiB")
    assert status == 1 and "does not fit into 1.0 KiB: the least that works is" in err


@pytest.mark.tvm
@pytest.mark.torch
@pytest.mark.parametrize("mode", ["train", pytest.param("infer", marks=pytest.mark.slow)])
def test_bench(run, mode):
    pytest.importorskip("torch")
    status, out, _ = run("bench", "tiny", "--mode", mode, "--against", "torch", "--seconds", 0.1, "--json")
    result = json.loads(out)
    keys = [
        "model",
        "batch",
        "mode",
        "neoflow_ms",
        "peers",
        "loss",
        "ratios",
        "missing",
        "tune",
        "trials",
        "nbytes",
        "memory",
        "target",
    ]
    assert status == 0 and list(result) == keys and result["missing"] == {} and result["ratios"]["torch"] > 0
    assert (result["model"], result["batch"], result["mode"]) == ("tiny", 16, mode)
    assert result["neoflow_ms"] > 0 and result["peers"]["torch"] > 0 and 1 < result["loss"] < 5


@pytest.fixture
def untimed(monkeypatch):
    """`neoflow bench` without its contest."""
    from neoflow.contest import bench

    def made(model, batch, mode, against, seconds, tune, memory, rounding, target):
        return bench.Bench(model, batch, mode, 1.0, {}, 2.5, missing={} if against == ["torch"] else {"jax": "no word"})

    monkeypatch.setattr(bench, "bench", made)


@pytest.mark.torch
def test_bench_says_who_was_not_measured(run, untimed):
    pytest.importorskip("torch")
    status, out, _ = run("bench", "tiny", "--against", "inductor", "--tune", 2)
    assert status == 1 and "jax     not measured: no word" in out


@pytest.mark.tvm
@pytest.mark.torch
def test_bench_check(run, folder, untimed):
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
def test_bench_check_judges_each_gradient_by_the_peers_own(run, folder, untimed):
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
        *("llvm_mcpu", "fma_gflops", "cache_gb_s", "memory_gb_s", "round_trip_ns", "gpu", "torch", "jax", "roofs"),
        *("cache_dir", "cache_bytes", "missing"),
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

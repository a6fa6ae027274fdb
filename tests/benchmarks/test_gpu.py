"""The benchmark of a GPU without one: a dry run, what a restart does, tables, workers that end, peers on the CPU."""

import json
import shutil
import sys

import numpy as np
import pytest

import neoflow as nf
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import cells, kernels, steps, tables, theirs
from benchmarks.gpu.rows import Outcome, Row, Setting, Task, append, read_rows
from benchmarks.gpu.tasks import TASKS
from benchmarks.gpu.worker import Failed, Worker
from benchmarks.results import PATH
from neoflow import devices, trials
from neoflow.models import build_model

NEEDS_EMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
FEW = r"^(a/copies|b/ceilings|b/x\*2|c/capsnet b1/)"


def row(key, said="", is_done=True, **figures):
    return Row(key, figures, said, "a GPU", "2026-01-01", is_done)


@NEEDS_EMULATOR
@pytest.mark.tvm
def test_a_dry_run_and_a_restart(tmp_path, capsys):
    arguments = ["--dry", "--only", FEW, "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    found = read_rows([tmp_path / "rows.jsonl"])
    copies = found["a/copies 1031x258 float32"]
    assert copies.figures["kernels"] == 2 and copies.figures["worst"] <= 1 and copies.said == "gpu_map"
    assert found["b/x*2+1 67108864"].figures["seconds"] > 0
    assert {k for k in found if k[0] == "c"} == {f"c/capsnet b1/{w}" for w in (steps.OURS, *theirs.CONTENDERS)}
    printed = capsys.readouterr().out
    assert "| copies 1031x258 float32 | 2 |" in printed and "| x*2+1 67108864 |" in printed
    text = (tmp_path / "rows.jsonl").read_text()
    assert command.main(arguments) == 0 and (tmp_path / "rows.jsonl").read_text() == text


@NEEDS_EMULATOR
@pytest.mark.slow
@pytest.mark.tvm
def test_all_of_a_dry_run(tmp_path):
    assert command.main(["--dry", "--minutes", "60", "--out", str(tmp_path)]) == 0
    found = read_rows([tmp_path / "rows.jsonl"])
    assert found.keys() == {task.key for task in TASKS}
    assert [r for r in found.values() if not r.is_done or "WRONG" in r.said] == []
    met = {t for r in found.values() if "worst" in r.figures for t in r.said.split(", ")}
    assert met >= {"gpu_map", "gpu_reduction", "gpu_rows", "gpu_scatter", "gpu_contraction"}


def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch, capsys):
    def absent():
        raise nf.RuntimeFault("no GPU in this test")

    monkeypatch.setattr(devices, "gpu", absent)
    assert command.main(["--only", "b/ceilings", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "nothing is measured: no GPU in this test\n1 rows are left" in said.err and not any(tmp_path.iterdir())
    assert "not measured: `python -m benchmarks.gpu --only 'b/ceilings'`" in said.out
    with pytest.raises(SystemExit):
        command.main(["--dry", "--write"])


def test_rows_are_read_back_and_the_time_is_kept(tmp_path):
    path, rows = tmp_path / "rows.jsonl", {}

    def failing(task, setting, limit):
        raise Failed("broken")

    tasks = [Task("b/x", lambda _: Outcome({"seconds": 1.0}, "said")), Task("b/y", lambda _: Outcome())]
    end = float("inf")
    assert command.perform_all(tasks[:1], rows, path, "here", Setting(), end, command.here) == 0
    assert command.perform_all(tasks[1:], rows, path, "here", Setting(), end, failing) == 0
    assert command.perform_all(tasks, rows, path, "here", Setting(), 0.0, failing) == 2
    path.write_text(path.read_text() + '{"key": "b/z", "fig')
    found = read_rows([path, tmp_path / "absent"])
    assert found == rows and (found["b/y"].said, found["b/y"].is_done) == ("broken", False)
    append(path, row("b/y"))
    assert read_rows([path])["b/y"].is_done is False  # the line before it was cut off in the middle
    with pytest.raises(Failed, match="ZeroDivisionError"):
        command.here(Task("b/z", lambda _: 1 // 0), Setting(), 1.0)


ANSWERS = """import sys, json, time
for line in sys.stdin:
    key = json.loads(line)["key"]
    if key == "stays": time.sleep(60)
    if key == "ends": sys.exit(3)
    failing = {"fails": "RuntimeFault: wrong", "breaks": "CUDA error: an illegal memory access"}
    print(json.dumps({"failure": failing[key]} if key in failing else {"figures": {"x": 1.0}, "said": key}), flush=True)
"""


def test_a_worker_that_ends_or_stays_costs_one_row():
    worker = Worker((sys.executable, "-c", ANSWERS))
    try:
        for key, said in (("fails", "wrong"), ("ends", "its process ended"), ("breaks", "illegal memory access")):
            with pytest.raises(Failed, match=said):
                worker.perform(key, Setting(), 30)
            assert worker.perform("fine", Setting(), 30) == Outcome({"x": 1.0}, "fine")
        with pytest.raises(Failed, match="took more than 0 s"):
            worker.perform("stays", Setting(), 0.1)
    finally:
        worker.close()


def test_goals_stand_beside_what_was_measured():
    name = "matmul 4096 float32"
    rows = {kernels.CEILINGS: row(kernels.CEILINGS, **{"float32 multiply-adds": 5e13, "copy": 4e12, "launch": 2e-6})}
    for ours, word in ((1.0, "| reached |"), (0.5, "| half reached |"), (0.4, "| missed |")):
        figures = {"seconds": 1e-3 / ours, "operations": 1e10, "bytes": 1e6, "cuBLAS seconds": 0.91e-3}
        rows[f"b/{name}"] = row(f"b/{name}", **figures)
        (shown,) = [line for line in tables.measured(rows) if f"| {name} |" in line]
        assert shown.endswith(word) and f"{ours * 0.2:.0%}" in shown and "| cuBLAS | 0.910 |" in shown, shown
    slow = {"seconds": 1.0, "operations": 1.0, "bytes": 3.5e12}
    rows["b/sum of all 67108864"] = row("b/sum of all 67108864", said="WRONG: differs from PyTorch", **slow)
    (shown,) = [line for line in tables.measured(rows) if "sum of all" in line]
    assert "88%" in shown and shown.endswith("| reached; WRONG: differs from PyTorch |")
    assert "launch 2.00 us" in tables.ceilings(rows)[0]
    times = {steps.OURS: 1.0, "eager": 3.2, "max-autotune": 2.0}
    rows = {f"c/capsnet b16/{who}": row("", loss=1.5, seconds=s) for who, s in times.items()}
    assert any("| 3.20 | 2.00 |" in line for line in tables.stepped(rows))
    assert "| 3.20 | 2.00 | reached, reached |" in tables.stepped(rows)[-2]
    rows["c/capsnet b16/eager"] = row("", loss=1.6, seconds=3.2)
    assert any("WRONG: losses from 1.5 to 1.6" in line for line in tables.stepped(rows))


def test_every_row_is_in_the_results():
    text = PATH.read_text()
    assert [t.key for t in TASKS if t.piece != "c" and t.key != kernels.CEILINGS and f"| {t.name} |" not in text] == []
    assert all(f"| {steps.title(*step)} |" in text for step in steps.STEPS)
    assert json.loads(json.dumps([t.key for t in TASKS])) == list(dict.fromkeys(t.key for t in TASKS))


@pytest.mark.torch
def test_peers_compute_the_same(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(theirs, "module", lambda: torch)
    monkeypatch.setattr(theirs, "DEVICE", "cpu")
    for case in kernels.CASES:
        roots, inputs, arrays = case.program(dry=True)
        found = nf.evaluate(roots, dict(zip(inputs, arrays, strict=True)))
        for name, peer in case.peers.items():
            wanted = peer(torch)(*kernels.given_to_peers(arrays))
            pairs = wanted if isinstance(wanted, (tuple, list)) else [wanted]
            assert kernels.compared(case, found, pairs, figures := {}) == [], f"{case.name} {name}: {figures}"
    off = [np.asarray(a, np.float64) + 1 for a in found]
    assert kernels.compared(case, off, pairs, {}) == ["WRONG: differs from PyTorch"]


@NEEDS_EMULATOR
@pytest.mark.tvm
@pytest.mark.torch
def test_a_dry_run_of_calls_of_another_library(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(trials, "TRIED", 0.01)
    assert command.main(["--dry", "--only", "^e/gru and gradients, T 35", "--out", str(tmp_path)]) == 0
    (found,) = read_rows([tmp_path / "rows.jsonl"]).values()
    assert found.is_done and found.figures.keys() == {cells.OURS, cells.THEIRS} and min(found.figures.values()) > 0
    assert found.said.startswith("torch.gru of 3 steps and its gradient: ")


def test_calls_of_another_library_as_a_table():
    (name, *_) = (t.name for t in cells.TASKS)
    figures = {cells.OURS: 2e-3, cells.THEIRS: 1e-3, cells.ALONE: 3e-3}
    (shown,) = [
        line for line in tables.handed({f"e/{name}": row("", said="called", **figures)}) if f"| {name} |" in line
    ]
    assert shown == f"| {name} | 2.000 | 1.000 | 2.00 | 3.000 | called |"
    assert "no PyTorch here" in tables.handed({f"e/{name}": row("", said=theirs.ABSENT)})[2]


@pytest.mark.torch
def test_a_module_of_a_peer_computes_the_same(monkeypatch):
    torch = pytest.importorskip("torch")
    assert torch.cuda.is_available() or cells.ours("lstm", cells.SMALL, True, Setting()).said == theirs.ABSENT
    monkeypatch.setattr(theirs, "module", lambda: torch)
    monkeypatch.setattr(theirs, "DEVICE", "cpu")
    for cell in cells.CELLS:
        run, leaves = cells.module(cell, cells.SMALL, True)
        outputs, given, parameters = cells.program(cell, cells.SMALL, True)
        arrays = [t.detach().numpy() for t in leaves]
        _, *wanted = nf.evaluate(outputs, dict(zip((given, *parameters), arrays, strict=True)))
        for a, b in zip(run(), wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-6)


@pytest.mark.torch
def test_a_step_of_a_peer(monkeypatch):
    torch = pytest.importorskip("torch")
    assert torch.cuda.is_available() or steps.peer("mi_lstm_mnist", 2, "fp32", "eager", Setting()).said == theirs.ABSENT
    monkeypatch.setattr(theirs, "module", lambda: torch)
    monkeypatch.setattr(theirs, "DEVICE", "cpu")
    model = build_model("mi_lstm_mnist", 2, steps=2, inputs=3, hidden=4)
    (wanted,) = nf.evaluate([model.loss], {**dict(zip(model.inputs, model.example(), strict=True)), **model.initial()})
    for precision in ("fp32", "tf32", "bf16"):
        loss, step = theirs.step_of(model, "mi_lstm_mnist", "eager", precision)
        near = 1e-2 if precision == "bf16" else 1e-5
        assert loss == pytest.approx(float(wanted), rel=near) and step().item() < loss
        assert torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")
    theirs.torch()

"""Steps beside peers: medians and ratios by rounds, tables, who is missing and why, and one worker from end to end."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from benchmarks.steps import __main__ as command
from benchmarks.steps import compare, contenders, worker
from neoflow.contest import process
from neoflow.contest.contenders import PEERS, build_expert, environment
from neoflow.models import build_model
from neoflow.report.roofline import Work
from neoflow.roofs import Level, Roofs

FOUND = compare.Comparison(
    "capsnet",
    16,
    floor=0.010,
    foreign=0.01,
    first={"neoflow": 3.0, "PyTorch": 0.5, "torch.compile expert": 40.0},
    again={"neoflow": 0.4, "torch.compile expert": 9.0},
    blocks={
        "neoflow": [0.020, 0.022, 0.060],
        "before": [0.040, 0.044, 0.050],
        "PyTorch": [0.050, 0.040, 0.110],
        "PyTorch expert": [0.040, 0.041, 0.042],
    },
)


def test_times_are_medians_over_blocks_and_ratios_over_rounds():
    assert FOUND.seconds("neoflow") == 0.022 and FOUND.seconds("JAX") is None
    assert FOUND.ratio("neoflow", "PyTorch") == pytest.approx(0.06 / 0.11)
    assert FOUND.ratio("neoflow", "JAX") is None and FOUND.ratio("neoflow", None) is None
    assert FOUND.best(command.NAMES) == "PyTorch expert" and FOUND.best(["JAX"]) is None
    assert FOUND.share("neoflow") == pytest.approx(0.010 / 0.022)
    assert json.loads(json.dumps(FOUND.to_json()))["blocks"]["before"] == [0.040, 0.044, 0.050]


def test_tables():
    [head, rule, row] = command.step_table([FOUND])
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row == (
        "| capsnet b16 | 22.00 | 44.00 | 50.00 | 41.00 | - | - | PyTorch expert | 0.54 | 1.07 | 0.50 | 45% | 23% |"
    )
    [head, rule, row] = command.compile_table([FOUND])
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row == "| capsnet b16 | 3.00 | 0.40 | 0.50 | - | 40.00 | 9.00 | - |"


def test_a_floor_is_the_longer_of_arithmetic_and_memory_of_the_level_that_holds_it():
    roofs = Roofs(100.0, (Level("L2", 1000, 50.0), Level("memory", None, 10.0)))
    assert Work(2, 100, 1000).floor(roofs) == pytest.approx(2 * 20e-9)
    assert Work(2, 100, 1001).floor(roofs) == pytest.approx(2 * 100.1e-9)
    assert Work(1, 10_000, 1000).floor(roofs) == pytest.approx(100e-9)


def test_expert_setting(tmp_path):
    said = build_expert(tmp_path, ("absent-cc", "absent-c++"))
    assert said == "no absent-cc or absent-c++ here to build the library that enables MKL's AVX-512 on AMD"
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\necho no such machine >&2\nexit 1\n")
    broken.chmod(0o700)
    assert "no such machine" in str(build_expert(tmp_path, (str(broken),)))
    expert = next(c for c in PEERS if c.expert)
    found = environment(expert, tmp_path, tmp_path / "library.so")
    assert found["LD_PRELOAD"] == str(tmp_path / "library.so")
    assert "glibc.malloc.hugetlb=1" in found["GLIBC_TUNABLES"].split(":")
    assert "LD_PRELOAD" not in environment(contenders.OURS, tmp_path, None)


@pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("cc") is None, reason="built with a C compiler")
def test_the_library_answers_the_vendor_test_with_yes(tmp_path):
    import ctypes

    library = build_expert(tmp_path)
    assert ctypes.CDLL(str(library)).mkl_serv_intel_cpu_true() == 1


def test_contenders():
    assert [c.name for c in contenders.contenders(None)] == ["neoflow", *command.NAMES]
    before = contenders.contenders(Path("/tmp"))[1]
    assert (before.name, before.kind) == ("before", "neoflow")
    assert (
        contenders.root_of(before, Path("/tmp")) == Path("/tmp").resolve() != contenders.root_of(PEERS[0], Path("/tmp"))
    )
    assert all(c.kind in worker.KINDS for c in contenders.contenders(Path("/tmp")))
    assert all(key.partition("/")[2].isdecimal() for key in command.MODELS)


def test_usage_of_others():
    begun, later = process.Usage(100.0, 50.0, 10.0), process.Usage(120.0, 60.0, 15.0)
    assert begun.foreign_until(later) == pytest.approx(5 / 20)
    assert begun.foreign_until(begun) == 0
    now = process.Usage.now([os.getpid()])
    assert 0 < now.own <= now.busy <= now.total
    assert process.on_processor(os.getpid()) > 0 and process.on_processor(2**22 + 1) == 0


class Doubling:
    """A step whose gradient is `factor` times what it should be."""

    def __init__(self, factor=1.0):
        self.factor, self.resets, self.steps = factor, 0, 0

    def reset(self):
        self.resets += 1

    def step(self):
        self.steps += 1
        return 1.0

    def gradients(self):
        return 1.0, {"w": self.factor * np.ones(4)}


def test_a_contender_is_checked_before_it_is_timed():
    arrays = {"loss": np.array(1.0), "g/w": np.ones(4)}
    assert worker.check(Doubling(1.01), arrays) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="the gradient of w is off by 1"):
        worker.check(Doubling(2.0), arrays)
    with pytest.raises(ValueError, match=r"the loss is 1.0, not 1.1"):
        worker.check(Doubling(), {**arrays, "loss": np.array(1.1)})
    with pytest.raises(ValueError, match=r"gradients of \['w'\], not of \['v'\]"):
        worker.check(Doubling(), {"loss": np.array(1.0), "g/v": np.ones(4)})


def test_a_block_begins_from_the_first_values():
    found = Doubling()
    answer = worker.block(found, 0.01)
    assert found.resets == 1 and found.steps > answer["steps"] >= 1 and answer["step"] > 0


@pytest.fixture
def arrays(tmp_path):
    """What `reference` writes for the smallest step there is, by NumPy."""
    model = build_model("mi_lstm", 2)
    x, labels = model.example()
    feeds = {**model.initial(), model.x: x, model.labels: labels}
    loss, *values = nf.evaluate([model.loss, *nf.grad(model.loss, list(model.parameters.values()))], feeds)
    named = {f"p/{n}": value for n, value in model.values().items()}
    named |= {f"g/{n}": value for n, value in zip(model.parameters, values, strict=True)}
    np.savez(tmp_path / "arrays.npz", x=x, labels=labels, loss=loss, **named)
    return tmp_path / "arrays.npz"


def request_of(kind, arrays, **changed):
    given = {"kind": kind, "root": str(contenders.ROOT), "arrays": str(arrays)}
    return {**given, "file": "mi_lstm", "variant": "", "batch": 2, **changed}


@pytest.mark.tvm
@pytest.mark.torch
@pytest.mark.slow
def test_workers_answer_in_turn_and_are_quiet_between(arrays, tmp_path):
    pytest.importorskip("torch")
    values = environment(contenders.OURS, tmp_path, None)
    found = {kind: process.Worker(request_of(kind, arrays), values, compare.PROGRAM) for kind in ("neoflow", "torch")}
    try:
        blocks = compare.rounds(found, 0.1, 0.05)
        process.wait_until_quiet(found.values())
    finally:
        for each in found.values():
            each.close()
    assert all(w.ready["error"] < 1e-4 and w.ready["first_step"] > 0 for w in found.values())
    assert {name: len(times) for name, times in blocks.items()} == {"neoflow": 3, "torch": 3}
    assert all(0 < t < 10 for times in blocks.values() for t in times)


@pytest.mark.torch
def test_a_worker_that_cannot_run_says_why(arrays, tmp_path):
    pytest.importorskip("torch")
    values = environment(contenders.OURS, tmp_path, None)
    with pytest.raises(process.WorkerFailure, match=r"ModuleNotFoundError: .*torch_absent"):
        process.Worker(request_of("torch", arrays, file="absent"), values, compare.PROGRAM)
    with pytest.raises(process.WorkerFailure, match="its process ended with status 1"):
        process.Worker(request_of("abacus", arrays), values, compare.PROGRAM)


def test_wrong_use(capsys, monkeypatch):
    for arguments, message in (
        (["--models", "capsnet"], "a model is NAME/BATCH, not 'capsnet'"),
        (["--only", "abacus"], "there is no contender abacus"),
    ):
        monkeypatch.setattr(sys, "argv", ["steps", *arguments])
        monkeypatch.setattr(command, "measure_machine", lambda: None)
        with pytest.raises(SystemExit):
            command.main()
        assert message in capsys.readouterr().err

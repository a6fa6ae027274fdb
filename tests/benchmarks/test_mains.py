"""Every benchmark begins: its options are read, its cases are made, and what is quick to measure is measured."""

import math
import sys
from importlib import import_module

import numpy as np
import pytest

import neoflow as nf

pytest.importorskip("torch")
from benchmarks import foreign, grad_speed, gradients, kernels, packages, runtime
from neoflow.models import build_model, find_model
from neoflow.train.step import train_step

pytestmark = [pytest.mark.torch, pytest.mark.tvm]
WITH_OPTIONS = (
    "algorithms",
    "chunks",
    "cold",
    "foreign",
    "fusion",
    "gallery.__main__",
    "gallery.indexed",
    "gpu.__main__",
    "kernels",
    "measuring",
    "gradients",
    "models.__main__",
    "operators",
    "packages",
    "recurrences.__main__",
    "runtime",
    "steps.__main__",
    "torch_operator",
    "tuning",
)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_the_options(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(f"benchmarks.{name}").main()
    assert not ended.value.code and "--write" in capsys.readouterr().out


def test_a_kernel():
    case = next(c for c in kernels.cases() if c.name == "softmax 64x512")
    ours, theirs, ratio, error = kernels.measure(case, rounds=1)
    assert min(ours, theirs, ratio) > 0 and error < 1e-5


def test_the_chain_of_kernels(monkeypatch):
    monkeypatch.setattr(foreign, "CHAIN", 20)
    assert 0 < foreign.chain_seconds(1, 0.01) < math.inf


def test_the_empty_kernels():
    x = nf.placeholder((4, 5), name="x")
    y = nf.placeholder((512, 256), name="y")
    compiled = nf.compile([nf.sum(x * x), nf.sum(y)], [x, y]).compiled
    assert {len(k.entries) for k in compiled.plan.kernels} == {1, 2}
    empty = runtime.emptied(compiled)
    assert len(empty(np.ones((4, 5), np.float32), np.ones((512, 256), np.float32))) == 2


def test_a_step_within_half_of_its_memory(monkeypatch):
    """What fits is timed beside what has no limit; what does not fit says so in its row."""
    monkeypatch.setattr(runtime, "block", lambda step: float(bool(step())))
    whole = train_step(build_model("capsnet", 1)).compiled.plan.arena_bytes
    assert runtime.limited_time("capsnet", 1, 10 * whole, rounds=1) == 1.0
    monkeypatch.setattr(runtime, "LIMITED", [("capsnet", 1)])
    grown = {"torch": 20 * whole, "neoflow": 11 * whole}
    monkeypatch.setattr(runtime, "in_processes", lambda framework, *_: {"allocated": 2048, "grown": grown[framework]})
    _, _, refused, fitted = runtime.limited_table()
    assert "the least that works is" in refused and refused.count("missed") == 1
    assert fitted.endswith("| 1.00 | 1.25 | reached |")
    sizes = [int(cell) for cell in fitted.split(" | ")[1:4]]
    wanted = [round(n * whole / runtime.MIB) for n in (20, 8, 11)]
    assert sizes == wanted, "a limit lower by what is too much, twice"


def test_a_package_and_its_first_result(tmp_path):
    cells = packages.row("capsnet", packages.lean(tmp_path), runs=1).split(" | ")
    assert cells[0] == "| capsnet b1" and float(cells[1]) > 1000 and ".safetensors" in cells[2]
    assert 0 < float(cells[-1].rstrip(" |")) < float(cells[3]) < 60


def test_the_models_have_their_names():
    others = (*runtime.DISPATCHED, *runtime.HELD, *runtime.LIMITED, *foreign.BETWEEN, *foreign.BUSY)
    for name in {*gradients.MODELS, *(name for name, _ in others)}:
        path, _ = find_model(name)
        assert path.exists()


def test_a_gradient():
    assert grad_speed.measure("LSTM, 2 layers, 20 steps")["grad"] > 0

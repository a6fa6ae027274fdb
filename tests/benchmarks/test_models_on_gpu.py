"""The model table of a GPU: its cells are kept and shown apart, its contenders run there, without one nothing is
measured. The GPU is the emulator, and PyTorch for CPUs stands in the place of PyTorch for CUDA."""

from dataclasses import replace

import pytest

from benchmarks import results
from benchmarks.models import __main__ as command
from benchmarks.models import tables
from benchmarks.models.cells import BATCHES, Cell, keep, path_of, read, read_shorter, tasks
from neoflow.contest import hall, turns
from neoflow.contest.contenders import ON_A_GPU, OURS
from neoflow.contest.sides import Task
from neoflow.errors import RuntimeFault
from tests.contest.test_on_gpu import PEER, TINY
from tests.emulator.driver import emulated

HERE = Task("capsnet", 1, "train")
THERE = replace(HERE, target="cuda:sm_90")


def cell(task, seconds=1.0, **changed):
    given = {"seconds": {"neoflow": seconds, "torch": 2.0}, "ratios": {"neoflow": 1.0, "torch": seconds / 2}}
    given |= {"target": task.target, "on": "" if task.target == "cpu" else "H200 (sm_90), CUDA 13.0", "revision": "abc"}
    return Cell(task.model, task.batch, task.mode, task.tune, "2026-01-01", **{**given, **changed})


@pytest.fixture
def without_a_gpu(monkeypatch):
    def absent():
        raise RuntimeFault("there is no NVIDIA driver on this machine (libcuda.so.1)")

    monkeypatch.setattr("neoflow.devices.gpu", absent)


def test_cells_of_one_target_are_not_those_of_another(tmp_path):
    other = replace(HERE, target="cuda:sm_80")
    found = {task: cell(task, n + 1.0) for n, task in enumerate((HERE, THERE, other))}
    for made in found.values():
        keep(tmp_path, made)
    assert {task: read(tmp_path, task) for task in found} == found and len(list(tmp_path.iterdir())) == 3
    path_of(tmp_path, other).write_text(path_of(tmp_path, THERE).read_text())  # renamed by hand
    assert read(tmp_path, other) is None


def test_a_shorter_search_is_one_on_the_same_target(tmp_path):
    keep(tmp_path, cell(replace(HERE, tune=10.0)))
    keep(tmp_path, cell(replace(THERE, tune=5.0)))
    assert read_shorter(tmp_path, replace(THERE, tune=60.0)).task == replace(THERE, tune=5.0)
    assert read_shorter(tmp_path, replace(HERE, tune=60.0)).task == replace(HERE, tune=10.0)
    assert read_shorter(tmp_path, replace(THERE, tune=60.0, target="cuda:sm_80")) is None


def test_who_takes_part():
    assert list(command.contenders_on("cuda:sm_90").values()) == [OURS, *ON_A_GPU]
    assert {t.target for t in tasks(target="cuda:sm_90")} == {"cuda:sm_90"}
    assert len(tasks(target="cuda:sm_90")) == len(tasks())


def test_a_target_has_its_architecture(monkeypatch):
    emulated(monkeypatch, architecture="sm_80")
    assert [command.target_of(t) for t in ("cpu", "cuda", "cuda:sm_90", "nvptx")] == [
        "cpu",
        "cuda:sm_80",
        "cuda:sm_90",
        "nvptx:sm_80",
    ]


def test_what_is_to_be_reached_on_a_gpu():
    said = tables.summary({t: None for t in tasks(target="cuda:sm_90")})
    assert "| not measured | 1.50 |" in said[3] and "| not measured | - |" in said[4]
    assert "| not measured | 1.80 |" in tables.summary({t: None for t in tasks()})[3]


def test_a_section_and_plots_of_its_own(tmp_path, monkeypatch):
    """That of the CPU stays as it is."""
    monkeypatch.setattr(results, "PATH", tmp_path / "RESULTS.md")
    monkeypatch.setattr(command, "FIGURES", tmp_path)
    command.publish({t: cell(t) if t == HERE else None for t in tasks()}, "here")
    before = (tmp_path / "RESULTS.md").read_text()
    command.publish(
        {t: cell(t) if t == THERE else None for t in tasks(target="cuda:sm_90")}, "there", target="cuda:sm_90"
    )
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.startswith(before.rstrip("\n")) and text.count("<!-- models -->") == 1
    added = text[len(before) :]
    assert "## Every model beside four peers, on cuda:sm_90\n" in added and "<!-- models-cuda-sm_90 -->" in added
    assert "H200 (sm_90), CUDA 13.0, " in added and "H200" not in before
    assert "figures/models-cuda-sm_90-train.svg" in added
    assert {p.name for p in tmp_path.glob("*.svg")} == {
        f"models{place}-{mode}.svg" for place in ("", "-cuda-sm_90") for mode in ("train", "infer")
    }
    assert "Training steps on cuda:sm_90" in (tmp_path / "models-cuda-sm_90-train.svg").read_text()


def nobody(*given):
    pytest.fail("measured")


def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch, without_a_gpu, capsys):
    monkeypatch.setattr(results, "PATH", tmp_path / "RESULTS.md")
    monkeypatch.setattr(command, "FIGURES", tmp_path)
    arguments = ["--target", "cuda", "--models", "^capsnet/1/", "--out", str(tmp_path)]
    for more in ([], ["--prepare"], ["--write"]):
        assert command.main([*arguments, *more], nobody) == 1
        said = capsys.readouterr()
        assert said.err == "nothing is measured: there is no NVIDIA driver on this machine (libcuda.so.1)\n"
    assert "no GPU was there when this was written: nothing is measured" in (tmp_path / "RESULTS.md").read_text()
    assert command.main([*arguments, "--list"], nobody) == 0
    assert capsys.readouterr().out.split() == ["capsnet/1/train", "capsnet/1/infer"]


def test_what_was_measured_elsewhere_is_published(tmp_path, monkeypatch, without_a_gpu):
    monkeypatch.setattr(results, "PATH", tmp_path / "RESULTS.md")
    monkeypatch.setattr(command, "FIGURES", tmp_path)
    keep(tmp_path, cell(THERE))
    arguments = ["--target", "cuda:sm_90", "--models", "^capsnet/1/train", "--out", str(tmp_path), "--write"]
    assert command.main(arguments, nobody) == 0
    assert "| capsnet b1 | 1000.00 | 2000.00 |" in (tmp_path / "RESULTS.md").read_text()


def test_a_target_that_there_is_not(capsys):
    with pytest.raises(SystemExit):
        command.main(["--target", "abacus"])
    assert "there is no target 'abacus'; there are cpu, cuda, nvptx and cuda:sm_80" in capsys.readouterr().err


@pytest.mark.tvm
@pytest.mark.torch
def test_a_cell_from_end_to_end(tmp_path, monkeypatch):
    """Each contender in its process."""
    pytest.importorskip("torch")
    emulated(monkeypatch)
    for folder, name, text in (("models", "tiny.py", TINY), ("benchmarks/peers", "torch_tiny.py", PEER)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hall, "PROGRAM", ("-m", "tests.contest.emulated"))
    monkeypatch.setattr(turns, "wait_until_quiet", lambda workers: None)  # times mean nothing here
    monkeypatch.setitem(BATCHES, "tiny", (2,))
    arguments = ["--target", "cuda", "--models", "^tiny/1/infer", "--only", "neoflow,torch"]
    arguments += ["--seconds", "0", "--block", "0", "--profile", "0.01", "--out", str(tmp_path / "kept")]
    assert command.main(arguments) == 0
    found = read(tmp_path / "kept", Task("tiny", 1, "infer", target="cuda:sm_80"))
    assert found.missing == {} and list(found.seconds) == ["neoflow", "torch"]
    assert found.on == "emulator (sm_80), CUDA 13.0" and found.kernels and found.floor > 0
    assert "data sheet" in found.roofs["origin"]

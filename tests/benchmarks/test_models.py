"""The model table: which cells there are, that they are kept and not measured again, what the tables and plots say."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from benchmarks import results
from benchmarks.models import __main__ as command
from benchmarks.models import figures, tables
from benchmarks.models.cells import BATCHES, PAPERS, Cell, keep, read, read_shorter, tasks
from neoflow.contest.contenders import OURS, PEERS
from neoflow.contest.sides import Task
from neoflow.models import find_model

KERNEL = {"label": "k", "calls": 2, "seconds": 0.03, "floor": 0.02, "limit": "memory", "schedule": "s"}
TIMES = {"neoflow": 0.040, "torch": 0.080, "torch-expert": 0.030, "jax": 0.050}


def cell(task, **changed):
    ratios = {key: TIMES["neoflow"] / t for key, t in TIMES.items()}
    given = {"seconds": TIMES, "ratios": ratios, "missing": {"inductor": "no g++"}, "kernels": (KERNEL,)}
    told = {"kernels": 3, "calls": 4}
    given |= {"told": told, "versions": {"torch": "2.13", "jax": "0.10"}, "revision": "abc", "foreign": 0.01}
    return Cell(task.model, task.batch, task.mode, task.tune, "2026-01-01", **{**given, **changed})


def test_the_cells_are_of_models_that_there_are():
    every = tasks()
    assert len(every) == len(set(every)) == sum(map(len, BATCHES.values())) + len(BATCHES)
    assert set(PAPERS) <= set(BATCHES)
    assert all(find_model(name)[1] == name for name in BATCHES)
    assert {t.batch for t in every if t.mode == "infer"} == {1}


def test_a_cell_is_kept(tmp_path):
    task = Task("capsnet", 1, "train")
    assert read(tmp_path, task) is None
    keep(tmp_path, cell(task))
    assert read(tmp_path, task) == cell(task) and read(tmp_path, Task("capsnet", 1, "train", 60.0)) is None
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps({"model": "capsnet"}))
    assert read(tmp_path, task) is None


def test_the_longest_search_that_was_shorter(tmp_path):
    task = Task("capsnet", 1, "train", 60.0)
    other = Task("capsnet", 16, "train", 30.0)
    for t in (replace(task, tune=10.0), replace(task, tune=20.0), replace(task, tune=90.0), other):
        keep(tmp_path, cell(t))
    keep(tmp_path, cell(replace(task, tune=40.0), seconds={}))  # neoflow was not measured
    assert read_shorter(tmp_path, task) == cell(replace(task, tune=20.0))
    assert read_shorter(tmp_path, replace(task, tune=10.0)) is None
    shown = {task: read_shorter(tmp_path, task), other: cell(other), replace(other, batch=2): None}
    assert tables.searched(shown, 30.0) == ["- After 20 seconds: capsnet b1 train."]


def test_a_row():
    [head, rule, *rows] = tables.table({Task("capsnet", 1, "train"): cell(Task("capsnet", 1, "train"))}, "train")
    assert head.count("|") == rule.count("|") == rows[0].count("|")
    assert rows == [
        "| capsnet b1 | 40.00 | 80.00 | 30.00 | not measured | 50.00 | 2.00 | PyTorch expert | 0.75 | 50% | 3 | 4 |"
    ]
    none = tables.row(Task("bert", 8, "train"), None)
    assert none.startswith("| bert b8 | not measured | - |") and none.count("|") == head.count("|")


def test_means_and_what_falls_short():
    cells = {t: cell(t) if t.model in ("capsnet", "bert") else None for t in tasks()}
    lines = tables.summary(cells)
    plain = "the paper's models, training, beside PyTorch as installed"
    assert f"| {plain} | 2 of 18 rows | 2.00 | 3.16 | missed | 4.00 |" in lines
    assert "| inference at batch 1, beside the best peer | 2 of 24 rows | 0.75 | 2.50 | missed | 1.50 |" in lines
    assert lines[-1].startswith("Slower than the best peer: capsnet b1 train (0.75), ")
    assert tables.summary({t: None for t in tasks()})[2].endswith("| not measured | 3.16 |  | - |")
    short = tables.short(cells)
    assert (
        short[1] == "capsnet b1 train: 0.75 times as fast as the best; 20.00 ms of 40.00 are the floors of its kernels."
    )
    assert any(line.startswith("| k | 2 | 30000 | 20000 | 67% |") for line in short)
    assert tables.notes(cells)[0] == "- capsnet b1 train: no torch.compile expert: no g++."


def test_a_plot_has_a_bar_for_each_ratio_there_is():
    made = [cell(Task("capsnet", 1, "train")), cell(Task("a<b", 1, "train"))]
    drawing = ElementTree.fromstring(figures.drawn("gains", made))
    bars = [e for e in drawing.iter() if e.tag.endswith("rect") and e.get("height") == str(figures.BAR - 1)]
    assert len(bars) == 2 * 3
    assert ElementTree.fromstring(figures.drawn("nothing", [])) is not None


def test_cells_are_measured_once_and_published(tmp_path, monkeypatch, capsys):
    done = []

    def perform(task, hall, setting):
        done.append((task, setting.seconds))
        return cell(task, seconds={} if len(done) == 2 else TIMES)

    arguments = ["--models", "^capsnet/1/", "--seconds", "1", "--out", str(tmp_path / "kept")]
    assert command.main(arguments, perform) == 0
    assert [t for t, _ in done] == [Task("capsnet", 1, "train"), Task("capsnet", 1, "infer")]
    monkeypatch.setattr(results, "PATH", tmp_path / "RESULTS.md")
    monkeypatch.setattr(command, "FIGURES", tmp_path)
    command.main([*arguments, "--write"], perform)  # neoflow was not measured in one of them
    assert [t for t, _ in done[2:]] == [Task("capsnet", 1, "infer")]
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| bert b8 | not measured |" in text and "torch 2.13, jax 0.10; measured 2026-01-01 (sources abc)" in text
    assert "figures/models-infer.svg" in text and (tmp_path / "models-train.svg").exists()
    capsys.readouterr()
    command.main([*arguments, "--list"], perform)
    assert not capsys.readouterr().out.strip() and len(done) == 3
    command.main([*arguments, "--mode", "infer", "--again", "--list"], perform)
    assert capsys.readouterr().out == "capsnet/1/infer\n"


def test_caches_are_filled_without_a_measurement(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "prepare", lambda task, hall: "neoflow 1.0 s")
    command.main(["--models", "capsnet/16/train", "--prepare", "--out", str(tmp_path / "kept")], None)
    assert "1 of 1: capsnet b16 train: neoflow 1.0 s" in capsys.readouterr().err
    assert not list((tmp_path / "kept").glob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "abacus"], "there is no contender abacus; there are neoflow, torch, torch-expert, inductor, jax"),
        (["--models", "("], "--models '(' is no regular expression"),
    ],
)
def test_wrong_use(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.tvm
def test_a_cell_from_end_to_end(tmp_path):
    arguments = ["--models", "mi_lstm_mnist/1/infer", "--only", "neoflow", "--seconds", "0.1", "--profile", "0.1"]
    assert command.main([*arguments, "--out", str(tmp_path)]) == 0
    found = read(tmp_path, Task("mi_lstm_mnist", 1, "infer"))
    assert list(found.seconds) == [OURS.key] and found.kernels and found.floor > 0 and not found.missing
    assert found.best() is None and found.gain(PEERS[0].key) is None

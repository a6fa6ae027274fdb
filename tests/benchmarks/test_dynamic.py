"""Training beside PyTorch over wall time: when we are ahead, the figure, what is kept."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace

import pytest

from benchmarks import dynamic
from benchmarks.dynamic import Run

OURS = Run("neoflow", 16, 4.0, tuple((4.0 + t, 1 + 20 * t, 0.05) for t in range(20)), ((5.0, "k: 2 -> 1 us"),))
SEARCHED = replace(OURS, beside=(0.055, 0.05))
THEIRS = Run("PyTorch", 16, 2.0, tuple((2.0 + t, 1 + 10 * t, 0.1) for t in range(22)))


def test_when_it_is_ahead():
    assert dynamic.ahead_per_step(OURS, THEIRS) == 5.0
    assert dynamic.ahead_in_total(OURS, THEIRS) == 7.0  # 1 + 20 (t - 4) > 1 + 10 (t - 2) from t = 6 on
    assert dynamic.ahead_in_total(THEIRS, OURS) is None and dynamic.ahead_per_step(THEIRS, OURS) is None
    assert THEIRS.steps_at(1.0) == 0 and THEIRS.steps_at(2.5) == 6 and THEIRS.steps_at(99.0) == 211


def test_what_is_kept_drawn_and_said(tmp_path, capsys):
    def perform(contender, key, seconds, share, cost):
        assert (seconds, share, cost) == (90.0, 0.25, 80.0)
        return (
            (SEARCHED if key == "a/16" else OURS)
            if contender == "neoflow"
            else THEIRS
            if key == "a/16"
            else Run(contender, 16, missing="no torch")
        )

    arguments = ["--models", "a/16,b/16", "--out", str(tmp_path), "--figures", str(tmp_path)]
    dynamic.main(arguments, perform)
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first
        == "| a/16 | 4.0 | 12 | 2.0 | 50.00 | 50.00 | 100.00 | 5.0 | 7.0 | 60 | 1.10x (50.00 to 55.00) | reached; "
        "1 kernels swapped in |"
    )
    assert second.endswith("no PyTorch: no torch |") and first.count("|") == second.count("|")
    tree = ElementTree.parse(tmp_path / "dynamic-a-16.svg")
    assert "ahead in total after 7.0 s" in "".join(tree.getroot().itertext())
    assert not (tmp_path / "dynamic-b-16.svg").exists()
    dynamic.main([*arguments, "--draw"], None)
    assert capsys.readouterr().out.splitlines() == [first, second]


def test_what_is_kept_without_the_cost_of_a_search_is_read(tmp_path):
    """As it was before that was measured."""
    said = asdict(OURS)
    del said["beside"]
    assert dynamic.from_json(json.loads(json.dumps(said))) == OURS and "| 60 | - | " in dynamic.row(
        "a/16", OURS, THEIRS
    )
    assert dynamic.from_json(json.loads(json.dumps(asdict(SEARCHED)))) == SEARCHED
    failed = dynamic.row("a/16", Run("neoflow", 16, missing="no"), THEIRS)
    assert failed.count("|") == dynamic.row("a/16", SEARCHED, THEIRS).count("|") == len(dynamic.HEADS) + 1


class Search:
    """One that makes a step take 3 s in place of 2, which comes to measure after some steps and ends after others."""

    def __init__(self, comes=4, ends=10**6):
        self.now, self.steps, self.goes, self.said = 0.0, 0, True, []
        self._comes, self._ends = comes, ends

    @property
    def told(self):
        return "told" if self.steps >= self._comes else ""

    @property
    def is_over(self):
        return self.steps >= self._ends

    def pause(self):
        self.goes = False
        self.said.append("pause")

    def resume(self):
        self.goes = True
        self.said.append("resume")

    def step(self):
        self.steps += 1
        self.now += 3.0 if self.goes else 2.0


def test_what_a_search_costs_is_measured_in_turns():
    search = Search()
    assert dynamic.beside(search.step, search, 1000.0, lambda: search.now) == (3.0, 2.0)
    assert search.said == ["resume", "pause", "pause", "resume"] * (dynamic.BLOCKS // 2) and dynamic.BLOCKS % 2 == 0
    assert search.now == pytest.approx(1000.0, rel=0.1)


@pytest.mark.parametrize("search", [Search(comes=10**6), Search(ends=20)])
def test_a_search_that_does_not_go_on_has_no_cost(search):
    assert dynamic.beside(search.step, search, 100.0, lambda: search.now) is None


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.torch
def test_processes_of_their_own():
    pytest.importorskip("torch")
    for contender in dynamic.CONTENDERS:
        found = dynamic.alone(contender, "mi_lstm_mnist/2", 30.0, 0.25, 8.0)
        assert (found.beside is None) == (contender != "neoflow")
        assert not found.missing and 0 < found.first < 30 and len(found.points) > 2
    assert "there is no model absent" in dynamic.alone("neoflow", "absent/1", 1.0, 0.25, 0.0).missing

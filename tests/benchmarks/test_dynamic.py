"""Training beside PyTorch over wall time: when we are ahead, the figure, what is kept."""

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import dynamic
from benchmarks.dynamic import Run

OURS = Run("neoflow", 16, 4.0, tuple((4.0 + t, 1 + 20 * t, 0.05) for t in range(20)), ((5.0, "k: 2 -> 1 us"),))
THEIRS = Run("PyTorch", 16, 2.0, tuple((2.0 + t, 1 + 10 * t, 0.1) for t in range(22)))


def test_when_it_is_ahead():
    assert dynamic.ahead_per_step(OURS, THEIRS) == 5.0
    assert dynamic.ahead_in_total(OURS, THEIRS) == 7.0  # 1 + 20 (t - 4) > 1 + 10 (t - 2) from t = 6 on
    assert dynamic.ahead_in_total(THEIRS, OURS) is None and dynamic.ahead_per_step(THEIRS, OURS) is None
    assert THEIRS.steps_at(1.0) == 0 and THEIRS.steps_at(2.5) == 6 and THEIRS.steps_at(99.0) == 211


def test_what_is_kept_drawn_and_said(tmp_path, capsys):
    def perform(contender, key, seconds, share):
        return OURS if contender == "neoflow" else THEIRS if key == "a/16" else Run(contender, 16, missing="no torch")

    arguments = ["--models", "a/16,b/16", "--out", str(tmp_path), "--figures", str(tmp_path)]
    dynamic.main(arguments, perform)
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first == "| a/16 | 4.0 | 12 | 2.0 | 50.00 | 50.00 | 100.00 | 5.0 | 7.0 | 60 | reached; 1 kernels swapped in |"
    )
    assert second.endswith("no PyTorch: no torch |") and first.count("|") == second.count("|")
    tree = ElementTree.parse(tmp_path / "dynamic-a-16.svg")
    assert "ahead in total after 7.0 s" in "".join(tree.getroot().itertext())
    assert not (tmp_path / "dynamic-b-16.svg").exists()
    dynamic.main([*arguments, "--draw"], None)
    assert capsys.readouterr().out.splitlines() == [first, second]


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.torch
def test_processes_of_their_own():
    pytest.importorskip("torch")
    for contender in dynamic.CONTENDERS:
        found = dynamic.alone(contender, "mi_lstm_mnist/2", 30.0, 0.25)
        assert not found.missing and 0 < found.first < 30 and len(found.points) > 2
    assert "there is no model absent" in dynamic.alone("neoflow", "absent/1", 1.0, 0.25).missing

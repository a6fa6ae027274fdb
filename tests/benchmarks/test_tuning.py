"""The ablations of the search, on a machine that is a formula."""

import pytest

from benchmarks import tuning
from benchmarks.synthetic import Synthetic
from neoflow.loops import Schedule
from neoflow.target import cpu_target
from neoflow.tune import Trial
from neoflow.tune.roofs import nominal


def test_every_way_is_a_column_and_every_kernel_a_row():
    [form] = [f for f in tuning.forms() if f.name == "columns"]
    target = cpu_target()
    table = tuning.ablate([form], target, Synthetic, trials=16, seeds=1, roofs=nominal(target))
    head, _, row, mean, _, said = table.lines()
    assert head == f"| kernel | {' | '.join(tuning.WAYS)} |" and row.startswith("| columns | ")
    values = [float(v) for v in row.split("|")[2:-1]]
    assert min(values) == 1.0 and len(values) == len(tuning.WAYS) and mean.split("|")[2:] == row.split("|")[2:]
    assert "Of 16 candidates drawn by chance" in said and said.endswith("; 0 were faster than their floors.")


def test_relatives_are_of_the_same_family():
    for form in tuning.forms():
        assert form.subgraph.family == form.relative.family and form.subgraph != form.relative, form.name


def test_what_the_filter_would_have_left_out():
    floors = {"a": 0.1, "b": 3.0, "c": 2.0, "d": 0.1}
    trials = [Trial(Schedule(n), "ok", s) for n, s in (("a", 1.0), ("b", 4.0), ("c", 0.5))]
    found = tuning.Filter()
    found.add([*trials, Trial(Schedule("d"), "crash")], lambda t: floors[t.schedule.template])
    assert found == tuning.Filter(candidates=4, dropped=2, better=2, lost=1, below=1)


@pytest.mark.parametrize(
    "arguments, said", [(["--only", "nothing"], "there is no kernel 'nothing'; there are product")]
)
def test_what_it_does_not_know(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tuning", *arguments])
    with pytest.raises(SystemExit):
        tuning.main()
    assert said in capsys.readouterr().err

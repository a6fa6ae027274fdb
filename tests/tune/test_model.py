import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

from benchmarks.synthetic import Synthetic
from neoflow.errors import ConfigError
from neoflow.loops import TEMPLATES, default, problem_of, space
from neoflow.tune import Limits, Trial, model, search
from neoflow.tune.describe import Columns
from neoflow.tune.model import MOST_TREES, TREES, Model, ModelWarning
from tests.tune.problems import GPU, TARGET, named, pool


def trials_of(subgraph, count, seed=0, machine=None):
    machine, rng = machine or Synthetic(), np.random.default_rng(seed)
    here = space(problem_of(subgraph), TARGET)
    return machine(subgraph, TARGET, list(dict.fromkeys(here.sample(rng) for _ in range(count))))


def trained(*names, count=150):
    made = Model()
    for name in names:
        made.learn(named()[name], TARGET, trials_of(named()[name], count))
    return made


def agreement(made, name, seed=7):
    """The correlation of ranks between scores and speeds of schedules it has not seen."""
    subgraph = named()[name]
    trials = trials_of(subgraph, 150, seed)
    scores = made.scores(problem_of(subgraph), TARGET, [t.schedule for t in trials])
    ranks = np.argsort(np.argsort(scores)), np.argsort(np.argsort([-t.seconds for t in trials]))
    return np.corrcoef(*ranks)[0, 1]


def test_it_learns_which_are_fast_and_that_helps_with_others():
    made = trained("product")
    assert agreement(made, "product") > 0.7
    assert agreement(made, "product again") > 0.6  # of which it knows nothing
    assert made.count > 100 and made.is_trained


def test_an_untrained_one_has_no_opinion():
    made, problem = Model(), problem_of(named()["product"])
    schedules = [t.schedule for t in trials_of(named()["product"], 5)]
    assert not made.is_trained and made.scores(problem, TARGET, schedules).tolist() == [0.0] * 5
    made.fit()
    assert not made.is_trained


def test_what_failed_ranks_last():
    made, trials = Model(), trials_of(named()["product"], 100)
    wide = [t.schedule["lanes"] == 16 if t.schedule.template == "contraction" else False for t in trials]
    outcomes = ["deadline", "crash", "wrong", "refused", "memory"]
    failed = [
        Trial(t.schedule, outcomes[n % 5], 1e-12 if n % 5 == 0 else None) if w else t
        for n, (t, w) in enumerate(zip(trials, wide, strict=True))
    ]
    made.learn(named()["product"], TARGET, failed)
    scores = made.scores(problem_of(named()["product"]), TARGET, [t.schedule for t in trials])
    assert scores[np.array(wide)].max() < np.median(scores[~np.array(wide)])


def test_it_begins_where_an_earlier_run_ended(tmp_path):
    path, made = tmp_path / "model", trained("product")
    path.write_bytes(made.to_bytes())
    again = model.load(path)
    assert again.is_trained and agreement(again, "product") == agreement(made, "product")
    again.learn(named()["columns"], TARGET, trials_of(named()["columns"], 40))
    assert agreement(again, "columns") > 0.5 and agreement(again, "product") > 0.6


@pytest.mark.slow
def test_it_does_not_grow_without_end(tmp_path):
    path = tmp_path / "model"
    for _ in range(MOST_TREES // TREES + 2):
        made = model.load(path)
        made.learn(named()["columns"], TARGET, trials_of(named()["columns"], 20))
        path.write_bytes(made.to_bytes())
    assert made.trees == MOST_TREES


def test_the_same_trials_give_the_same_trees():
    assert trained("columns").to_bytes() == trained("columns").to_bytes()


def test_without_a_file_it_is_new(tmp_path):
    assert not model.load(tmp_path / "none").is_trained


def changed(path, **more):
    head, _, trees = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps({**json.loads(head), **more}).encode() + b"\n" + trees)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda p: changed(p, schema=0), "is of version 0, not 1; learning begins anew"),
        (lambda p: changed(p, columns=["a"]), "is of other templates or knobs than there are now; learning begins"),
        (lambda p: changed(p, device="gpu"), "is of other templates or knobs than there are now; learning begins"),
        (lambda p: p.write_bytes(b"\xff{"), "is damaged: it does not begin with what it is of; learning begins anew"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "is damaged: its checksum is another; learning begins anew"),
        (lambda p: (p.unlink(), p.mkdir()), "cannot be read: .*; learning begins anew"),
    ],
)
def test_a_file_of_no_use_is_left_with_a_warning(tmp_path, change, said):
    path = tmp_path / "model"
    path.write_bytes(trained("columns", count=20).to_bytes())
    change(path)
    with pytest.warns(ModelWarning, match=said) as caught:
        made = model.load(path)
    assert len(caught) == 1 and not made.is_trained


def test_flipped_bytes_never_reach_the_trees(tmp_path):
    path, rng = tmp_path / "model", np.random.default_rng(0)
    data = trained("columns", count=20).to_bytes()
    for _ in range(40):
        flipped = bytearray(data)
        flipped[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = model.load(path)
        assert len(caught) == (0 if made.is_trained else 1)


def test_without_xgboost_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(
        ConfigError, match="needs XGBoost, which is not installed: pip install xgboost-cpu, or search w"
    ):
        Model()
    assert not model.is_available()


def test_one_that_cannot_be_imported_is_told_alike(tmp_path, monkeypatch):
    (tmp_path / "xgboost.py").write_text("raise ImportError('libgomp.so.1')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "xgboost", raising=False)
    made = Model()
    with pytest.raises(ConfigError, match="needs XGBoost, which is not installed"):
        made.take(b"")


def test_importing_the_search_does_not_import_xgboost():
    code = "import sys, neoflow, neoflow.tune, neoflow.tune.model; print('xgboost' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("target", [TARGET, GPU], ids=str)
def test_every_template_has_its_columns(target):
    columns = Columns(target.device)
    assert len(set(columns.names)) == len(columns.names)
    seen = set()
    for subgraph in pool(0):
        problem = problem_of(subgraph)
        schedule = default(problem, target)
        row = columns.row(problem, schedule, target)
        filled = {columns.names[n].split(":")[0] for n in np.flatnonzero(np.isfinite(row)) if ":" in columns.names[n]}
        seen.add(schedule.template)
        assert schedule.template in filled and not filled & (set(TEMPLATES) - {schedule.template})
        assert not np.isinf(row).any() and np.isfinite(row[: columns.names.index("intensity") + 1]).all()
    assert len(seen) == 4


@pytest.mark.slow
def test_a_model_from_another_subgraph_makes_a_better_beginning():
    """The best of the first batch, by a model of another size and by none: a geometric mean over machines."""
    ratios = []
    for seed in range(3):
        machine, made = Synthetic(seed), Model()
        made.learn(named()["product again"], TARGET, trials_of(named()["product again"], 150, machine=machine))
        first = [
            search(named()["product"], TARGET, machine, Limits(trials=8), seed=seed, model=m).best.seconds
            for m in (None, made)
        ]
        ratios.append(first[0] / first[1])
    assert np.exp(np.mean(np.log(ratios))) > 1.2

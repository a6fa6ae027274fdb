"""Records of tuning: what is asked of them, for whom, and for which edition of a template."""

import dataclasses
import math
import sqlite3
from contextlib import closing

import pytest

from neoflow.loops import TEMPLATES, Schedule, complete, default_schedule, legal, nearest, problem_of
from neoflow.target import Target
from neoflow.tune import Trial
from neoflow.tune.records import Records, RecordWarning, Verdict, sizes_of, trial_from, trial_json
from tests.tune.candidates import TARGET, product, softmax, trials


def first(name):
    return f"first {name}"


def second(name):
    return f"second {name}"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.sqlite"


def test_what_was_measured_is_there_for_others(path):
    subgraph, measured = product(), trials(product(), 20)
    assert Records(path, first).add(subgraph, TARGET, measured) is True
    records = Records(path, first)
    assert records.trials(subgraph, TARGET) == measured
    ok = [t for t in measured if t.outcome == "ok"]
    assert records.best(subgraph, TARGET) == min(ok, key=lambda t: t.seconds)
    assert records.to_measure(subgraph, TARGET) == [] and records.relatives(subgraph, TARGET) == []
    assert records.count() == {"trials": 20, "texts": 2, "verdicts": 0, "damaged": 0} and records.nbytes() > 0
    assert records.subgraph_text(subgraph.digest) == subgraph.to_text() and records.subgraph_text("0") is None


def test_each_subgraph_and_target_has_its_own(path):
    records, other = Records(path, first), dataclasses.replace(TARGET, threads=1)
    a, b, c = trials(product(), 3), trials(softmax(), 3), trials(product(), 3, 1, other)
    for subgraph, target, some in ((product(), TARGET, a), (softmax(), TARGET, b), (product(), other, c)):
        records.add(subgraph, target, some)
    assert records.trials(product(), TARGET) == a
    assert records.trials(softmax(), TARGET) == b
    assert records.trials(product(), other) == c
    assert records.trials(softmax(), other) == [] and records.best(softmax(), other) is None


def test_a_schedule_that_is_measured_again_has_its_last_time(path):
    records, (one, *rest) = Records(path, first), trials(product(), 4)
    records.add(product(), TARGET, [one, *rest])
    again = dataclasses.replace(one, outcome="ok", seconds=1e-6, reason="")
    records.add(product(), TARGET, [again])
    assert records.trials(product(), TARGET) == [*rest, again] and records.best(product(), TARGET) == again
    slower = dataclasses.replace(again, seconds=1.0)
    records.add(product(), TARGET, [slower])
    assert records.best(product(), TARGET) == min((t for t in rest if t.seconds), key=lambda t: t.seconds)


def test_a_changed_template_marks_its_own(path):
    names = ("contraction", "reduction")
    schedules = [complete(name, problem_of(product()), TARGET, {}) for name in names]
    measured = [Trial(s, "ok", 1e-3 * n) for n, s in enumerate(schedules, 1)]
    Records(path, first).add(product(), TARGET, measured)
    later = Records(path, lambda name: "second" if name == "contraction" else first(name))
    assert later.trials(product(), TARGET) == [measured[1]] and later.best(product(), TARGET) == measured[1]
    assert later.to_measure(product(), TARGET) == [schedules[0]]
    assert later.relatives(product(8, 8, 8), TARGET) == [(sizes_of(product()), measured[1])]
    later.add(product(), TARGET, measured[:1])
    assert later.best(product(), TARGET) == measured[0] and later.to_measure(product(), TARGET) == []


def test_a_template_that_is_no_more(path, monkeypatch):
    default = default_schedule(product(), TARGET)
    monkeypatch.setitem(TEMPLATES, "of old", TEMPLATES[default.template])
    Records(path, first).add(product(), TARGET, [Trial(dataclasses.replace(default, template="of old"), "ok", 1e-3)])
    monkeypatch.undo()
    records = Records(path, first)
    assert records.best(product(), TARGET) is None and records.to_measure(product(), TARGET) == []
    assert records.count()["trials"] == 1


def test_knobs_that_are_no_more_are_made_legal(path):
    default = default_schedule(product(), TARGET)
    odd = Schedule(default.template, (("a_knob_of_old", 7), *default.knobs[1:]))
    Records(path, first).add(product(), TARGET, [Trial(odd, "ok", 1e-3)])
    (found,) = Records(path, lambda name: "second").to_measure(product(), TARGET)
    assert found == odd
    assert legal(problem_of(product()), nearest(problem_of(product()), found, TARGET), TARGET).ok


def test_relatives_are_the_bests_at_other_sizes_the_most_similar_first(path):
    records = Records(path, first)
    for size in (512, 17, 64):
        records.add(product(size, 24, 32), TARGET, trials(product(size, 24, 32), 6, size))
    records.add(softmax(), TARGET, trials(softmax(), 6))
    found = records.relatives(product(), TARGET)
    assert [sizes[0] for sizes, _ in found] == [17, 64, 512]
    assert all(trial == records.best(product(sizes[0], 24, 32), TARGET) for sizes, trial in found)
    assert records.relatives(product(), dataclasses.replace(TARGET, threads=1)) == []


def test_what_others_say_is_measured_before_it_is_believed(path):
    records, theirs = Records(path, first), trials(product(), 6)
    assert records.add_foreign(product(), TARGET, theirs, "first contraction") == 6
    assert records.add_foreign(product(), TARGET, theirs) == 0
    assert records.trials(product(), TARGET) == [] and records.best(product(), TARGET) is None
    assert records.relatives(product(8, 8, 8), TARGET) == []
    ok = sorted((t for t in theirs if t.outcome == "ok"), key=lambda t: t.seconds)
    assert records.to_measure(product(), TARGET) == [t.schedule for t in ok]
    mine = dataclasses.replace(ok[0], seconds=0.5)
    records.add(product(), TARGET, [mine])
    assert records.best(product(), TARGET) == mine and len(records.to_measure(product(), TARGET)) == len(ok) - 1
    assert records.add_foreign(product(), TARGET, [ok[0]]) == 0
    assert records.best(product(), TARGET) == mine


def test_entries_are_whole(path):
    records = Records(path, first)
    for subgraph in (product(), softmax()):
        records.add(subgraph, TARGET, trials(subgraph, 4))
    records.add_foreign(product(8, 8, 8), TARGET, trials(product(8, 8, 8), 2), "theirs")
    entries = list(records.entries())
    assert len(entries) == 10 and {e.target for e in entries} == {TARGET.to_text()}
    assert Target.from_text(entries[0].target) == TARGET
    ours = [e for e in entries if e.is_own]
    assert len(ours) == 8 and all(records.is_present(e) for e in ours)
    assert {e.subgraph for e in entries} == {s.to_text() for s in (product(), softmax(), product(8, 8, 8))}
    assert not any(records.is_present(e) for e in entries if not e.is_own)


def test_a_search_that_was_ended_measures_nothing_again(path):
    """What a search asks first: only what is not there is measured."""
    wanted = trials(product(), 12)
    Records(path, first).add(product(), TARGET, wanted[:7])
    records = Records(path, first)
    known = {t.schedule for t in records.trials(product(), TARGET)}
    left = [t for t in wanted if t.schedule not in known]
    assert left == wanted[7:]


@pytest.mark.parametrize(
    "changed",
    [
        {"outcome": "splendid"},
        {"outcome": "wrong"},
        {"seconds": None},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": True},
        {"spread": -0.1},
        {"spread": math.nan},
        {"spread": "wide"},
        {"reason": None},
        {"schedule": None},
        {"schedule": {"template": 3, "knobs": {}}},
        {"schedule": {"template": "map", "knobs": {"lanes": 1.5}}},
        {"schedule": {"template": "map", "knobs": {"lanes": None}}},
        {"schedule": {"template": "map", "knobs": [1]}},
        {"schedule": {"template": "rows", "knobs": {}, "inner": 3}},
    ],
)
def test_what_is_no_trial(changed):
    said = trial_json(Trial(default_schedule(product(), TARGET), "ok", 1e-3))
    assert trial_from(said).seconds == 1e-3
    with pytest.raises(ValueError, match=r"no trial|no schedule|outcome|a spread of"):
        trial_from({**said, **changed})


def test_a_trial_that_says_nothing_is_not_kept(path):
    with pytest.raises(ValueError, match="outcome 'ok' with None seconds"):
        Records(path, first).add(product(), TARGET, [Trial(default_schedule(product(), TARGET), "ok")])


def test_sizes_are_alike_in_a_family():
    a, b = product(16, 24, 32), product(5, 6, 7)
    assert a.family == b.family and sizes_of(a) == (16, 24, 24, 32, 16, 32, 24) and sizes_of(b) == (5, 6, 6, 7, 5, 7, 6)
    assert len(sizes_of(softmax())) == len(sizes_of(softmax(11, 60)))


def test_a_verdict_is_kept_for_others_until_a_template_changes(path):
    usual, other = (t.schedule for t in trials(product(), 2))
    said = Verdict({"a" * 64: usual, "b" * 64: other}, {"whole": 1e-3})
    assert Records(path, first).keep_verdict("program", TARGET, Verdict({"a" * 64: other}, {}))
    assert Records(path, first).keep_verdict("program", TARGET, said)
    records = Records(path, first)
    assert records.verdict("program", TARGET) == said and records.count()["verdicts"] == 1
    assert records.verdict("another", TARGET) is None
    assert records.verdict("program", dataclasses.replace(TARGET, threads=1)) is None
    assert Records(path, second).verdict("program", TARGET) is None
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE verdicts SET value = replace(value, 'whole', 'half')")
        connection.commit()
    with pytest.warns(RecordWarning, match="1 rows of .* are damaged"):
        assert Records(path, first).verdict("program", TARGET) is None


def test_a_file_from_before_there_were_verdicts_takes_them(path):
    measured = trials(product(), 3)
    assert Records(path, first).add(product(), TARGET, measured)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE verdicts")
    records = Records(path, first)
    assert len(records.trials(product(), TARGET)) == len(measured) and records.verdict("program", TARGET) is None
    assert records.keep_verdict("program", TARGET, Verdict({}, {})) and records.verdict("program", TARGET)

"""Schedules as JSON lines: what goes out comes in, to be measured again; whatever else a line says is refused."""

import dataclasses
import json

import pytest

from neoflow.loops import default_schedule
from neoflow.target import Target
from neoflow.tune import Trial
from neoflow.tune.exchange import LINE, NAMED, export_lines, import_lines, line_sum
from neoflow.tune.records import Records
from tests.tune.candidates import TARGET, product, softmax, trials


@pytest.fixture
def here(tmp_path):
    """Records with trials of two subgraphs."""
    records = Records(tmp_path / "here.sqlite", lambda name: f"first {name}")
    for subgraph in (product(), softmax()):
        records.add(subgraph, TARGET, trials(subgraph, 10))
    return records


@pytest.fixture
def there(tmp_path):
    return Records(tmp_path / "there.sqlite", lambda name: f"second {name}")


def encoded(lines):
    return [line.encode() for line in lines]


def test_what_goes_out_comes_in_to_be_measured(here, there):
    lines = encoded(export_lines(here))
    ok = {s: sorted((t for t in trials(s, 10) if t.seconds), key=lambda t: t.seconds) for s in (product(), softmax())}
    assert len(lines) == sum(map(len, ok.values()))
    done = import_lines(there, lines)
    assert (done.new, done.known, done.refused, done.reasons) == (len(lines), 0, 0, ())
    for subgraph, measured in ok.items():
        assert there.to_measure(subgraph, TARGET) == [t.schedule for t in measured]
        assert there.best(subgraph, TARGET) is None and there.trials(subgraph, TARGET) == []
    again = import_lines(there, [*lines, b"", b"  \n"])
    assert (again.new, again.known, again.refused) == (0, len(lines), 0)
    assert list(export_lines(there)) == []  # what was never measured here is not passed on


def test_the_best_of_each(here):
    said = [json.loads(line) for line in export_lines(here, best=2)]
    assert sorted(s["subgraph"] for s in said) == sorted([product().to_text(), softmax().to_text()] * 2)
    assert said[0]["seconds"] <= said[1]["seconds"] and Target.from_text(said[0]["target"]) == TARGET


def test_nothing_of_a_template_that_has_changed(here):
    here.close()
    assert list(export_lines(Records(here.path, lambda name: "second"))) == []


def line(**changes):
    """A line that is right, but for changes; its sum is right."""
    schedule = default_schedule(product(), TARGET)
    said = {
        **{"neoflow": "schedule", "version": 1, "subgraph": product().to_text(), "target": TARGET.to_text()},
        **{"template": "x", "schedule": json.loads(schedule.to_json()), "outcome": "ok", "seconds": 1e-3},
        **{"spread": 0.0, "reason": "", **changes},
    }
    said = {key: value for key, value in said.items() if value is not ...}
    return json.dumps({**said, "sum": line_sum(said)}).encode()


def test_that_line(there):
    assert import_lines(there, [line()]).new == 1


KNOBS = json.loads(default_schedule(product(), TARGET).to_json())["knobs"]
TEMPLATE = default_schedule(product(), TARGET).template
REFUSED = {
    "no JSON": (b"{", "JSONDecodeError"),
    "no text": (b"\xff\xfe\x00", "Unicode"),
    "no object": (b"[1]", "it is no schedule of neoflow"),
    "another thing": (line(neoflow="poem"), "it is no schedule of neoflow"),
    "deep": (b"[" * 100_000, "RecursionError"),
    "long": (b" " * LINE + line(), "it has more than 1048576 bytes"),
    "a later version": (line(version=2), "it is of version 2, and this neoflow reads 1"),
    "a bit changed": (line().replace(b'"ok"', b'"oK"'), "it is damaged: its sum is another one"),
    "no sum": (json.dumps({"neoflow": "schedule", "version": 1}).encode(), "it is damaged"),
    "no subgraph": (line(subgraph=...), "it lacks a subgraph"),
    "a number for a target": (line(target=3), "it lacks a subgraph, a target"),
    "a poem for a subgraph": (line(subgraph="roses are red"), "line 1, column 1"),
    "a target that is none": (line(target="neoflow target 1\nthreads = 'many'"), "column"),
    "one that was not ok": (line(outcome="wrong", seconds=None), "its schedule is none that was measured"),
    "no time": (line(seconds="fast"), "outcome 'ok' with 'fast' seconds"),
    "infinite": (line(seconds=float("inf")), "outcome 'ok' with inf seconds"),
    "no knobs": (line(schedule={"template": TEMPLATE, "knobs": {}}), "lacks the knob"),
    "no template": (line(schedule={"template": "origami", "knobs": {}}), "there is no template 'origami'"),
    "another's template": (
        line(schedule=json.loads(default_schedule(softmax(), TARGET).to_json())),
        "its schedule is not legal: template 'rows' does not fit",
    ),
    "a knob out of range": (
        line(schedule={"template": TEMPLATE, "knobs": {**KNOBS, "lanes": 10**6}}),
        "its schedule is not legal: lanes=1000000",
    ),
    "a schedule for another device": (
        line(target=Target("cuda", "sm_80").to_text()),
        "its schedule is not legal: template 'contraction' is for a cpu",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_line_that_is_refused_is_named(there, name):
    content, message = REFUSED[name]
    done = import_lines(there, [line(), content, line(seconds=2e-3)])
    assert (done.new, done.known, done.refused) == (1, 1, 1)
    assert done.reasons[0].startswith("line 2: ") and message in done.reasons[0]
    assert str(done).endswith(f"1 lines refused\n{done.reasons[0]}") and done.reasons[0].count("\n") == 0


def test_the_first_ones_are_named(there):
    done = import_lines(there, [b"x"] * (NAMED + 5))
    assert done.refused == NAMED + 5 and len(done.reasons) == NAMED + 1 and done.reasons[-1] == "and 5 more"


def test_what_is_imported_is_verified_when_it_was_measured_here(there):
    import_lines(there, [line()])
    schedule = default_schedule(product(), TARGET)
    mine = Trial(schedule, "ok", 2e-3)
    there.add(product(), TARGET, [mine])
    assert there.best(product(), TARGET) == mine and there.to_measure(product(), TARGET) == []
    assert import_lines(there, [line()]).known == 1 and there.best(product(), TARGET) == mine
    other = dataclasses.replace(TARGET, threads=1)
    assert there.best(product(), other) is None

"""Records of tuning under attack: kills at any moment, changed bytes, files of others' schedules.

What was acknowledged is there, what is there is what was written, and what is missing is missed with one warning. A
line of a file that is not right leaves nothing behind but its reason.
"""

import json
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from neoflow.tune.exchange import export_lines, import_lines, line_sum
from neoflow.tune.records import Records
from tests.tune.candidates import TARGET, product, softmax, trials

ROOT = Path(__file__).parents[2]
BAD = ("lost", "other", "measured again", "warnings", "failed")
"""of what kills may lead to"""
WORSE = ("false", "missing without a word", "more than one warning", "not usable afterwards", "warned again")
"""of what changed bytes may lead to"""


def counted(kind, folder, seed, count):
    command = [sys.executable, "-m", "tests.attack.recorder", kind, str(folder), str(seed), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return json.loads(done.stdout)


def survives(folder, seed, count):
    found = counted("killed", folder, seed, count)
    assert found["kills"] >= count and {name: found.get(name, 0) for name in BAD} == dict.fromkeys(BAD, 0), found
    return found["acknowledged"]


def test_writers_that_are_killed(tmp_path):
    survives(tmp_path, 1, 4)


@pytest.mark.slow
def test_200_kills_of_two_writers(tmp_path):
    assert survives(tmp_path, 0, 200) > 200


def endures(folder, seed, count):
    found = counted("flipped", folder, seed, count)
    assert {name: found.pop(name, 0) for name in WORSE} == dict.fromkeys(WORSE, 0), found
    assert not any(name.startswith("raw") for name in found), found
    assert sum(found[name] for name in found if name.startswith("of ")) == count


def test_bytes_that_are_changed(tmp_path):
    endures(tmp_path, 1, 10)


@pytest.mark.slow
def test_1000_bytes_that_are_changed(tmp_path):
    endures(tmp_path, 0, 1000)


# --- files of schedules


@pytest.fixture
def lines(tmp_path):
    """Lines that are right."""
    records = Records(tmp_path / "here.sqlite", lambda name: "first")
    for subgraph in (product(), softmax()):
        records.add(subgraph, TARGET, trials(subgraph, 6))
    return [line.encode() for line in export_lines(records)]


ODD = (None, True, 0, -1, 2**63, 10**30, 1e308, "", "a", "\0", "\ud800", [], {}, [[]], {"a": 1}, ["a"] * 3)
"""in place of what a line says"""


def places(said, path=()):
    """Where something stands in JSON."""
    inside = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(rng, line):
    """A line with something else in some place, a text of it changed, or bytes of it; most of them with their sum."""
    kind = rng.randrange(4)
    if kind == 0:
        at = rng.randrange(len(line))
        return line[:at] + bytes([rng.randrange(256)]) + line[at + rng.randrange(2) :]
    said = json.loads(line)
    said.pop("sum")
    if kind == 1:
        *way, last = rng.choice(list(places(said)))
        inner = said
        for key in way:
            inner = inner[key]
        inner[last] = rng.choice(ODD)
    elif kind == 2:
        name = rng.choice(("subgraph", "target"))
        words = said[name].split(" ")
        a, b = rng.randrange(len(words)), rng.randrange(len(words))
        words[a] = rng.choice((words[b], "0", "-1", "1", "2", "99999999999999999999", "in0", "["))
        said[name] = " ".join(words)
    else:
        knobs = said["schedule"]["knobs"]
        said["schedule"]["knobs"] = {rng.choice(list(knobs) or ["x"]): rng.choice((1, 7, True, "x")), **knobs}
        said["schedule"]["template"] = rng.choice(("map", "rows", "contraction", "gpu_map", "gpu_contraction", ""))
    return json.dumps({**said, "sum": line_sum(said)}).encode()


def imported(folder, lines, seed, count):
    """What comes in is legal, and everything else is counted."""
    rng, records = random.Random(seed), Records(folder / "there.sqlite", lambda name: "first")
    hostile = [mutated(rng, rng.choice(lines)) for _ in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = import_lines(records, hostile)
    assert done.new + done.known + done.refused == count - sum(not line.strip() for line in hostile)
    assert done.refused > count / 2 and records.count()["trials"] == done.new
    assert records.best(product(), TARGET) is None and records.trials(softmax(), TARGET) == []
    return done


def test_lines_of_strangers(tmp_path, lines):
    imported(tmp_path, lines, 1, 60)


@pytest.mark.slow
def test_4000_lines_of_strangers(tmp_path, lines):
    imported(tmp_path, lines, 0, 4000)

"""Of what was faster by itself a program takes what makes the whole of it faster."""

from functools import partial

import pytest

import neoflow as nf
from neoflow import instep, sifting, tuning
from neoflow.devices import resolve_target
from neoflow.errors import RuntimeFault
from neoflow.graph import make_graph, optimize
from neoflow.pipeline import compile_program
from neoflow.tune import Limits
from tests.tuning.test_schedules import Products, agrees, convolution

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.tvm]
NAMES = ("conv2d", "d_x", "d_w")
LIMITS = Limits(trials=1, rounding=16.0)


def taken(f):
    """The contractions that a program computes by another algorithm."""
    names = {t.name for t in f.compiled.graph.nodes}
    return {n for n in NAMES if any(name.startswith(f"{n}_") and name.endswith("_products") for name in names)}


class Whole:
    """A program takes a second, and these more with other algorithms for contractions of these names."""

    def __init__(self, monkeypatch, more, fails_at=None):
        self.more, self.timed, self.fails_at = more, [], fails_at
        monkeypatch.setattr(instep, "beside", self)

    def __call__(self, pair, place, seconds):
        if len(self.timed) == self.fails_at:
            raise RuntimeFault("there is no memory")
        self.timed.append(tuple(taken(f) for f in pair))
        return instep.Times(*(1.0 + sum(self.more[n] for n in names) for names in self.timed[-1]))


def searched(folder):
    outputs, inputs = convolution(64, 12)
    graph, target = optimize(make_graph(outputs, inputs)), resolve_target("cpu")
    assert tuning.algorithms(graph, target, LIMITS, folder, Products()).others == 3
    return outputs, inputs


def sift(outputs, inputs, seconds=1.0):
    """What is said, as a search does before it looks for schedules."""
    make = partial(compile_program, outputs, inputs)
    return sifting.sifted(make(), make, seconds)


def test_all_are_taken_where_the_whole_is_faster(own_cache, monkeypatch):
    whole = Whole(monkeypatch, dict.fromkeys(NAMES, -0.1))
    outputs, inputs = searched(own_cache)
    told = sift(outputs, inputs)
    later = nf.compile(outputs, inputs)
    assert whole.timed == [(set(), {*NAMES})] and later.explain("algorithms").count("winograd 2, at most") == 3
    assert told.text() == "1000.000 ms directly, 700.000 ms with other algorithms"


def test_those_that_slow_the_whole_down_are_left(own_cache, monkeypatch):
    whole = Whole(monkeypatch, {"conv2d": -0.2, "d_x": 0.5, "d_w": -0.1})
    outputs, inputs = searched(own_cache)
    monkeypatch.setattr(sifting.time, "monotonic", lambda: 0.0)
    said = sift(outputs, inputs)
    assert whole.timed[0] == (set(), {*NAMES}) and len(whole.timed) <= 1 + sifting.TRIES
    told = said.text().splitlines()
    assert told[0] == "1000.000 ms directly, 1200.000 ms with other algorithms" and len(told) == len(whole.timed)
    kept = [line for line in told[1:] if " kept: " in line]
    assert {name for line in kept for name in line.split(" kept: ")[0].split(", ")} == {"conv2d", "d_w"}
    assert kept[-1].endswith(" ms without, 700.000 ms with other algorithms")
    later = nf.compile(outputs, inputs)
    assert taken(later) == {"conv2d", "d_w"}
    said = {line.split(":")[0]: line for line in later.explain("algorithms").splitlines()}
    assert "d_x: direct, winograd 2 is faster by itself and not in the whole program (direct " in said["d_x"]
    assert "not in the whole program" not in said["conv2d"] + said["d_w"]
    agrees(later, outputs, inputs)
    graph = optimize(make_graph(outputs, inputs))
    again = tuning.algorithms(graph, resolve_target("cpu"), LIMITS, own_cache, Products())
    assert again.others == 3, "a search chooses again"


def test_none_is_taken_where_no_part_is_faster_and_no_more_are_tried_than_that(own_cache, monkeypatch):
    whole = Whole(monkeypatch, dict.fromkeys(NAMES, 0.01))
    outputs, inputs = searched(own_cache)
    monkeypatch.setattr(sifting.time, "monotonic", lambda: 0.0)
    sift(outputs, inputs)
    assert len(whole.timed) == 1 + sifting.TRIES and all(usual == set() for usual, _ in whole.timed)
    later = nf.compile(outputs, inputs)
    assert taken(later) == set() and later.explain("algorithms") == ""


def test_when_the_time_is_over_one_part_was_tried(own_cache, monkeypatch):
    whole = Whole(monkeypatch, dict.fromkeys(NAMES, 0.01))
    outputs, inputs = searched(own_cache)
    sift(outputs, inputs, 0.0)
    assert len(whole.timed) == 2 and len(whole.timed[1][1]) == 2, "of which most is expected"


@pytest.mark.parametrize("fails_at", [0, 2])
def test_what_cannot_be_timed_leaves_what_was_found_until_then(own_cache, monkeypatch, fails_at):
    Whole(monkeypatch, {"conv2d": -0.2, "d_x": -0.2, "d_w": 0.5}, fails_at)
    outputs, inputs = searched(own_cache)
    assert sift(outputs, inputs) is None
    assert taken(nf.compile(outputs, inputs)) == (set() if fails_at == 0 else {"conv2d", "d_x"})


def test_what_is_expected_most_of_comes_first():
    assert sifting._halves("abcde") == [("a", "b", "c"), ("d", "e")]
    assert sifting._halves("a") == []

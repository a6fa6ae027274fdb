from dataclasses import replace

import pytest

from neoflow.loops import Schedule
from neoflow.tune import Trial
from neoflow.tune.finals import MOST_NOISE, ROUNDS, again, chosen, combined, finalists


def schedule(*values):
    return Schedule("map", tuple((f"k{n}", v) for n, v in enumerate(values)))


DEFAULT = schedule(1, 1, 1)


def ok(s, seconds, spread=0.0):
    return Trial(s, "ok", seconds, spread)


def test_the_fastest_and_the_default_are_measured_again():
    trials = [ok(schedule(n, 0, 0), n) for n in (5, 3, 1, 2, 4)]
    assert [s["k0"] for s in finalists(trials, DEFAULT)] == [1, 2, 3, 4]
    assert finalists([*trials, ok(DEFAULT, 9.0)], DEFAULT)[-1] == DEFAULT
    assert finalists([ok(DEFAULT, 9.0)], DEFAULT) == []
    assert finalists([Trial(DEFAULT, "crash"), Trial(schedule(1), "wrong")], DEFAULT) == []


@pytest.mark.parametrize("spread, wins", [(0.0, "fast"), (0.02, "simple"), (0.005, "fast")])
def test_what_is_as_fast_but_for_noise_loses_to_what_is_nearer_to_the_default(spread, wins):
    fast, simple = schedule(2, 2, 2), schedule(1, 1, 2)
    trials = [ok(fast, 1.00, spread), ok(simple, 1.01, spread), ok(DEFAULT, 1.5, spread)]
    assert chosen(trials, DEFAULT).schedule == {"fast": fast, "simple": simple}[wins]


def test_noise_does_not_excuse_everything():
    fast = schedule(2, 2, 2)
    assert chosen([ok(fast, 1.0, 0.9), ok(DEFAULT, 1.02 + MOST_NOISE, 0.9)], DEFAULT).schedule == fast
    assert chosen([ok(fast, 1.0, 0.9), ok(DEFAULT, 1.0 + MOST_NOISE, 0.9)], DEFAULT).schedule == DEFAULT


def test_what_failed_is_never_chosen():
    late = Trial(schedule(2), "deadline", reason="late")
    assert chosen([late, ok(DEFAULT, 1.0)], DEFAULT).schedule == DEFAULT
    assert chosen([late], DEFAULT) is None


def test_several_times_are_one_and_one_failure_is_enough():
    trials = [ok(DEFAULT, 1.0, 0.1), ok(DEFAULT, 3.0, 0.2), ok(DEFAULT, 2.0, 0.3)]
    assert combined(trials) == replace(ok(DEFAULT, 2.0, 0.2), times=3)
    crash = Trial(DEFAULT, "crash", reason="signal 11")
    assert combined([*trials, crash]) is crash


def test_who_can_time_in_turns_does():
    class Turns:
        def interleaved(self, subgraph, target, schedules):
            return [ok(s, 0.5) for s in schedules]

    assert again(Turns(), None, None, [DEFAULT, schedule(2)]).trials() == [
        replace(ok(s, 0.5), times=ROUNDS) for s in (DEFAULT, schedule(2))
    ]


def test_who_cannot_measures_in_rounds():
    asked = []

    def measure(subgraph, target, schedules, deadline=None):
        asked.append([s["k0"] for s in schedules])
        return [ok(s, float(s["k0"])) for s in schedules]

    made = again(measure, None, None, [schedule(1), schedule(2), schedule(3)]).trials()
    assert asked == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    assert [t.seconds for t in made] == [1.0, 2.0, 3.0]

"""Batches under way: the next one is begun before the last one ends, and what is not done in time is given up."""

import math
from contextlib import nullcontext

from benchmarks.synthetic import Synthetic
from neoflow.loops import default_schedule
from neoflow.tune import Limits, Task, search, spend
from neoflow.tune.finals import ROUNDS
from neoflow.tune.search import BATCH
from neoflow.tune.trial import Trial
from neoflow.tune.underway import Ahead, Done
from tests.tune.problems import TARGET, named

NAMES = ("product", "softmax", "columns", "map")


class Later(Synthetic):
    """A machine that measures a batch when it is waited for; late: after so many candidates nothing is done in time."""

    is_overlapping = True

    def __init__(self, *args, late=math.inf, **more):
        super().__init__(*args, **more)
        self.late, self.under_way, self.most, self.turns = late, 0, 0, []

    def begin(self, subgraph, target, schedules):
        machine, begun = self, list(schedules)
        self.under_way += len(begun)
        self.most = max(self.most, self.under_way)

        class Pending:
            def trials(self, until=None):
                machine.under_way -= len(begun)
                if until is not None and len(machine.asked) >= machine.late:
                    machine.now = max(machine.now, until)
                    return []
                return machine(subgraph, target, begun)

        return Pending()

    def begin_turns(self, subgraph, target, schedules):
        self.turns += schedules
        return Done(tuple(Trial(s, "ok", self.seconds(subgraph, target, s)) for s in schedules))

    def thinking(self, target):
        return nullcontext()


def found_of(machine, **more):
    limits = more.pop("limits", Limits(trials=48))
    return search(named()["product"], TARGET, machine, limits, clock=machine.clock, **more)


def test_a_batch_is_begun_before_the_last_one_ends():
    machine = Later()
    found = found_of(machine)
    assert machine.most == 2 * BATCH and machine.under_way == 0
    assert len(set(machine.asked)) == len(machine.asked) == len(found.trials) == 48
    assert machine.turns and found.best.times == ROUNDS


def test_the_same_seed_and_times_give_the_same_sequence():
    asked = [Later() for _ in range(3)]
    for machine, seed in zip(asked, (3, 3, 4), strict=True):
        found_of(machine, seed=seed)
    assert asked[0].asked == asked[1].asked != asked[2].asked


def test_what_is_not_done_in_time_is_no_trial():
    machine = Later(late=20)
    found = found_of(machine, limits=Limits(trials=48, seconds=1e3))
    assert 20 <= len(found.trials) == len(machine.asked) < 48 and found.best.outcome == "ok"


def test_a_default_that_is_not_done_in_time_is_told():
    found = found_of(Later(late=0), limits=Limits(seconds=1.0))
    assert found.default.outcome == "deadline" and found.default.reason == "there was no time for it"
    assert found.best == found.default and not found.trials


def test_a_programs_defaults_are_measured_side_by_side():
    machine = Later()
    result = spend([Task(named()[n]) for n in NAMES], TARGET, machine, Limits(trials=60), clock=machine.clock)
    first = [default_schedule(named()[n], TARGET) for n in NAMES]
    assert set(machine.asked[:4]) == set(first) and machine.most > BATCH
    assert result.trials == 60 == sum(len(f.trials) for f in result.found)


def test_a_program_that_runs_out_of_time_ends():
    machine = Later(late=30)
    result = spend([Task(named()[n]) for n in NAMES], TARGET, machine, Limits(seconds=2.0), clock=machine.clock)
    assert result.stopped.startswith("seconds") and machine.under_way == 0


def test_ahead_begins_all_and_gives_up_what_was_not_asked_for():
    machine = Later(late=1)
    asked = {named()[n]: default_schedule(named()[n], TARGET) for n in NAMES}
    ahead = Ahead(machine, TARGET, asked)
    assert machine.under_way == 4 and not machine.asked
    (trial,) = ahead(named()["map"], TARGET, [asked[named()["map"]]])
    assert trial.outcome == "ok" and machine.under_way == 3
    ahead.forget()
    assert machine.under_way == 0 and len(machine.asked) == 1
    assert Ahead(Synthetic(), TARGET, asked)(named()["map"], TARGET, [trial.schedule])[0].outcome == "ok"

import pytest

from benchmarks.synthetic import Synthetic
from neoflow.loops import default_schedule
from neoflow.tune import Limits, Task, Trial, spend
from neoflow.tune.budget import HOPE
from neoflow.tune.search import BATCH
from tests.tune.problems import TARGET, named


def spent(tasks, limits, machine=None, **more):
    machine = machine or Synthetic()
    return spend(tasks, TARGET, machine, limits, clock=machine.clock, **more), machine


def tasks_of(*names, **more):
    return [Task(named()[name], **more) for name in names]


EVERY = ("product", "linear", "softmax", "norm", "map", "columns", "lookup")


class Gentle(Synthetic):
    """Defaults take a millisecond, and the best schedules not much less; of `stuck` all as long."""

    stuck = ""

    def seconds(self, subgraph, target, schedule):
        if subgraph.digest == self.stuck:
            return 1e-3
        usual = super().seconds(subgraph, target, default_schedule(subgraph, target))
        return 1e-3 * (super().seconds(subgraph, target, schedule) / usual) ** 0.1


def counts(result):
    return [len(f.trials) if f is not None else 0 for f in result.found]


def test_the_most_goes_to_what_takes_most_of_a_step():
    """Two kernels alike in all but how often they are called."""
    tasks = [Task(named()["product"], calls=50), Task(named()["product again"], calls=1)]
    result, _ = spent(tasks, Limits(trials=120), Gentle())
    often, seldom = counts(result)
    assert often + seldom == result.trials == 120 and often > 3 * seldom


def test_what_is_at_its_floor_or_never_called_gets_nothing():
    floor = spent(tasks_of("product"), Limits(trials=8))[0].found[0].floor
    tasks = [Task(named()["product"], seconds=floor), Task(named()["map"], calls=0), Task(named()["columns"])]
    result, _ = spent(tasks, Limits(trials=40))
    assert counts(result) == [0, 0, 40]
    assert result.found[0] is None and result.found[1] is None


def test_what_takes_most_of_the_program_comes_first():
    """By themselves two kernels are alike; the program has timed them, and knows better."""
    usual = {name: default_schedule(named()[name], TARGET) for name in ("product", "product again")}
    tasks = [Task(named()["product"], there=(usual["product"], 1e-3))]
    tasks += [Task(named()["product again"], there=(usual["product again"], 1e-6))]
    result, _ = spent(tasks, Limits(trials=40), Gentle())
    assert counts(result) == [40, 0] and result.found[0].default.seconds


def test_what_waits_for_something_else_in_the_program_is_left():
    """It takes a hundred times as long there as by itself."""
    usual = {name: default_schedule(named()[name], TARGET) for name in ("product", "product again")}
    tasks = [Task(named()["product"], there=(usual["product"], 1e-1))]
    tasks += [Task(named()["product again"], calls=20, there=(usual["product again"], 1e-3))]
    result, _ = spent(tasks, Limits(trials=80), Gentle())
    waiting, other = counts(result)
    assert other > 2 * waiting


def test_what_stops_gaining_is_left():
    """Of two kernels that take as long the one that never becomes better."""
    machine = Gentle()
    machine.stuck = named()["product"].digest
    result, _ = spent(tasks_of("product", "product again"), Limits(trials=120), machine)
    still, gaining = counts(result)
    assert gaining > 1.5 * still > 0


@pytest.mark.parametrize("seconds", [3.0, 10.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_it_ends_on_time(seconds):
    result, machine = spent(tasks_of(*EVERY, seconds=1e-3), Limits(seconds=seconds))
    assert 0.75 * seconds <= machine.now <= seconds + 1.0
    assert result.stopped.startswith("seconds: ")
    for found in result.found:
        assert found is None or found.best.outcome == "ok"


def test_a_slow_candidate_does_not_break_the_time():
    result, machine = spent(tasks_of(*EVERY), Limits(seconds=20.0), Synthetic(cost=2.0))
    assert machine.now <= 20.0 + 8 * 2.0 and result.trials >= 5


def test_many_kernels_in_little_time():
    """There are more kernels than there is time for: those that matter have it."""
    heavy = Task(named()["product"], calls=20, seconds=1e-3)
    light = [Task(named()[n], seconds=1e-6) for n in EVERY[1:] for _ in range(20)]
    result, _ = spent([*light, heavy], Limits(seconds=5.0))
    assert counts(result)[-1] >= 0.8 * result.trials


def test_it_says_why_it_stopped():
    assert spent([], Limits(trials=5))[0].stopped == "space: there is nothing to tune"
    assert spent(tasks_of("product"), Limits(trials=24))[0].stopped == "trials: 24 of 24 candidates were measured"
    assert (
        spent(tasks_of("small"), Limits(trials=999))[0].stopped == "space: every schedule of every kernel was measured"
    )
    assert spent(tasks_of("product"), Limits(patience=20))[0].stopped.startswith("patience: the last ")
    result, _ = spent(tasks_of("product"), Limits(), watch=lambda number, progress: progress.trials >= 9)
    assert result.stopped == "asked: whoever watches said so" and 9 <= result.trials < 9 + BATCH


def test_the_same_seed_gives_the_same_program():
    a, first = spent(tasks_of(*EVERY), Limits(trials=60), seed=5)
    b, second = spent(tasks_of(*EVERY), Limits(trials=60), seed=5)
    assert a == b and first.asked == second.asked


def test_trials_of_earlier_runs_are_where_it_goes_on():
    first, _ = spent(tasks_of("product"), Limits(trials=40))
    known = first.found[0].trials
    again, machine = spent([Task(named()["product"], known=known)], Limits(trials=16))
    assert not {t.schedule for t in known} & set(machine.asked[:16])
    assert again.found[0].best.seconds <= first.found[0].best.seconds


def test_a_kernel_whose_candidates_all_fail_keeps_its_default():
    result, _ = spent(tasks_of("product"), Limits(trials=16), Synthetic(failing=1.0))
    assert result.found[0].best == result.found[0].default and result.found[0].best.outcome != "ok"


def test_whoever_watches_is_told_which():
    told = []
    spent(tasks_of(*EVERY, seconds=1e-3), Limits(trials=64), watch=lambda n, p: told.append((n, p.subgraph)))
    assert all(named()[EVERY[n]] == subgraph for n, subgraph in told) and len({n for n, _ in told}) > 1


def test_finals_come_first_where_most_was_gained():
    result, machine = spent(tasks_of("product", "map", calls=9), Limits(trials=32))
    finals = machine.asked[result.trials :]
    assert finals and 0 < HOPE < 1
    assert all(isinstance(f.best, Trial) for f in result.found if f is not None)

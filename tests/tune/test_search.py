import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import Synthetic
from neoflow.errors import ConfigError
from neoflow.loops import Schedule, complete, default, legal, nearest, problem_of, space
from neoflow.roofs import Roofs
from neoflow.tune import Limits, Trial, search
from neoflow.tune.finals import FINALISTS, ROUNDS
from neoflow.tune.genetic import distance
from neoflow.tune.likely import HOPELESS, likely_cycles
from neoflow.tune.model import Model
from neoflow.tune.roofs import nominal
from neoflow.tune.search import BATCH, STALE
from tests.tune.problems import TARGET, named, pool

PRODUCT = "product"


FORTY = Limits(trials=40)


def found_of(name=PRODUCT, machine=None, limits=FORTY, **more):
    machine = machine or Synthetic()
    return search(named()[name], TARGET, machine, limits, clock=machine.clock, **more), machine


# --- what holds for all


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_laws(data):
    """Every candidate legal, none measured twice but for the finals, the default first, the best no slower than it."""
    subgraph = data.draw(st.sampled_from(pool(2)), "subgraph")
    machine = Synthetic(data.draw(st.integers(0, 9)), noise=0.02, failing=data.draw(st.sampled_from([0.0, 0.3, 1.0])))
    found = search(subgraph, TARGET, machine, Limits(trials=30), seed=data.draw(st.integers(0, 99)))
    problem = problem_of(subgraph)
    made = machine.asked[: len(found.trials)]
    assert len(set(made)) == len(made) <= 30
    assert made == [t.schedule for t in found.trials] and made[0] == default(problem, TARGET)
    assert all(legal(problem, s, TARGET).ok for s in made)
    assert found.default.schedule == made[0]
    timed = [t for t in found.trials if t.outcome == "ok"]
    if timed:
        assert found.best in timed
        assert found.default.seconds is None or found.best.seconds <= found.default.seconds
    else:
        assert found.best == found.default and found.best.outcome != "ok"


def test_what_is_thought_hopeless_is_measured_seldom():
    """Of a product's schedules chance draws three of four that take far longer than the best, on a machine that is as
    it is thought to be: few of these are measured."""
    problem = problem_of(named()[PRODUCT])

    class AsThought(Synthetic):
        def seconds(self, subgraph, target, schedule):
            return 1e-9 * likely_cycles(problem, schedule, target)

    found, _ = found_of(machine=AsThought(), limits=Limits(trials=60))
    drawn = [space(problem, TARGET).sample(np.random.default_rng(n)) for n in range(100)]
    usual = likely_cycles(problem, default(problem, TARGET), TARGET)

    def part(schedules):
        return np.mean([likely_cycles(problem, s, TARGET) > HOPELESS * usual for s in schedules])

    assert 0 <= part([t.schedule for t in found.trials]) < part(drawn) / 2


@pytest.mark.parametrize("with_model", [False, True])
def test_the_same_seed_and_times_give_the_same_sequence(with_model):
    def asked(seed):
        _, machine = found_of(seed=seed, model=Model() if with_model else None, limits=Limits(trials=24))
        return machine.asked

    assert asked(3) == asked(3)
    assert asked(3) != asked(4)


def test_what_fails_has_no_time_and_does_not_breed():
    found, _ = found_of(machine=Synthetic(failing=0.5))
    assert {t.outcome for t in found.trials} == {"ok", "wrong", "refused", "deadline", "crash", "memory"}
    assert found.best.outcome == "ok"


def test_a_deadline_with_a_time_is_still_no_time():
    class Late(Synthetic):
        def __call__(self, subgraph, target, schedules, deadline=None):
            made = super().__call__(subgraph, target, schedules, deadline)
            return [t if len(str(t.schedule)) % 2 else Trial(t.schedule, "deadline", 1e-12) for t in made]

    found, _ = found_of(machine=Late())
    assert found.best.outcome == "ok" and found.best.seconds > 1e-12


# --- when it ends


def test_it_says_why_it_stopped():
    assert found_of()[0].stopped == "trials: 40 of 40 candidates were measured"
    found, machine = found_of(limits=Limits(seconds=6.0))
    assert found.stopped.startswith("seconds: 6.") or found.stopped.startswith("seconds: 5.")
    assert 4.0 <= machine.now <= 6.0 + BATCH * machine.cost
    found, _ = found_of(limits=Limits(patience=30))
    assert found.stopped.startswith("patience: the last ")
    found, machine = found_of("small", limits=Limits(trials=1000))
    every = set(space(problem_of(named()["small"]), TARGET))
    assert found.stopped == f"space: {len(every)} schedules were measured, and no others were found"
    assert set(machine.asked) == every
    found, _ = found_of(watch=lambda progress: progress.trials >= 16, limits=Limits())
    assert found.stopped == "asked: whoever watches said so" and len(found.trials) == 16


def test_a_search_that_would_never_end_does_not_begin():
    with pytest.raises(ConfigError, match="a search without limits and without a watch never ends: give trials, sec"):
        found_of(limits=Limits())


def test_a_time_too_short_for_anything_measures_the_default():
    found, _ = found_of(limits=Limits(seconds=1e-9))
    assert found.default.outcome == "ok" and found.best.outcome == "ok"


def test_floors_above_the_best_time_are_not_measured():
    found, _ = found_of("small", machine=Slow(), limits=Limits(trials=1000))
    every = set(space(problem_of(named()["small"]), TARGET))
    assert len(found.trials) <= BATCH and found.dropped == len(every) - len(found.trials) > 0
    assert f"{found.dropped} have floors above the best time, and no others were found" in found.stopped


def test_floors_that_something_is_faster_than_are_lowered():
    """Roofs that were measured on a busy machine: far too low."""
    low = Roofs(nominal(TARGET).gflops / 5, nominal(TARGET).levels)
    found, _ = found_of(roofs=low, limits=Limits(trials=40))
    assert len(found.trials) == 40 and found.floor <= found.best.seconds
    usual, _ = found_of(limits=Limits(trials=40))
    assert found.best.seconds < 2 * usual.best.seconds


class Slow(Synthetic):
    """Everything is as fast as no schedule can be."""

    def seconds(self, subgraph, target, schedule):
        return 1e-15


# --- where it begins


def test_it_begins_with_the_default_and_what_it_is_given():
    problem = problem_of(named()[PRODUCT])
    good = complete("contraction", problem, TARGET, {"tile_rows": 3, "vectors": 4})
    other = default(problem_of(named()["linear"]), TARGET)  # of another size: made legal
    foreign = default(problem_of(named()["softmax"]), TARGET)
    _, machine = found_of(start=[good, other, foreign])
    given = list(dict.fromkeys([default(problem, TARGET), good, nearest(problem, other, TARGET)]))
    assert machine.asked[: len(given)] == given and len(given) >= 2


def test_what_is_known_is_not_measured_again():
    first, _ = found_of()
    again, machine = found_of(known=first.trials, limits=Limits(trials=24))
    assert not {t.schedule for t in first.trials} & set(machine.asked[:24])
    assert again.best.seconds <= first.best.seconds
    assert len(again.trials) == 64


def test_known_trials_that_are_no_longer_legal_are_left_out():
    stale = Trial(Schedule("contraction", (("gone", 1),)), "ok", 1e-12)
    found, _ = found_of(known=[stale])
    assert stale not in found.trials and found.best.seconds > 1e-12


# --- how it goes on


def test_it_finds_better_ones_than_chance():
    """Geometric mean over machines, each with other places for every knob."""
    ratios = []
    for seed in range(4):
        subgraph, machine, rng = named()["columns"], Synthetic(seed), np.random.default_rng(seed)
        random = [space(problem_of(subgraph), TARGET).sample(rng) for _ in range(100)]
        chance = min(machine.seconds(subgraph, TARGET, s) for s in random)
        found, _ = found_of("columns", machine, limits=Limits(trials=100), seed=seed)
        ratios.append(chance / found.best.seconds)
    assert np.exp(np.mean(np.log(ratios))) > 1.1


def test_a_population_that_stands_still_begins_again():
    """Everything is as fast: candidates are close to those before; after `STALE` without gain they are less so."""
    before, after = [], []
    for seed in range(3):
        _, machine = found_of(machine=Flat(), limits=Limits(trials=2 * STALE), seed=seed)
        made = machine.asked[: 2 * STALE]
        assert len(set(made)) == 2 * STALE
        near = [min((distance(s, other) for other in made[:n]), default=0) for n, s in enumerate(made)]
        before += near[STALE - BATCH : STALE]
        after += near[STALE + BATCH : STALE + 2 * BATCH]
    assert np.mean(after) > 1.25 * np.mean(before)


class Flat(Synthetic):
    def seconds(self, subgraph, target, schedule):
        return 1.0


def test_the_finals_measure_side_by_side_in_another_order_each_time():
    found, machine = found_of(machine=Synthetic(noise=0.05))
    finals = machine.asked[40:]
    count = len(finals) // ROUNDS
    assert FINALISTS <= count <= FINALISTS + 1
    rounds = [finals[n * count : (n + 1) * count] for n in range(ROUNDS)]
    assert all(set(r) == set(rounds[0]) for r in rounds) and len({tuple(r) for r in rounds}) == ROUNDS
    assert found.best.schedule in rounds[0] and found.default.schedule in rounds[0]


def test_whoever_watches_is_told_of_every_batch():
    told = []
    found, _ = found_of(watch=told.append)
    assert [t.schedule for p in told for t in p.new] == [t.schedule for t in found.trials]
    assert [p.trials for p in told] == [8, 16, 24, 32, 40]
    assert all(a.best.seconds >= b.best.seconds for a, b in itertools.pairwise(told))
    assert all(p.floor == found.floor and p.default is not None for p in told)


def test_without_crossing_there_are_other_candidates():
    _, crossing = found_of()
    _, alone = found_of(crossing=False)
    assert crossing.asked[0] == alone.asked[0] and crossing.asked != alone.asked

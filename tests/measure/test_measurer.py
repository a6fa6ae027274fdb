"""Candidates measured by processes: every one has a trial, in its place, whatever it does."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.devices import resolve_target
from neoflow.graph import make_graph
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.space import space
from neoflow.measure import Measurer
from neoflow.measure.here import Here
from neoflow.rewriting import stages
from neoflow.trace import Trace
from neoflow.tune.trial import OUTCOMES

pytestmark = pytest.mark.tvm
FAULTY = [sys.executable, "-m", "tests.measure.faulty"]


def product(n=24, m=40, k=32):
    a, b = nf.placeholder((n, k), name="a"), nf.placeholder((k, m), name="b")
    (subgraph,) = stages(make_graph([a @ b], [a, b]), Trace())[1].subgraphs
    return subgraph


def with_knob(schedule, **knobs):
    return replace(schedule, knobs=tuple(sorted({**dict(schedule.knobs), **knobs}.items())))


@pytest.fixture(scope="module")
def target():
    return resolve_target("cpu")


@pytest.fixture(scope="module")
def measurer():
    with Measurer(partial(Here, count=1, command=FAULTY)) as made:
        yield made


def test_a_trial_for_every_candidate_in_its_place(measurer, target):
    subgraph = product()
    default = default_schedule(subgraph, target)
    asked = [default, with_knob(default, unroll=8), with_knob(default, unroll=5), default]
    trials = measurer(subgraph, target, asked)
    assert [t.schedule for t in trials] == asked
    assert [t.outcome for t in trials] == ["ok", "wrong", "refused", "ok"]
    assert all(0 < t.seconds < 0.1 and not t.reason for t in trials if t.outcome == "ok")
    assert "computes" in trials[1].reason and "unroll=5" in trials[2].reason


@pytest.mark.slow
def test_a_candidate_that_is_a_fault_costs_its_own_trial(target):
    subgraph = product()
    default = default_schedule(subgraph, target)
    made = space(problem_of(subgraph), target)
    rng = np.random.default_rng(0)
    sound = [s for s in (made.sample(rng) for _ in range(60)) if dict(s.knobs).get("unroll") == 4][:3]
    wrong, gone, late = (with_knob(default, unroll=n) for n in (8, 2, 1))
    illegal = with_knob(default, unroll=5)
    asked = [default, wrong, gone, *sound, late, illegal]
    with Measurer(partial(Here, command=FAULTY)) as measurer:
        trials = measurer(subgraph, target, asked, deadline=4.0)
    assert [t.schedule for t in trials] == asked
    outcomes = ["ok", "wrong", "crash", *["ok"] * len(sound), "deadline", "refused"]
    assert [t.outcome for t in trials] == outcomes and set(outcomes) <= set(OUTCOMES)
    for trial in trials:
        assert (trial.seconds is not None and 0 < trial.seconds < 0.1) == (trial.outcome == "ok")
        assert bool(trial.reason) == (trial.outcome != "ok")
    reasons = {t.outcome: t.reason for t in trials}
    assert "exited with status 7" in reasons["crash"] and "computes" in reasons["wrong"]
    assert "no answer in 4 s" in reasons["deadline"] and "unroll=5" in reasons["refused"]


def test_finalists_are_timed_in_turns(measurer, target):
    subgraph = product()
    default = default_schedule(subgraph, target)
    trials = measurer.interleaved(subgraph, target, [default, with_knob(default, unroll=8), default], rounds=5)
    assert [t.outcome for t in trials] == ["ok", "wrong", "ok"]
    assert all(t.seconds is None or 0 < t.seconds < 0.1 for t in trials)


def test_no_candidates(measurer, target):
    assert measurer(product(), target, []) == [] and measurer.interleaved(product(), target, []) == []


def test_a_hopeless_candidate_is_judged_and_not_timed(measurer, target):
    subgraph = product()
    default = default_schedule(subgraph, target)
    key = f"{subgraph.digest} {target} 0"
    measurer._best[key] = -1.0  # faster than anything
    (trial,) = measurer(subgraph, target, [default])
    (wrong,) = measurer(subgraph, target, [with_knob(default, unroll=8)])
    del measurer._best[key]
    assert trial.outcome == "ok" and trial.seconds > 0 and wrong.outcome == "wrong"

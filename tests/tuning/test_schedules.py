"""What a program's search finds is what its later compilations take; what it tells while it runs."""

import json
from zlib import crc32

import numpy as np
import pytest
from typer.testing import CliRunner

import neoflow as nf
from neoflow import config, tuning
from neoflow.cli import app
from neoflow.devices import resolve_target
from neoflow.graph import make_graph, optimize
from neoflow.loops import default_schedule
from neoflow.partition import multiplies
from neoflow.pipeline import compile_program
from neoflow.trace import listening
from neoflow.tune import Trial
from neoflow.tuning.choosing import candidates
from neoflow.tuning.kept import records_in

pytestmark = pytest.mark.usefixtures("own_cache")
RNG = np.random.default_rng(5)


def program():
    x, w = nf.placeholder((48, 40), name="x"), nf.placeholder((40, 56), name="w")
    y = nf.relu(nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w))
    return [nf.sum(y * y), y], [x, w]


def agrees(f, outputs, inputs):
    arrays = [RNG.normal(size=t.shape).astype("float32") for t in inputs]
    exact = nf.evaluate(outputs, dict(zip(inputs, arrays, strict=True)), dtype="float64")
    for a, b in zip(f(*arrays), exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


class Machine:
    """Every schedule takes a time that its text decides; the default takes the longest."""

    def __init__(self):
        self.asked = []

    def __call__(self, subgraph, target, schedules, deadline=None):
        self.asked += [(subgraph.digest, s) for s in schedules]
        usual = default_schedule(subgraph, target)
        times = [2e-3 if s == usual else 1e-3 + 1e-9 * (crc32(s.to_json().encode()) % 100_000) for s in schedules]
        return [Trial(s, "ok", t) for s, t in zip(schedules, times, strict=True)]


def test_a_compilation_takes_what_was_measured(own_cache):
    outputs, inputs = program()
    plain = compile_program(outputs, inputs)
    assert {c.origin for c in plain.tuned.choices} == {"default"} and "2 default" in plain.tuned.summary
    assert not (own_cache / "records.sqlite").exists()  # nothing is written where nothing was measured
    target, machine = resolve_target("cpu"), Machine()
    uses = tuning.uses_of(plain.calls)
    found = tuning.tune(uses, target, nf.tune.Limits(trials=40), own_cache, measure=machine)
    assert found.trials == 40 and found.stopped.startswith("trials") and len(set(machine.asked)) >= 40
    again = compile_program(outputs, inputs)
    chosen = {c.use.subgraph.digest: c.schedule for c in again.tuned.choices}
    best = {c.use.subgraph.digest: c.schedule for c in found.choices if c.trials}
    assert best and all(chosen[d] == s for d, s in best.items())
    assert {k.subgraph.digest: k.schedule for k in again.kernels} == chosen
    assert f"{len(best)} measured before" in again.tuned.summary
    agrees(nf.compile(outputs, inputs), outputs, inputs)


def convolution(channels, extent):
    """With both gradients."""
    x = nf.placeholder((2, channels, extent, extent), name="x")
    w = nf.placeholder((channels, channels, 3, 3), name="w")
    y = nf.nn.functional.conv2d(x, w, padding=1)
    g = nf.placeholder(y.shape, name="g")
    return [y, *nf.vjp(y, [x, w], g)], [x, w, g]


class Products:
    """A call takes as long as its products are many."""

    def __call__(self, subgraph, target, schedules, deadline=None):
        sums = [n.definition for n in subgraph.nodes if n.definition.reduction_axes]
        products = sum(float(np.prod([*d.shape, *(a.extent for a in d.reduction_axes)])) for d in sums)
        return [Trial(s, "ok", 1e-9 * (1.0 + products)) for s in schedules]


def test_contractions_are_computed_by_the_fastest_algorithm_that_was_measured(own_cache):
    """Forward and both gradients; F(4x4, 3x3) where its roundings are allowed, and by no later program unasked."""
    outputs, inputs = convolution(64, 12)
    graph, target = optimize(make_graph(outputs, inputs)), resolve_target("cpu")
    for rounding, name in ((256.0, "winograd 4"), (16.0, "winograd 2"), (1.0, "direct")):
        limits = nf.tune.Limits(seconds=60, rounding=rounding)
        found = tuning.algorithms(graph, target, limits, own_cache, Products())
        assert [c.algorithm for c in found.choices] == [name] * (len(found.choices) or 3)
    later = nf.compile(outputs, inputs)
    told = later.explain("algorithms")
    assert told.count("winograd 2, at most") == 3 and "times the direct sum's roundings (direct " in told
    agrees(later, outputs, inputs)


class Listening(Products):
    """What it is asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, subgraph, target, schedules, deadline=None):
        self.asked.append(subgraph)
        return super().__call__(subgraph, target, schedules, deadline)


def test_what_multiplies_is_measured_directly_and_by_what_is_thought_to_be_faster(own_cache):
    """One contraction after the other, and nothing that moves more for as many products; transforms come behind."""
    outputs, inputs = convolution(64, 12)
    graph, target, machine = optimize(make_graph(outputs, inputs)), resolve_target("cpu"), Listening()
    tuning.algorithms(graph, target, nf.tune.Limits(seconds=60), own_cache, machine)
    by_name = [
        {c.name: {k.digest for k in c.kernels if multiplies(k)} for c in those} for those in candidates(graph).values()
    ]
    asked = [k.digest for k in machine.asked if multiplies(k)]
    assert all(map(multiplies, machine.asked[: len(asked)])) and len(machine.asked) > len(asked)
    for kernels in by_name:
        pair = kernels["direct"] | kernels["winograd 2"]
        places = [n for n, digest in enumerate(asked) if digest in pair]
        assert len(places) == len(pair) == max(places) - min(places) + 1
        assert kernels["im2col"] - pair and not (kernels["im2col"] - pair) & {*asked}


class Remainders(Products):
    """What looks taps up by remainders takes three times as long."""

    def __call__(self, subgraph, target, schedules, deadline=None):
        times = 3 if any(n.definition.reduction_axes and "%" in str(n.definition) for n in subgraph.nodes) else 1
        return [Trial(t.schedule, "ok", times * t.seconds) for t in super().__call__(subgraph, target, schedules)]


def test_a_gradient_is_computed_by_residue_classes_where_these_are_faster(own_cache):
    """Of a convolution whose taps do not overlap; all classes together, and `explain` says what was compared."""
    x, w = nf.placeholder((4, 32, 28, 28), name="x"), nf.placeholder((64, 32, 2, 2), name="w")
    g = nf.placeholder((4, 64, 14, 14), name="g")
    outputs, inputs = nf.vjp(nf.nn.functional.conv2d(x, w, stride=2), [x], g), [x, w, g]
    graph, target = optimize(make_graph(outputs, inputs)), resolve_target("cpu")
    found = tuning.algorithms(graph, target, nf.tune.Limits(seconds=60), own_cache, Remainders())
    assert [c.algorithm for c in found.choices] == ["residues"]
    compiled = nf.compile(outputs, inputs)
    assert "d_x: residues (direct " in compiled.explain("algorithms")
    agrees(compiled, outputs, inputs)


def test_of_small_sums_nothing_is_measured(own_cache):
    """Seven calls of kernels take longer than their products."""
    outputs, inputs = convolution(8, 8)
    graph, machine = optimize(make_graph(outputs, inputs)), Listening()
    found = tuning.algorithms(graph, resolve_target("cpu"), nf.tune.Limits(seconds=60), own_cache, machine)
    assert not machine.asked and not found.others


@pytest.mark.slow
def test_algorithms_are_measured_within_a_programs_budget(own_cache):
    """On this machine: each contraction directly and by minimal filtering, and the next compilation chooses the same
    at once."""
    outputs, inputs = convolution(64, 28)
    tuned = compile_program(outputs, inputs, tune=nf.tune.Limits(seconds=90))
    (told,) = (r for r in tuned.trace.records if r.name == "algorithms")
    assert all(line.count(" us") == 2 for line in told.text().splitlines()), told.text()
    (again,) = (r for r in compile_program(outputs, inputs).trace.records if r.name == "algorithms")
    assert again.summary == told.summary
    agrees(nf.compile(outputs, inputs), outputs, inputs)


def test_a_second_search_goes_on_from_the_first(own_cache):
    outputs, inputs = program()
    uses, target = tuning.uses_of(compile_program(outputs, inputs).calls), resolve_target("cpu")
    first, second = Machine(), Machine()
    tuning.tune(uses, target, nf.tune.Limits(trials=24), own_cache, measure=first)
    kept = records_in(own_cache)
    before = {(u.subgraph.digest, t.schedule) for u in uses for t in kept.trials(u.subgraph, target)}
    tuning.tune(uses, target, nf.tune.Limits(trials=24), own_cache, measure=second)
    after = {(u.subgraph.digest, t.schedule) for u in uses for t in kept.trials(u.subgraph, target)}
    assert len(before) == 24 and len(after) == 48


def test_tuning_for_real_judges_what_it_measures_and_says_how_far_it_is(own_cache):
    outputs, inputs = program()
    told = []
    with listening(lambda stage, done, total, note: told.append((stage, note))):
        f = nf.compile(outputs, inputs, tune=nf.tune.Limits(trials=12))
    assert f.compiled.tuned.trials == 12 and "[tuned: " in f.explain("schedules")
    notes = [note for stage, note in told if stage == "tuning"]
    assert notes and notes[-1].startswith("12 candidates, ") and "of 2 kernels" in notes[-1]
    kept, target = records_in(config.load().cache_dir), resolve_target("cpu")
    trials = [t for c in f.compiled.tuned.choices for t in kept.trials(c.use.subgraph, target)]
    assert len(trials) == 12 and all(t.outcome == "ok" for t in trials)
    agrees(f, outputs, inputs)


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ("fast", "tune is seconds, nf.tune.Limits or None, not 'fast'"),
        (True, "tune is seconds, nf.tune.Limits or None, not True"),
        (-1.0, "limits of a search: seconds=-1.0 must be positive"),
    ],
)
def test_limits_that_are_none(tune, message):
    outputs, inputs = program()
    with pytest.raises(nf.NeoflowError, match=message.replace("(", r"\(")):
        nf.compile(outputs, inputs, tune=tune)


@pytest.mark.slow
def test_the_command_tunes_a_model():
    done = CliRunner().invoke(app, ["tune", "capsnet", "--batch", "1", "--trials", "9", "--seconds", "300", "--json"])
    out = json.loads(done.stdout)
    assert out["trials"] == 9 and out["stopped"].startswith("trials") and len(out["kernels"]) > 30
    assert out["before_ms"] > 0 and out["after_ms"] > 0
    measured = [k for k in out["kernels"] if k["trials"]]
    assert measured and all(k["us"] > 0 and k["floor_us"] > 0 for k in measured)

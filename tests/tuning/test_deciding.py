"""Which algorithms a search measures and what a program takes of them, on a CPU and on a GPU."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

import neoflow as nf
from neoflow import config, tuning
from neoflow.devices import resolve_target
from neoflow.graph import make_graph, optimize
from neoflow.loops import default_schedule
from neoflow.partition import multiplies
from neoflow.tune import Limits, Trial
from neoflow.tuning import choosing, deciding
from neoflow.tuning.choosing import LONGER, candidates
from neoflow.tuning.kept import records_in
from tests.emulator.driver import emulated
from tests.tuning.test_schedules import Listening, Products, agrees

pytestmark = pytest.mark.usefixtures("own_cache")


def convolution(channels=64, extent=12):
    x = nf.placeholder((2, channels, extent, extent), name="x")
    w = nf.placeholder((channels, channels, 3, 3), name="w")
    return [nf.nn.functional.conv2d(x, w, padding=1)], [x, w]


def program():
    outputs, inputs = convolution()
    return optimize(make_graph(outputs, inputs)), resolve_target("cpu")


class Moves(Listening):
    """Products as they are many; a call of what multiplies nothing takes so many seconds (None: it fails)."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def __call__(self, subgraph, target, schedules, deadline=None):
        found = super().__call__(subgraph, target, schedules)
        if multiplies(subgraph):
            return found
        if self.seconds is None:
            return [Trial(s, "wrong", reason="test") for s in schedules]
        return [Trial(s, "ok", self.seconds) for s in schedules]


def by_name(graph, target=None):
    ((direct, *others),) = candidates(graph, 16.0, target).values()
    return {c.name: c for c in (direct, *others)}


def test_an_algorithm_takes_what_all_its_kernels_were_measured_to_take(own_cache):
    (graph, target), machine = program(), Moves(7e-6)
    found = tuning.algorithms(graph, target, Limits(seconds=60), own_cache, machine)
    assert [c.algorithm for c in found.choices] == ["winograd 2"] and len(machine.asked) == len(set(machine.asked))
    for name in ("direct", "winograd 2"):
        kernels = by_name(graph)[name].kernels
        products = sum(t.seconds for k in kernels if multiplies(k) for t in Products()(k, target, ["one"]))
        moves = sum(not multiplies(k) for k in kernels)
        assert moves > 0 and found.choices[0].seconds[name] == pytest.approx(products + moves * 7e-6)
        assert {k.digest for k in kernels} <= {k.digest for k in machine.asked}


def test_transforms_that_take_longer_than_thought_are_found_out(own_cache):
    """By the estimate the algorithm would be taken."""
    graph, target = program()
    known = choosing.with_moves(lambda k: Products()(k, target, ["one"])[0].seconds, nf.roofs.STATED)
    assert choosing.choose(graph, known, 16.0)[0].algorithm == "winograd 2"
    found = tuning.algorithms(graph, target, Limits(seconds=60), own_cache, Moves(1.0))
    assert [c.algorithm for c in found.choices] == ["direct"] and found.choices[0].seconds["winograd 2"] > 3


def thought(graph, target, name):
    """What the products were measured to take, and the rest as long as is said of what nobody has measured."""
    roofs = tuning.machine_roofs(target, config.load().cache_dir)
    return sum(
        Products()(k, target, ["one"])[0].seconds if multiplies(k) else LONGER * choosing.cost_of(k).seconds(roofs)
        for k in by_name(graph)[name].kernels
    )


def test_a_transform_that_fails_is_taken_as_it_is_thought(own_cache):
    (graph, target), machine = program(), Moves(None)
    found = tuning.algorithms(graph, target, Limits(seconds=60), own_cache, machine)
    assert not all(map(multiplies, machine.asked)) and found.choices[0].algorithm == "winograd 2"
    assert found.choices[0].seconds["winograd 2"] == pytest.approx(thought(graph, target, "winograd 2"))


def test_a_transform_for_which_there_is_no_time_is_taken_as_it_is_thought(own_cache, monkeypatch):
    """Half of the seconds is over when the products were measured."""
    (graph, target), machine = program(), Moves(1.0)
    monkeypatch.setattr(deciding, "time", SimpleNamespace(monotonic=lambda: 100.0 if machine.asked else 0.0))
    found = tuning.algorithms(graph, target, Limits(seconds=60), own_cache, machine)
    asked = {k.digest for k in machine.asked}
    assert all(map(multiplies, machine.asked))
    assert asked == {k.digest for n in ("direct", "winograd 2") for k in by_name(graph)[n].kernels if multiplies(k)}
    assert found.choices[0].seconds["winograd 2"] == pytest.approx(thought(graph, target, "winograd 2"))
    assert deciding.time is not time


def test_transforms_that_cannot_win_are_not_measured(own_cache):
    """The products of minimal filtering take no less here."""

    class Same(Moves):
        def __call__(self, subgraph, target, schedules, deadline=None):
            super().__call__(subgraph, target, schedules)
            return [Trial(s, "ok", 1e-3) for s in schedules]

    (graph, target), machine = program(), Same(1e-9)
    found = tuning.algorithms(graph, target, Limits(seconds=60), own_cache, machine)
    assert machine.asked and all(map(multiplies, machine.asked)) and not found.others


# --- a GPU


def on_a_gpu(monkeypatch):
    emulated(monkeypatch)
    outputs, inputs = convolution(8, 6)
    return outputs, inputs, optimize(make_graph(outputs, inputs)), resolve_target("cuda")


def keep(kernels, target):
    for k in kernels:
        records_in(config.load().cache_dir).add(k, target, Products()(k, target, [default_schedule(k, target)]))


@pytest.mark.tvm
def test_of_a_gpu_what_was_measured_chooses(monkeypatch):
    outputs, inputs, graph, target = on_a_gpu(monkeypatch)
    for candidate in by_name(graph, target).values():
        keep(candidate.kernels, target)
    f = nf.compile(outputs, inputs, target="cuda")
    assert "conv2d: winograd 2, at most 7.11 times" in f.explain("algorithms")
    assert any(t.name.endswith("_products") for t in f.compiled.graph.nodes)
    agrees(f, outputs, inputs)
    here = nf.compile(outputs, inputs)
    assert "winograd" not in here.explain("algorithms").split("(")[0], "of a CPU nothing was measured"


@pytest.mark.tvm
def test_of_a_gpu_nothing_is_taken_by_an_estimate(monkeypatch):
    """The products alone are known: on a CPU that would do."""
    outputs, inputs, graph, target = on_a_gpu(monkeypatch)
    kernels = [k for c in by_name(graph, target).values() for k in c.kernels]
    keep([k for k in kernels if multiplies(k)], target)
    f = nf.compile(outputs, inputs, target="cuda")
    assert f.explain("algorithms") == "conv2d: direct"
    assert choosing.recorded(records_in(config.load().cache_dir), target)(next(filter(multiplies, kernels))) is not None


@pytest.mark.tvm
def test_of_a_gpu_of_which_nothing_is_known_nothing_changes(monkeypatch):
    outputs, inputs, graph, _ = on_a_gpu(monkeypatch)
    before = nf.compile(outputs, inputs, target="cuda").compiled
    here = resolve_target("cpu")
    keep([k for c in by_name(graph).values() for k in c.kernels], here)
    after = nf.compile(outputs, inputs, target="cuda").compiled
    assert [r.name for r in after.trace.records] == [r.name for r in before.trace.records]
    assert "algorithms" not in [r.name for r in after.trace.records] and after.graph.digest == before.graph.digest


@pytest.mark.tvm
def test_a_search_on_a_gpu_measures_them(own_cache, monkeypatch):
    """What is worth it is said by the estimate of a GPU; large enough for its launches to count little."""
    emulated(monkeypatch)
    x, w = nf.placeholder((32, 256, 56, 56), name="x"), nf.placeholder((256, 256, 3, 3), name="w")
    graph, target = optimize(make_graph([nf.nn.functional.conv2d(x, w, padding=1)], [x, w])), resolve_target("cuda")
    machine = Moves(1e-6)
    found = tuning.algorithms(graph, target, Limits(seconds=60), own_cache, machine)
    assert [c.algorithm for c in found.choices] == ["winograd 2"]
    kernels = {k.digest for k in by_name(graph, target)["winograd 2"].kernels}
    assert kernels <= {k.digest for k in machine.asked}
    assert np.isfinite(found.choices[0].seconds["winograd 2"])

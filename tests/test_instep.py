"""Schedules judged in the program that they are for: what is chosen, kept, and taken by later compilations."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import neoflow as nf
from neoflow import config, instep, tuning
from neoflow.devices import resolve_target
from neoflow.graph import make_graph, optimize
from neoflow.instep import ALONE, CHOSEN, DEFAULT, STREAMED, judge, sets_of
from neoflow.loops import default_schedule, problem_of, space
from neoflow.pipeline import Compiled, compile_program
from neoflow.tune.records import Verdict
from neoflow.tuning.choosing import candidates
from neoflow.tuning.kept import records_in
from tests.tuning.test_schedules import Products

pytestmark = pytest.mark.usefixtures("own_cache")
RNG = np.random.default_rng(11)


class Scripted:
    """A program in which kernels, and the whole of each set, take what is said; sets are named by what they hold."""

    def __init__(self, kernels: Mapping[str, Mapping[str, float]], wholes: Mapping[tuple[str, ...], float]):
        self._kernels, self._wholes = kernels, wholes
        self.names = {digest: f"kernel {digest}" for digest in kernels}

    def kernels(self, schedules: Mapping[str, Any]) -> dict[str, float]:
        return {digest: self._kernels[digest][s] for digest, s in schedules.items()}

    def whole(self, schedules: Mapping[str, Any], block: float) -> float:
        return self._wholes[tuple(schedules.values())]


def chosen(kernels: dict[str, dict[str, float]], wholes: dict[tuple[str, ...], float]) -> instep.Judged:
    """Of kernels a, b, ... by a default schedule or another one."""
    usual, tuned = ({d: name for d in kernels} for name in ("usual", "tuned"))
    asked: Any = (usual, tuned, None)
    sets = sets_of(*asked)
    runs: Any = Scripted(kernels, wholes)
    return judge(runs, sets, 0.01)


def test_each_kernel_gets_what_takes_less_in_the_program():
    times = {"a": {"usual": 4.0, "tuned": 2.0}, "b": {"usual": 1.0, "tuned": 3.0}}
    wholes = {("usual", "usual"): 5.0, ("tuned", "tuned"): 5.1, ("tuned", "usual"): 3.0}
    found = chosen(times, wholes)
    assert found.name == CHOSEN and found.schedules == {"a": "tuned", "b": "usual"}
    assert found.seconds == {DEFAULT: 5.0, ALONE: 5.1, CHOSEN: 3.0}
    assert str(found).splitlines()[1] == "kernel b: the default ones 1000000.0 us, by themselves 3000000.0 us"
    assert found.summary.startswith("schedules as chosen in the step: the default ones 5000.000 ms, ")


def test_a_program_that_none_makes_clearly_faster_stays_as_it_was():
    times = {"a": {"usual": 4.0, "tuned": 2.0}, "b": {"usual": 1.0, "tuned": 0.99}}
    wholes = {("usual", "usual"): 5.0, ("tuned", "tuned"): 4.95, ("tuned", "usual"): 4.95}
    assert chosen(times, wholes).name == DEFAULT  # kernel by kernel they were faster, the whole is not
    faster = {**wholes, ("tuned", "tuned"): 4.0}
    assert chosen(times, faster).name == ALONE


def test_a_set_is_compared_once():
    usual, tuned = {"a": 1, "b": 2}, {"a": 3, "b": 2}
    asked: Any = (usual, tuned, {"a": 3})
    assert list(sets_of(*asked)) == [DEFAULT, ALONE]
    asked = (usual, usual, None)
    assert list(sets_of(*asked)) == [DEFAULT]
    asked = (usual, tuned, {"a": 4})
    assert list(sets_of(*asked).values()) == [usual, tuned, {"a": 4, "b": 2}]


def test_kernels_that_write_much_are_run_with_the_other_way_of_writing():
    def compiled(rows):
        x, w = nf.placeholder((rows, 16), name="x"), nf.placeholder((16, 512), name="w")
        return compile_program([nf.relu(x @ w)], [x, w], {})

    asked: Any = ({"a": 1}, {"a": 2}, None, {"a": 3})
    assert sets_of(*asked) == {DEFAULT: {"a": 1}, ALONE: {"a": 2}, STREAMED: {"a": 3}}
    target = resolve_target("cpu")
    enough = -(-instep.LARGE * target.l2_bytes * target.threads // (4 * 512))
    for rows, is_much in ((enough, True), (enough // 2, False)):
        c = compiled(rows)
        ((digest, schedule),) = by_digest(c).items()
        (other,) = instep.streamed(c.kernels, {digest: schedule}).values()
        assert (other["stream"] != schedule["stream"]) is is_much


def test_seconds_are_a_share_of_the_tuning():
    assert instep.seconds_for(nf.tune.Limits(seconds=60)) == pytest.approx(6.0)
    assert instep.seconds_for(nf.tune.Limits(seconds=3600)) == instep.MOST
    assert instep.seconds_for(nf.tune.Limits(trials=5)) == instep.USUAL


# --- of programs


def program(scale: float = 1.0):
    x, w = nf.placeholder((48, 40), name="x"), nf.parameter((40, 56), name="w", init=RNG.normal(size=(40, 56)))
    y = nf.relu(nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w))
    loss = nf.sum(y * y) * scale
    return [loss], [x], {w: w - 1e-3 * nf.grad(loss, [w])[0]}


def others(compiled: Compiled, seed: int) -> dict[str, nf.tune.Schedule]:
    rng = np.random.default_rng(seed)
    return {k.subgraph.digest: space(problem_of(k.subgraph), k.target).sample(rng) for k in compiled.kernels}


def record(compiled: Compiled, schedules: Mapping[str, nf.tune.Schedule]) -> None:
    """Have them be what was fastest by itself."""
    for k in compiled.kernels:
        usual = nf.tune.Trial(default_schedule(k.subgraph, k.target), "ok", 2e-9, times=3)
        best = nf.tune.Trial(schedules[k.subgraph.digest], "ok", 1e-9, times=3)
        records_in(config.load().cache_dir).add(k.subgraph, k.target, [usual, best])


def by_digest(compiled: Compiled) -> dict[str, nf.tune.Schedule]:
    return {k.subgraph.digest: k.schedule for k in compiled.kernels}


def agrees(compiled: Compiled) -> None:
    """With NumPy, the loss and what it makes of the parameter."""
    from neoflow.pipeline import bind

    f, (x,) = bind(compiled), compiled.written.inputs
    ((w, update),) = compiled.written.updates
    array = RNG.normal(size=x.shape).astype("float32")
    exact = nf.evaluate([*compiled.written.outputs, update], {x: array, w: nf.get_value(w)}, dtype="float64")
    np.testing.assert_allclose(f(array)[0], exact[0], rtol=1e-4)
    np.testing.assert_allclose(nf.get_value(w), exact[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fastest", [DEFAULT, ALONE, CHOSEN])
def test_a_tuned_program_and_later_compilations_of_it_are_what_was_fastest_in_the_step(fastest, monkeypatch):
    asked = program()
    plain = compile_program(*asked)
    usual, tuned = by_digest(plain), others(plain, 1)
    record(plain, tuned)
    assert by_digest(compile_program(*asked)) == tuned
    wanted = {DEFAULT: usual, ALONE: tuned, CHOSEN: {**tuned, **dict([next(iter(usual.items()))])}}[fastest]

    def kernels(self: Any, schedules: Any) -> dict[str, float]:
        self._adopt(self._function, schedules)
        return {d: 1e-3 if s == wanted[d] else 2e-3 for d, s in schedules.items()}

    def whole(self: Any, schedules: Any, block: float) -> float:
        return 1e-3 if schedules == wanted else 2e-3

    monkeypatch.setattr(instep.Sets, "kernels", kernels)
    monkeypatch.setattr(instep.Sets, "whole", whole)
    asked_again = compile_program(*asked, tune=nf.tune.Limits(trials=1))
    assert fastest in asked_again.explain("in the step") or fastest in asked_again.trace.records[-1].summary
    assert by_digest(asked_again) == wanted
    assert {c.use.subgraph.digest: c.schedule for c in asked_again.tuned.choices} == wanted
    agrees(asked_again)
    later = compile_program(*asked)
    assert by_digest(later) == wanted
    agrees(later)
    origins = {c.use.subgraph.digest: c.origin for c in later.tuned.choices}
    assert all((origins[d] == "default") == (s == usual[d]) for d, s in wanted.items())


def test_a_verdict_is_of_its_program_alone():
    asked = program()
    plain = compile_program(*asked)
    usual, tuned = by_digest(plain), others(plain, 2)
    record(plain, tuned)
    kept, uses = records_in(config.load().cache_dir), tuning.uses_of(plain.calls)
    key = tuning.schedules.program_of(uses)
    assert kept.keep_verdict(key, plain.target, Verdict(usual, {DEFAULT: 1.0}))
    assert by_digest(compile_program(*asked)) == usual
    half = plain.kernels[0]
    alone = tuning.choose([tuning.Use(half.subgraph)], plain.target, config.load().cache_dir)
    assert alone.choices[0].schedule == tuned[half.subgraph.digest]


def test_the_step_is_really_timed():
    asked = program()
    plain = compile_program(*asked)
    record(plain, others(plain, 3))
    found = compile_program(*asked, tune=nf.tune.Limits(trials=1))
    text = found.trace.records[-1].summary
    assert DEFAULT in text and ALONE in text and "ms" in text
    agrees(found)


def test_a_program_that_cannot_be_run_keeps_its_schedules(monkeypatch):
    asked = program()
    plain = compile_program(*asked)
    tuned = others(plain, 4)
    record(plain, tuned)

    def fail(*_: Any) -> None:
        raise nf.errors.RuntimeFault("there is no memory")

    monkeypatch.setattr("neoflow.pipeline.alone", fail)
    with pytest.warns(UserWarning, match="could not be timed: there is no memory"):
        found = compile_program(*asked, tune=nf.tune.Limits(trials=1))
    assert by_digest(found) == tuned


# --- other algorithms than direct sums


@pytest.mark.parametrize("is_faster", [False, True])
def test_algorithms_that_make_the_program_no_faster_are_left(is_faster, monkeypatch, own_cache):
    """Each was faster by itself; what was found of the whole is what later compilations do, until the next search."""
    x = nf.placeholder((2, 64, 12, 12), name="x")
    w = nf.placeholder((64, 64, 3, 3), name="w")
    y = nf.nn.functional.conv2d(x, w, padding=1)
    graph, limits = optimize(make_graph([y], [x, w])), nf.tune.Limits(trials=1, rounding=16.0)
    target = resolve_target("cpu")
    assert tuning.algorithms(graph, target, limits, own_cache, Products()).others == 1
    assert "winograd" in nf.compile(y, [x, w]).explain("algorithms")

    def beside(pair: Any, place: Any, seconds: float) -> instep.Times:
        array = [RNG.normal(size=t.shape).astype("float32") for t in (x, w)]
        for a, b in zip(*(f(*array) for f in pair), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
        return instep.Times(1.0, 0.5 if is_faster else 0.99)

    monkeypatch.setattr(instep, "beside", beside)
    found = compile_program([y], [x, w], tune=limits)
    told = found.explain("beside direct sums")
    assert told == f"1000.000 ms directly, {500 if is_faster else 990}.000 ms with other algorithms"
    later = nf.compile(y, [x, w])
    for program in (found, later.compiled):
        assert ("winograd" in program.explain("algorithms")) == is_faster
    assert later.compiled.graph.digest == found.graph.digest
    kernels = [k for those in candidates(graph).values() for c in those for k in c.kernels]
    for k in kernels:  # the search has really timed one of them
        tried = [t.schedule for t in records_in(own_cache).trials(k, target)]
        records_in(own_cache).add(k, target, Products()(k, target, tried))
    again = tuning.algorithms(graph, target, limits, own_cache, Products())
    assert again.others == 1, "a search chooses again"


def test_two_programs_are_really_timed():
    from neoflow.devices import device
    from neoflow.trials import alone

    compiled = compile_program(*program())
    found = instep.beside((alone(compiled), alone(compiled)), device(compiled.target), 0.05)
    assert 0 < found.usual < 1 and 0 < found.other < 1

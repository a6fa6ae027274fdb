"""Algorithms that round more than is usual: chosen where that is asked for, kept, taken and said later."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import instep, pipeline, tuning
from neoflow.devices import resolve_target
from neoflow.graph import make_graph, optimize
from neoflow.pipeline import compile_program
from neoflow.tune import Limits
from tests.tuning.test_schedules import Products

pytestmark = pytest.mark.usefixtures("own_cache")
CHOSEN = "winograd 4, at most 53.8 times the direct sum's roundings"
SAID = (
    "an earlier search chose winograd 4, of at most 54 times the direct sum's roundings, and 16 are allowed here: "
    "--rounding 54 or nf.tune.Limits(seconds=0, rounding=54) takes what it chose"
)
"""F(4x4, 3x3) has 53.8, see docs/numbers.md."""


def convolution():
    x, w = nf.placeholder((2, 64, 12, 12), name="x"), nf.placeholder((64, 64, 3, 3), name="w")
    return [nf.nn.functional.conv2d(x, w, padding=1)], [x, w]


def searched(outputs, inputs, folder, rounding, is_faster=True, updates=None):
    """What a search keeps on a machine where fewer products take less, in the whole program as well or not."""
    graph, target = optimize(make_graph(outputs, inputs, updates or {})), resolve_target("cpu")
    found = tuning.algorithms(graph, target, Limits(trials=1, rounding=rounding), folder, Products())
    tuning.have_direct([found], target, folder, not is_faster)


def algorithms(rounding=None, program=convolution):
    tune = None if rounding is None else Limits(seconds=0, rounding=rounding)
    return nf.compile(*program(), tune=tune).explain("algorithms")


def test_what_a_search_chose_is_taken_where_as_much_is_allowed(own_cache, monkeypatch):
    outputs, inputs = convolution()
    searched(outputs, inputs, own_cache, 256)
    monkeypatch.setattr(instep, "beside", lambda *_: instep.Times(1.0, 0.5))
    found = compile_program(outputs, inputs, tune=Limits(trials=1, rounding=256))
    assert found.tuned.trials == 1 and CHOSEN in found.explain("algorithms")
    for rounding in (54, 256, 500):
        later = nf.compile(outputs, inputs, tune=Limits(seconds=0, rounding=rounding))
        assert later.compiled.tuned.trials == 0 and later.compiled.graph.digest == found.graph.digest
        assert CHOSEN in later.explain("algorithms") and "an earlier search" not in later.explain("algorithms")
    arrays = [np.random.default_rng(3).normal(size=t.shape).astype("float32") for t in inputs]
    (exact,) = nf.evaluate(outputs, dict(zip(inputs, arrays, strict=True)), dtype="float64")
    error = later(*arrays)[0] - exact
    assert np.sqrt(np.mean(error**2) / np.mean(exact**2)) < 3e-6  # docs/numbers.md


def test_where_less_is_allowed_it_is_left_and_that_is_said(own_cache, caplog):
    outputs, inputs = convolution()
    searched(outputs, inputs, own_cache, 256)
    with caplog.at_level("INFO", "neoflow"):
        found = nf.compile(outputs, inputs)
    *chosen, said = found.explain("algorithms").splitlines()
    assert said == SAID and len(chosen) == 1 and "winograd 2, at most 7.11 times" in chosen[0]
    (record,) = (r for r in found.compiled.trace.records if r.name == "algorithms")
    assert record.summary == f"1 of 1 contractions by another algorithm than the direct one; {SAID}"
    assert [r.getMessage() for r in caplog.records] == [SAID]


def test_nothing_is_said_of_a_search_that_was_allowed_what_is_usual(own_cache):
    searched(*convolution(), own_cache, 16)
    assert "winograd 2" in algorithms() and "an earlier search" not in algorithms() + algorithms(1)
    assert "winograd 2" in algorithms(256), "nobody has measured winograd 4"


def test_that_direct_sums_make_the_program_faster_is_said_of_what_was_allowed(own_cache):
    """F(4x4, 3x3) that makes it slower says nothing of F(2x2, 3x3)."""
    searched(*convolution(), own_cache, 256, is_faster=False)
    assert algorithms(256) == "" and "winograd 2" in algorithms() and "an earlier search" not in algorithms()
    searched(*convolution(), own_cache, 16, is_faster=False)
    assert algorithms(256) == algorithms() == ""


def test_a_later_search_that_finds_direct_sums_faster_takes_back_what_was_said(own_cache):
    searched(*convolution(), own_cache, 256)
    assert SAID in algorithms()
    searched(*convolution(), own_cache, 256, is_faster=False)
    assert "an earlier search" not in algorithms()


def test_a_package_and_an_instance_of_its_own_keep_what_was_allowed(own_cache):
    """Both are compiled once more: without what follows from weights that stay, or with these as users know them."""
    x = nf.placeholder((2, 64, 12, 12), name="x")
    w = nf.parameter((64, 64, 3, 3), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    y = nf.nn.functional.conv2d(x, w, padding=1)
    searched([y], [x], own_cache, 256)
    found = compile_program([y], [x], tune=Limits(seconds=0, rounding=256))
    assert found.plan.prepared and CHOSEN in found.explain("algorithms")
    whole = pipeline._whole(found)
    assert not whole.plan.prepared and CHOSEN in whole.explain("algorithms")
    assert CHOSEN in pipeline._plainly(found).explain("algorithms")


def learned():
    x = nf.placeholder((2, 64, 12, 12), name="x")
    w = nf.parameter((64, 64, 3, 3), name="w", init=lambda shape, rng: 0.05 * rng.standard_normal(shape))
    y = nf.nn.functional.conv2d(x, w, padding=1)
    return x, w, y, nf.mean(y * y)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_all_programs_of_a_run_are_allowed_the_same(own_cache, mode):
    x, w, y, loss = learned()
    searched([y], [x], own_cache, 256)
    limits = Limits(seconds=0 if mode == "static" else 1.0, rounding=256)
    trainer = nf.Trainer(loss, [w], inputs=[x], tune=limits, mode=mode, progress=False)
    trainer.predict(y, np.ones((2, 64, 12, 12), "float32"))
    (predicts,) = trainer.functions.values()
    assert CHOSEN in predicts.explain("algorithms")
    assert trainer.step_function().compiled.rounding == 256


def test_a_run_says_what_its_step_leaves(own_cache, capsys):
    x, w, _, loss = learned()
    asked = nf.Trainer(loss, [w], inputs=[x], progress=False).objective.step()
    searched(asked.outputs, asked.inputs, own_cache, 256, updates=asked.updates)
    nf.Trainer(loss, [w], inputs=[x]).step_function()
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == SAID
    nf.Trainer(loss, [w], inputs=[x], tune=Limits(seconds=0, rounding=256)).step_function()
    assert "an earlier search" not in capsys.readouterr().err

"""Other schedules for a function that runs: memory and parameters stay, results change by rounding alone."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline
from neoflow.loops import problem_of, space
from neoflow.runtime.function import Function

RNG = np.random.default_rng(3)


def training_step() -> tuple[Function, nf.Parameter]:
    """A step with products whose kernels may have scratch, and an index from data, which may be outside."""
    x, ids = nf.placeholder((37, 29), name="x"), nf.placeholder((37,), "int64", name="ids")
    w = nf.parameter((29, 41), name="w", init=RNG.normal(size=(29, 41)).astype("float32"))
    table = nf.parameter((5, 41), name="table", init=RNG.normal(size=(5, 41)).astype("float32"))
    y = nf.expr("y[b,o] = sum(x[b,i] * w[i,o]) + table[ids[b],o]", x=x, w=w, table=table, ids=ids)
    loss = nf.mean(nf.tanh(y) * y)
    dw, dt = nf.grad(loss, [w, table])
    return nf.compile([loss], [x, ids], {w: w - 0.1 * dw, table: table - 0.1 * dt}), w


def other_schedules(function: Function, seed: int) -> dict[str, nf.tune.Schedule]:
    rng = np.random.default_rng(seed)
    compiled = function.compiled
    return {k.subgraph.digest: space(problem_of(k.subgraph), k.target).sample(rng) for k in compiled.kernels}


def batch() -> tuple[np.ndarray, np.ndarray]:
    return RNG.normal(size=(37, 29)).astype("float32"), RNG.integers(0, 5, 37)


def test_a_function_with_other_schedules_goes_on_from_its_parameters_as_it_would_have():
    (step, w), (fixed, v) = training_step(), training_step()
    nf.set_value(v, nf.get_value(w))
    for one, other in zip(step.parameters, fixed.parameters, strict=True):
        nf.set_value(other, nf.get_value(one))
    changed = 0
    for seed in range(5):
        data = batch()
        (a,), (b,) = step(*data), fixed(*data)
        np.testing.assert_allclose(a, b, rtol=2e-5)
        changed += pipeline.adopt(step, other_schedules(step, seed))
    assert changed > 5 and step.runs == fixed.runs == 5
    np.testing.assert_allclose(nf.get_value(w), nf.get_value(v), rtol=1e-4, atol=1e-6)
    assert sum(t.seconds for t in step.profile(*batch(), runs=2)) > 0


def test_what_is_adopted_is_what_is_shown_and_runs_again_to_the_bit():
    step, w = training_step()
    chosen, data, start = other_schedules(step, 1), batch(), nf.get_value(w)
    table = step.parameters[1] if step.parameters[0] is w else step.parameters[0]
    begin = nf.get_value(table)
    pipeline.adopt(step, chosen)
    assert {k.subgraph.digest: k.schedule for k in step.compiled.kernels} == chosen
    assert step.compiled.plan is step.plan
    found = []
    for _ in range(2):
        nf.set_value(w, start)
        nf.set_value(table, begin)
        found.append((step(*data)[0], nf.get_value(w)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert pipeline.adopt(step, chosen) == 0


def test_a_fault_is_told_after_other_schedules_as_before():
    step, _ = training_step()
    pipeline.adopt(step, other_schedules(step, 2))
    x, ids = batch()
    ids[3] = 5
    with pytest.raises(nf.RuntimeFault, match=r"ids\[b\]` = 5 at b=3, but its extent is 5"):
        step(x, ids)


def test_scratch_that_grows_takes_new_memory():
    step, _ = training_step()
    sizes = set()
    for seed in range(12):
        pipeline.adopt(step, other_schedules(step, seed))
        sizes.add(step.plan.scratch_bytes)
        step(*batch())
    assert len(sizes) > 1


def test_an_illegal_schedule_changes_nothing():
    step, _ = training_step()
    kernel = next(k for k in step.compiled.kernels if k.schedule.template == "contraction")
    knobs = {**dict(kernel.schedule.knobs), "vectors": 0}
    wrong = nf.tune.Schedule(kernel.schedule.template, tuple(sorted(knobs.items())))
    with pytest.raises(nf.ScheduleError):
        pipeline.adopt(step, {kernel.subgraph.digest: wrong})
    assert kernel in step.compiled.kernels
    step(*batch())

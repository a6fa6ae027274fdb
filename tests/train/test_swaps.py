"""Kernels that are swapped while a run goes on, by another process: nothing of the run itself is made up."""

import json
import sys
import time
from itertools import chain, islice, repeat

import numpy as np
import pytest

import neoflow as nf
from neoflow.pipeline import adopt
from neoflow.train import dynamic
from neoflow.train.dynamic import schedules_of
from tests.test_adopt import other_schedules

pytestmark = [pytest.mark.tvm, pytest.mark.usefixtures("own_cache")]
AT_MOST = 240.0
"""Seconds waited for a swap."""
AFTER = 4
"""Steps that are made after it."""


def batches():
    """Always the same ones."""
    rng = np.random.default_rng(4)
    made = [[rng.standard_normal((64, 256), dtype=np.float32) for _ in range(2)] for _ in range(3)]
    return chain.from_iterable(repeat(made))


def trainer(**options):
    """Of a product large enough for its schedules to differ by much."""
    x, wanted = nf.placeholder((64, 256), name="x"), nf.placeholder((64, 256), name="wanted")
    start = 0.05 * np.random.default_rng(5).standard_normal((256, 256), dtype=np.float32)
    w = nf.parameter((256, 256), name="w", init=start)
    difference = nf.tanh(x @ w) - wanted
    loss = nf.mean(difference * difference)
    return nf.Trainer(loss, [w], inputs=[x, wanted], optimizer=nf.optim.SGD(lr=10.0), progress=False, **options)


def with_poor_schedules(made):
    """The step by the slowest of a few sets of schedules: many times slower than by the default ones."""
    function = made.step_function()
    arrays = made.step_arrays(next(batches()), 0.1)

    def seconds(schedules):
        adopt(function, schedules)
        return sum(t.seconds for t in function.profile(*arrays, runs=1))

    adopt(function, max((other_schedules(function, seed) for seed in range(6)), key=seconds))
    for parameter in made.parameters:
        nf.set_value(parameter, parameter.init)
    return function


def until_swapped(made):
    """Batches, until a few steps after the first swap."""
    left, end = AFTER, time.monotonic() + AT_MOST
    for batch in batches():
        if made.swaps:
            left -= 1
        if left < 0 or time.monotonic() > end:
            return
        yield batch


@pytest.mark.parametrize("search", ["told", pytest.param("real", marks=pytest.mark.slow)])
def test_what_is_poor_is_swapped_between_steps_and_losses_stay(search, tmp_path, monkeypatch, caplog):
    pin = tmp_path / "run.pin"
    made = trainer(mode="dynamic", tune=nf.tune.Limits(seconds=AT_MOST), tune_share=1.0, pin=pin)
    usual = schedules_of(made.step_function().compiled)
    poor = schedules_of(with_poor_schedules(made).compiled)
    if search == "told":
        found = tmp_path / "found.json"
        found.write_text(json.dumps({d: s.to_json() for d, s in usual.items() if s != poor[d]}))
        monkeypatch.setattr(dynamic, "COMMAND", (sys.executable, "-m", "tests.train.telling", str(found)))
    with caplog.at_level("INFO", "neoflow"):
        history = made.fit(until_swapped(made), 1)

    assert made.swaps and 0 < made.swaps[0].step <= len(history.losses) - AFTER
    said = [r.getMessage() for r in caplog.records if r.name == "neoflow"]
    for swap in (record.swap for record in made.swaps):
        assert swap.seconds < swap.before and swap.schedule != poor[swap.subgraph]
        assert any(f"{swap} " in f"{line} " and line.startswith("step ") for line in said)
        assert f"({swap.before / swap.seconds:.2f}x)" in str(swap)
    now = schedules_of(made.step_function().compiled)
    assert now == {**poor, **{r.swap.subgraph: r.swap.schedule for r in made.swaps}}

    fixed = trainer().fit(islice(batches(), len(history.losses)), 1)
    np.testing.assert_allclose(history.losses, fixed.losses, rtol=1e-5)
    assert fixed.losses[-1] < 0.9 * fixed.losses[0]

    runs = [trainer(mode="dynamic", pin=pin) for _ in range(2)]
    losses = [run.fit(islice(batches(), 6), 1).losses for run in runs]
    assert losses[0] == losses[1] and not runs[0].swaps
    assert schedules_of(runs[0].step_function().compiled) == now
    a, b = (nf.get_value(run.parameters[0]) for run in runs)
    np.testing.assert_array_equal(a, b)

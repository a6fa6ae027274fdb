"""Uploads of a GPU, which is the emulator: a step sees whole inputs, whenever they go on their way."""

import numpy as np
import pytest

import neoflow as nf
from tests.emulator.driver import EmulatedDriver, emulated

pytestmark = pytest.mark.tvm
WHEN = pytest.mark.parametrize("late", [True, False])
ARRAYS = [np.full(6, n, np.float32) for n in (1, 20, 300, 4000)]


def sums(monkeypatch, late, ahead):
    """What a parameter is after steps that add their input to it and return nothing: nobody waits for any of them."""
    emulated(monkeypatch, late_uploads=late)
    x, w = nf.placeholder((6,), name="x"), nf.parameter((6,), name="w")
    f = nf.compile([], [x], {w: w + x}, target="cuda")
    for now, then in zip(ARRAYS, [*ARRAYS[1:], None], strict=True):
        if ahead and then is not None:
            f.run_beside(lambda then=then: f.bring([then]), now)
        else:
            f(now)
    assert f.runs == len(ARRAYS)
    return nf.get_value(w)


@WHEN
@pytest.mark.parametrize("ahead", [True, False])
def test_steps_see_their_own_inputs(monkeypatch, late, ahead):
    np.testing.assert_array_equal(sums(monkeypatch, late, ahead), sum(ARRAYS))


@pytest.mark.parametrize(
    ("late", "left_out"), [(True, "join_uploads"), (False, "hold_uploads"), (True, "finish_uploads")]
)
def test_whoever_does_not_wait_is_found_out(monkeypatch, late, left_out):
    monkeypatch.setattr(EmulatedDriver, left_out, lambda *_: None)
    assert not np.array_equal(sums(monkeypatch, late, ahead=True), sum(ARRAYS))


def test_what_came_ahead_counts_for_the_next_call_alone(monkeypatch):
    gpu = emulated(monkeypatch)
    x = nf.placeholder((6,), name="x")
    f = nf.compile([x * 2.0], [x], target="cuda")
    a, b, c, _ = ARRAYS
    f.run_beside(lambda: f.bring([b]), a)
    np.testing.assert_array_equal(f(c)[0], 2 * c)
    np.testing.assert_array_equal(f(b)[0], 2 * b)
    f.run_beside(lambda: f.bring([b]), a)
    before = gpu.driver.calls.count("upload")
    np.testing.assert_array_equal(f(b)[0], 2 * b)
    assert gpu.driver.calls.count("upload") == before
    with pytest.raises(nf.RuntimeFault, match="input x has shape"):
        f.bring([np.zeros(5, np.float32)])


def test_on_the_cpu_nothing_is_brought(monkeypatch):
    x = nf.placeholder((6,), name="x")
    f = nf.compile([x * 2.0], [x])
    np.testing.assert_array_equal(f.run_beside(lambda: f.bring([ARRAYS[1]]), ARRAYS[0])[0], 2 * ARRAYS[0])

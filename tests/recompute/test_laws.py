"""Plans under a limit: every bit stays, no byte too many, the least works, and more memory is never slower."""

import numpy as np
import pytest

from neoflow.errors import ConfigError
from neoflow.recompute import fit
from neoflow.recompute.unroll import profile, unroll
from neoflow.roofs import STATED
from tests.recompute.networks import network, program_of, run, scattered

SPACES = (0, 256, 0, 64)
"""Bytes of workspaces of kernels, in turn."""


def least_of(program):
    """The bytes that the error names; with everything kept where nothing is less."""
    try:
        return fit(program, 1, STATED).plan.nbytes
    except ConfigError as e:
        return int(e.message.split(" bytes (")[0].split()[-1])


def law(make, seed):
    """How many of the limits had anything computed again."""
    outputs, inputs, updates, feeds = make(seed)
    program = program_of(outputs, inputs, updates, SPACES)
    plan, steps = program.plan(), program.steps(STATED)
    wanted, whole, least = run(program, plan, feeds), plan.nbytes, least_of(program)
    assert least <= whole
    with pytest.raises(ConfigError, match=f"the least that works is .*, {least} bytes "):
        fit(program, least - 1, STATED)
    slower, found = float("inf"), 0
    for limit in sorted({least, (least + whole) // 2, max(least, whole - 1), whole}):
        fitted = fit(program, limit, STATED)
        assert fitted.plan.nbytes <= limit and fitted.before == steps.seconds
        assert fitted.before <= fitted.after <= slower
        assert bool(fitted.again) == (limit < whole)
        slower, found = fitted.after, found + bool(fitted.again)
        for a, b in zip(wanted, run(fitted.program, fitted.plan, feeds), strict=True):
            np.testing.assert_array_equal(a, b)
    return found


@pytest.mark.parametrize("make", [network, scattered])
def test_a_limit_changes_memory_alone(make):
    assert sum(law(make, seed) for seed in (0, 3)) > 2


@pytest.mark.parametrize("make", [network, scattered])
def test_the_live_set_is_the_planners(make):
    """As long as nothing is repeated; then it may count a whole for one part of it that nobody reads."""
    for seed in (20, 21):
        program = program_of(*make(seed)[:3], SPACES)
        steps = program.steps(STATED)
        assert profile(steps, unroll(steps, ())).peak == program.plan().live_bytes

"""Candidates for a GPU, by the same worker: built, judged and timed on the emulator."""

import shutil
import sys
from functools import partial

import pytest

from neoflow.architectures import gpu_target
from neoflow.loops import default_schedule
from neoflow.measure import Measurer
from neoflow.measure.here import Here
from tests.measure.test_measurer import product, with_knob

EMULATED = [sys.executable, "-m", "tests.measure.emulated"]


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator is a program in C++")
def test_a_gpu_s_candidates():
    subgraph, target = product(8, 8, 8), gpu_target("cuda", "sm_80")
    default = default_schedule(subgraph, target)
    name = default.knobs[0][0]
    with Measurer(partial(Here, command=EMULATED), deadline=120.0) as measure:
        good, bad = measure(subgraph, target, [default, with_knob(default, **{name: -7})])
    assert good.outcome == "ok" and good.seconds > 0, good
    assert bad.outcome == "refused" and name in bad.reason

"""Kernels beside their floors: what limits one, in words."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.report.gaps import kernel_gaps, limit
from neoflow.report.kernels import kernel_work
from neoflow.report.roofline import KernelRow
from neoflow.roofs import Level, Roofs

ROOFS = Roofs(100.0, (Level("L2", 1 << 20, 50.0), Level("memory", None, 10.0)))


def row(seconds, flops, nbytes, calls=1):
    return KernelRow(0, "k", ("k",) * calls, "", seconds, 1.0, flops, nbytes, nbytes // calls, "s", "")


def test_what_limits_a_kernel():
    assert limit(row(2e-3, int(1e8), 1 << 10), ROOFS) == "arithmetic, at 50% of the peak"
    assert limit(row(1e-3, 1, int(5e6)), ROOFS) == "memory, at 50% of 10 GB/s"
    assert limit(row(8e-6, 1, 100, 4), ROOFS).startswith("2.0 us a call: its start")


@pytest.mark.tvm
def test_what_is_prepared_is_of_no_step():
    """Turned once, until the parameter changes: a step neither spends its time nor has its floor."""
    x = nf.placeholder((4, 64), name="x")
    w = nf.parameter((64, 64), name="w")
    infer = nf.compile([nf.relu(x @ nf.tanh(w))], [x])
    assert infer.plan.prepared
    times = infer.profile(np.zeros((4, 64), np.float32), runs=1)
    gaps = kernel_gaps(infer.compiled, times, ROOFS)
    assert sum(k.calls for k in gaps) == len(infer.plan.calls) - infer.plan.prepared
    assert sum(k.seconds for k in gaps) == pytest.approx(sum(t.seconds for t in times[infer.plan.prepared :]))
    assert sum(work.calls for work in kernel_work(infer.compiled)) == sum(k.calls for k in gaps)
